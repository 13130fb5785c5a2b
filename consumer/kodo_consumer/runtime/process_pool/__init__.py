"""Handlers in processes of their own: for work that needs a core, or that may crash its process.

Modules that the processes import do not import the worker, so that processes start sooner.
"""
