"""Upkeep of a worker: overrides, limits of the broker, clock skew, workers of lanes, deliveries that stall."""
