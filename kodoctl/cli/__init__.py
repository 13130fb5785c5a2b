"""The command line: options, calls of the other packages, output, exit codes. Only this package prints. It reads the
environment variables and passes them to other packages; only secrets that a Spark task needs are read again there
(`kodoctl.pulsar.connection.secret`).
"""
