# adapter: runs Spark
"""Spark: its session, its errors, its progress, and waits for its executors."""
