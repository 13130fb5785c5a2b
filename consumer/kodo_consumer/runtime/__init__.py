"""Execution of a user's handler: on threads, an event loop, in processes or in batches, with middleware and
idempotency.
"""
