"""The command line: options, calls of the other packages, output, exit codes. Only this package prints and reads
environment variables.
"""
