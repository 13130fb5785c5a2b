"""Facts about the machine and the user that a command runs on, private files, programs to start, and the server of
metrics.
"""
