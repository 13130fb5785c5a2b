"""Lint rules: one small function each, which `@rule` registers.

A rule reads every expansion of one environment and yields a match for each violation. Its docstring states the rule or
its violations. It does no I/O.
"""
