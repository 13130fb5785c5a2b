"""Fixtures of the tests on the real broker."""

from tests.cluster import workspace

__all__ = ["workspace"]
