"""Fixtures of the tests on the real broker."""

from tests.brokers.authentication import closed, guarded
from tests.brokers.workspace import proxy, workspace

__all__ = ["closed", "guarded", "proxy", "workspace"]
