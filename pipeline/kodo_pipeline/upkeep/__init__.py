# adapter: writes the landing
"""Upkeep of a landing: merging of small files, removal of settled rows, erasure of payloads."""
