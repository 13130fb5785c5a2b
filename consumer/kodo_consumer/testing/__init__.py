"""Tools for tests of handlers: a broker in memory, a manual clock, a harness around a consumer, crash injection, and a
builder of messages.
"""

from kodo_consumer.testing.builders import message
from kodo_consumer.testing.crash_injection import Kill, kills
from kodo_consumer.testing.harness import Harness
from kodo_consumer.testing.manual_clock import ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker, StoredMessage

__all__ = ["Harness", "Kill", "ManualClock", "MemoryBroker", "StoredMessage", "kills", "message"]
