"""Ingest: messages, audit records and cursors of a cluster, landed in tables."""
