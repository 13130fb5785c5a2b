# adapter: writes the landing
"""Upkeep of a landing: merging small files, removing settled rows, erasing payloads."""
