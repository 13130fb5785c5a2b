"""Checks of a message: on receipt, of its level, of its payload, and of the outcome of its handler."""
