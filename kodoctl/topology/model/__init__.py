"""Pydantic models of the topology file."""
