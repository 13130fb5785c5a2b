"""Fixtures of the golden scenarios."""

from tests.cluster import workspace

__all__ = ["workspace"]
