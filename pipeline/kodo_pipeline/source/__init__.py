"""Pulsar's stored messages for table engines: planned by ledger ranges, read as Arrow, and proved by coverage. Spark
is one user.
"""
