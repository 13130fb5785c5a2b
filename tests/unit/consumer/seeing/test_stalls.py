"""Handlers that keep the interpreter: which delays are told, of which loop, and which are the machine's fault."""

from __future__ import annotations

import asyncio
import threading
import time
from random import Random

import pytest

from consumer.clock import SystemClock
from consumer.engine.service import Service
from consumer.engine.worker import Worker
from consumer.handling.runners import LoopRunner
from consumer.message import Message
from consumer.seeing.sight import Sight
from consumer.seeing.stalls import Stalls
from consumer.testing import MemoryBroker
from tests.support import eventually
from tests.unit.consumer.making import policy


def test_one_late_turn_is_counted_and_three_in_a_row_are_told() -> None:
    stalls = Stalls("threads")
    assert stalls.add(0.04, 1.0, 1.0) is None
    assert stalls.count == 0
    assert stalls.add(0.2, 1.1, 1.0) is None
    assert stalls.add(0.1, 1.2, 1.0) is None
    alarm = stalls.add(0.1, 1.3, 1.0)
    assert alarm is not None
    assert alarm.kind == "stall"
    assert "200 ms" in alarm.text
    assert "process=True" in alarm.text
    assert stalls.count == 3
    assert stalls.worst(2.0) == 0.2
    assert stalls.worst(62.0) == 0.0


def test_late_turns_far_apart_or_of_a_busy_machine_are_no_news() -> None:
    stalls = Stalls("handlers")
    assert [stalls.add(0.1, now * 10.0, 1.0) for now in range(5)] == [None] * 5
    assert [stalls.add(0.1, 100 + now / 10, 0.05) for now in range(5)] == [None] * 5
    assert stalls.count == 10


def test_async_handlers_that_never_await_are_told_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()

    async def busy(_message: Message) -> None:
        """Never called: the loop is held up by hand."""

    runner = LoopRunner(busy, 1)
    worker = Worker(policy(), MemoryBroker(SystemClock()), runner, SystemClock(), Random(0))
    service = Service(worker, None, consumer_name="w", drain_timeout=1.0)
    sight = Sight(worker, service, runner.loop, measured=False)
    runner.start(worker)
    pulse = threading.Thread(target=sight.pulse.run, args=(over,))
    pulse.start()

    def hold_up() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until and not over.is_set():
            pass
        if not over.is_set():
            asyncio.get_running_loop().call_later(0.01, hold_up)

    runner.loop.call_soon_threadsafe(hold_up)
    eventually(lambda: worker.alarms["stall"])
    over.set()
    pulse.join()
    runner.stop()
    assert sight.pulse.handlers.count >= 3
    assert "hold up their event loop" in caplog.text
    assert "process=True" in caplog.text
