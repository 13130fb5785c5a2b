# pure: every branch is tested
"""The data pipeline on Spark: the history of every message, computed from stored data (extra `spark`)."""
