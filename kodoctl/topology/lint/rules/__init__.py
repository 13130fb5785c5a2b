"""Lint rules: one small function each, found through the registry.

A rule looks at every expansion of one environment and yields findings. It never does I/O.
"""
