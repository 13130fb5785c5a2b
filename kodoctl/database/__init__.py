"""Databases of sources: their publications and replication slots, read and written. Only here, and only for them, does
kodoctl talk to PostgreSQL.
"""
