# pure: every branch is tested
"""Content of messages that producers, workers, recalls and the pipeline agree on: properties, signatures, sequence
numbers, audit records, live orders.
"""
