"""The data pipeline on Spark: what happened to every message, told from the data (extra `spark`)."""
