"""Fixtures of the tests on the real broker."""

from tests.closed import closed, guarded
from tests.cluster import proxy, workspace

__all__ = ["closed", "guarded", "proxy", "workspace"]
