# adapter: reads the broker and writes the landing
"""Ingest: messages, audit records and cursors of a cluster, landed in tables."""
