"""A broker in memory that goes on by itself, for code that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.testing import MemoryBroker


class Pump:
    """Steps the broker, as a real one would by itself."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(broker,), daemon=True)
        self.thread.start()

    def _run(self, broker: MemoryBroker) -> None:
        while not self.over.wait(0.002):
            broker.step()

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


@contextmanager
def pumped(topic: str) -> Iterator[MemoryBroker]:
    """A broker with one topic that goes on by itself until the end, where receipts are held no longer."""
    broker = MemoryBroker(SystemClock())
    broker.create(topic)
    pump = Pump(broker)
    yield broker
    broker.hold_receipts = False
    pump.stop()
