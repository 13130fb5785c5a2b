# adapter: runs Spark
"""Recall of dead letters and lost messages in bulk: Spark chooses them, and its executors send them."""
