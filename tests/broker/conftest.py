"""Fixtures of the tests on the real broker."""

from tests.cluster import proxy, workspace

__all__ = ["proxy", "workspace"]
