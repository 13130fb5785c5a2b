# adapter: writes the landing
"""Upkeep of a landing: large files for small ones, removal of settled rows, erasure of payloads."""
