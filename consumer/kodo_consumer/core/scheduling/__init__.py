"""Which message is next and whether it may start: tenants, weights, slots, limits, breaker. No I/O, the clock is passed in."""
