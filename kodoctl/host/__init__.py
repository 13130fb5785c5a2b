"""Facts about the machine and the user of a command, signals, private files, programs to start, optional libraries, and
the HTTP server of metrics.
"""
