"""Stores of done messages and of started handlers: one implementation for each kind of store.
They implement the port `kodo_consumer.core.values.store`.
"""
