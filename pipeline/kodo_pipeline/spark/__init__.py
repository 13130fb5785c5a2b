# adapter: runs Spark
"""Spark: its session, its errors, and waits for its executors."""
