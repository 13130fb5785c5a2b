"""For tests of handlers: a broker in memory, a clock moved by hand, a harness around a consumer, one that kills it at every
step, messages to hand in.
"""

from consumer.testing.builders import message
from consumer.testing.clock import ManualClock
from consumer.testing.harness import Harness
from consumer.testing.killing import Kill, kills
from consumer.testing.memory_broker import MemoryBroker, StoredMessage

__all__ = ["Harness", "Kill", "ManualClock", "MemoryBroker", "StoredMessage", "kills", "message"]
