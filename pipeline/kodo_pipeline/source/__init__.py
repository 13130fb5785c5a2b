"""Source of Pulsar's stored messages for table engines such as Spark: reads are planned by ledger ranges, return Arrow
batches, and are proved complete by coverage.
"""
