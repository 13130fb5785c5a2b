"""Fixtures of the golden scenarios."""

from tests.brokers.workspace import workspace

__all__ = ["workspace"]
