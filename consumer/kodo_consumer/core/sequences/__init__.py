"""Sequence numbers of producers: assigned and marked by a producer, and watched for gaps by a reader."""
