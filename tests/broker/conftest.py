"""Fixtures of the tests on the real broker."""

from tests.broker.replays import replays
from tests.brokers.authentication import closed, guarded
from tests.brokers.function_worker import function_broker, functions
from tests.brokers.workspace import proxy, workspace

__all__ = ["closed", "function_broker", "functions", "guarded", "proxy", "replays", "workspace"]
