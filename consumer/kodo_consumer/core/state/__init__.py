"""State of a worker: messages in flight, queues of tenants and their turns, look-ahead, timers, counters.

Each part can be read without the engine; only the engine and its parts change it.
"""
