"""Stores of done messages and of started handlers: one class for each kind of store, all of the port
`kodo_consumer.core.values.store`.
"""
