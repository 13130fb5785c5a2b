"""For tests of handlers: a broker in memory, a clock moved by hand, and a harness around a consumer."""

from consumer.testing.clock import ManualClock
from consumer.testing.harness import Harness
from consumer.testing.memory_broker import MemoryBroker, StoredMessage

__all__ = ["Harness", "ManualClock", "MemoryBroker", "StoredMessage"]
