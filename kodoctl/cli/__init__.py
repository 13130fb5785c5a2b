"""The command line: parse, wire, call, render, exit code. The only prints and environment reads."""
