# adapter: reads the broker and writes the landing
"""Ingest: reads messages, audit records and cursors of a cluster, and lands them in tables."""
