"""Bulkheads on a real broker: retries that hang take no more slots than are theirs, on threads and on an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Message, Retry

from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
SLOTS, MOST, SLOW, READY = 6, 2, 12, 200
SETTINGS = (
    f"concurrency: {{total: {SLOTS}, states: {{retrying: {{max: {MOST}}}}}}}, in_place: [], dead_letter: false,"
    " retrying: {delays: [1s], attempts: 9}, handler_timeout: 2m"
)


class Bank:
    """A handler's dependency: first calls of slow tenants fail, retries of them hang until it is over."""

    def __init__(self) -> None:
        self.hanging = self.most = self.recovered = 0
        self.waits: list[float] = []
        self.over = threading.Event()
        self._lock = threading.Lock()

    def begin(self, message: Message) -> bool:
        """True if this call hangs."""
        if message.tenant == "quick":
            self.waits.append(time.time() - float(message.data))
        elif message.state == "ready":
            raise Retry(code="bank")
        else:
            with self._lock:
                self.hanging += 1
                self.most = max(self.most, self.hanging)
            return True
        return False

    def end(self) -> None:
        """A call that hung returns."""
        with self._lock:
            self.hanging -= 1
            self.recovered += 1

    def handler(self, kind: str) -> Any:
        """A handler that calls it, on `threads` or on an `event loop`."""

        def blocking(message: Message) -> None:
            if self.begin(message):
                self.over.wait()
                self.end()

        async def waiting(message: Message) -> None:
            if self.begin(message):
                await asyncio.to_thread(self.over.wait)
                self.end()

        return blocking if kind == "threads" else waiting


@pytest.mark.parametrize("kind", ["threads", "event loop"])
def test_hanging_retries_take_no_more_than_their_slots(broker: Broker, tenant: str, tmp_path: Path, kind: str) -> None:
    setting, bank = Setting(broker, tenant, tmp_path), Bank()
    setting.declare(SETTINGS)

    with setting.producer() as producer, setting.worker(bank.handler(kind)) as consumer:
        try:
            for number in range(SLOW):
                producer.post(b"x", properties={"uid": f"slow{number}"})
            producer.flush()
            eventually(lambda: bank.hanging == MOST, within=30)
            for _ in range(READY):
                producer.post(b"%f" % time.time(), properties={"uid": "quick"})
                time.sleep(0.01)
            producer.flush()
            eventually(lambda: len(bank.waits) == READY, within=30)
            assert bank.most == MOST
            assert sorted(bank.waits)[READY // 2] < 0.5
        finally:
            bank.over.set()
        eventually(lambda: bank.recovered == SLOW, within=30)
        assert bank.most == MOST
        assert consumer._running is not None
        assert consumer._running.worker.engine.check_invariants() == []
