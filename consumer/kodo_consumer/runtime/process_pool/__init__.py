"""Handlers in processes of their own: for work that needs a core, or that may take its process down with it.

The parts that processes import know nothing of workers: they are there sooner.
"""
