"""Pydantic models of the topology file.

The modules have no `from __future__ import annotations`: pydantic would evaluate the text of every annotation again
whenever `kodoctl` starts.
"""
