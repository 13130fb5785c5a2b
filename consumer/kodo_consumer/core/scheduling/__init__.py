"""Scheduling of handler starts: the next message, and whether it may start. No I/O, the clock is passed in.

It considers tenants, weights, slots, limits and the circuit breaker.
"""
