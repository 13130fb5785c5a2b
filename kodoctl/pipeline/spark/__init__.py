"""Spark: its session, its errors, and waits for its executors."""
