"""Fixtures of the tests that break things on purpose."""

from tests.cluster import workspace

__all__ = ["workspace"]
