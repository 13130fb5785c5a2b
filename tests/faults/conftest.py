"""Fixtures of the tests that break things on purpose."""

from tests.cluster import proxy, workspace

__all__ = ["proxy", "workspace"]
