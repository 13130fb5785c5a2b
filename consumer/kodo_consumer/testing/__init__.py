"""Tools for tests of handlers: a broker in memory, a clock moved by hand, a harness around a consumer, one that kills
it at every step, messages to hand in.
"""

from kodo_consumer.testing.builders import message
from kodo_consumer.testing.crash_injection import Kill, kills
from kodo_consumer.testing.harness import Harness
from kodo_consumer.testing.manual_clock import ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker, StoredMessage

__all__ = ["Harness", "Kill", "ManualClock", "MemoryBroker", "StoredMessage", "kills", "message"]
