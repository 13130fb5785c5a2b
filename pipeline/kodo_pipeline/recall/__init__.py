# adapter: runs Spark
"""Recall of dead letters in bulk: chosen by Spark, sent by its executors."""
