# pure: every branch is tested
"""The topology file and its meaning. Pure: no I/O but reading files."""
