"""Context variables that a handler sets, such as a tenant for its log or a request's id, end with its message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from decimal import getcontext
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.core.values.exceptions import Retry
from kodo_consumer.core.values.handler_executor import HandlerExecutor
from kodo_consumer.core.values.outcomes import DONE, DeadLettered, Failed
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.batch_executor import Batching, BatchRunner, on_batches, on_batches_later
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.testing import Harness

from tests.services.polling import eventually
from tests.unit.consumer.runtime.process_pool.test_processes import pool
from tests.unit.consumer.runtime.test_thread_executor import TestDesk
from tests.unit.consumer.topologies import DOUBLE, write

TENANT: ContextVar[str | None] = ContextVar("TENANT", default=None)
Handle = Callable[[Any], None]
_ONE = Batching(1, 0.0)


def _later(handle: Handle, *, waits: bool = True) -> Callable[[Any], Any]:
    async def run(unit: Any) -> None:
        if waits:
            await asyncio.sleep(0)
        handle(unit)

    return run


_failed = ExceptionReporter().outcome


def _batch_threads(handle: Handle, slots: int) -> HandlerExecutor:
    run: Any = on_batches(handle, _failed)
    return BatchRunner(ThreadExecutor(run, slots), _ONE)


def _batch_loop(handle: Handle, slots: int) -> HandlerExecutor:
    run: Any = on_batches_later(_later(handle), _failed)
    return BatchRunner(AsyncExecutor(run, slots), _ONE)


EXECUTORS: dict[str, Callable[[Handle, int], HandlerExecutor]] = {
    "threads": ThreadExecutor,
    "loop": lambda handle, slots: AsyncExecutor(_later(handle), slots),
    "loop, at once": lambda handle, slots: AsyncExecutor(_later(handle, waits=False), slots),
    "batches": _batch_threads,
    "batches on the loop": _batch_loop,
}
Executors = pytest.mark.parametrize("make", EXECUTORS.values(), ids=EXECUTORS)


def _run(make: Callable[[Handle, int], HandlerExecutor], handle: Handle, slots: int, count: int) -> TestDesk:
    desk, runner = TestDesk(), make(handle, slots)
    runner.start(desk)
    desk.put(count)
    runner.wake()
    eventually(lambda: len(desk.ended) == count)
    runner.stop()
    assert desk.problems == []
    return desk


@Executors
@pytest.mark.parametrize("slots", [1, 4])
def test_no_message_sees_what_another_left_behind(make: Any, slots: int) -> None:
    """The log, or the row, of one tenant had the name of another."""
    seen: list[Any] = []

    def handle(unit: Any) -> None:
        seen.append((TENANT.get(), getcontext().prec))
        TENANT.set("anna")
        getcontext().prec = 5

    desk = _run(make, handle, slots, 20)
    assert seen == [(None, 28)] * 20
    assert [outcome for _, outcome in desk.ended] == [DONE] * 20


@Executors
def test_a_handler_that_fails_leaves_nothing_either(make: Any) -> None:
    seen: list[Any] = []

    def handle(unit: Any) -> None:
        seen.append(TENANT.get())
        TENANT.set("anna")
        raise KeyError if len(seen) % 2 else Retry("5s")

    desk = _run(make, handle, 1, 4)
    assert seen == [None] * 4
    assert [type(outcome).__name__ for _, outcome in desk.ended] == ["Failed", "RetryAsked"] * 2
    assert desk.ended[0][1] == Failed("KeyError")


@Executors
def test_what_wakes_a_worker_lends_it_no_context(make: Any) -> None:
    """A worker in a web application: whose request rang is not whose message it is."""
    seen: list[Any] = []
    gate = threading.Event()

    def handle(unit: Any) -> None:
        gate.wait()
        seen.append(TENANT.get())

    desk, runner = TestDesk(), make(handle, 2)
    TENANT.set("web")
    try:
        runner.start(desk)
        desk.put(4)
        runner.wake()
        gate.set()
        eventually(lambda: len(desk.ended) == 4)
        runner.stop()
    finally:
        TENANT.set(None)
    assert seen == [None] * 4


def test_a_process_keeps_nothing_for_its_next_message() -> None:
    with pool(1, function="handle") as (runner, desk):
        desk.give("context", "context", "context")
        runner.wake()
        eventually(lambda: len(desk.ended) == 3)
        assert set(desk.outcomes().values()) == {DeadLettered("None")}


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_harness_is_as_a_worker(tmp_path: Path, is_async: bool) -> None:
    consumer, seen = Consumer.load(write(tmp_path, DOUBLE), topic="orders", subscription="billing"), list[Any]()

    def bill(message: Message) -> None:
        seen.append(TENANT.get())
        TENANT.set("anna")

    async def bill_later(message: Message) -> None:
        bill(message)

    consumer.handler(bill_later if is_async else bill)
    harness = Harness(consumer)
    for _ in range(3):
        harness.send({}, properties={"uid": "u"})
    harness.run()
    assert seen == [None] * 3
    assert TENANT.get() is None


@pytest.mark.parametrize("swallows", [False, True], ids=["pending", "swallowed"])
def test_a_cancellation_that_a_handler_leaves_behind_hits_no_other_message(swallows: bool) -> None:
    """A time-out of a library that comes too late cancelled the handler of the next message."""
    runs: list[str] = []

    async def handle(message: Message) -> None:
        me = asyncio.current_task()
        assert me is not None
        runs.append(f"{message.id} {me.cancelling()}")
        if len(runs) == 1:
            me.cancel()
            if swallows:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
        else:
            await asyncio.sleep(0)

    desk, runner = TestDesk(), AsyncExecutor(handle, 1)
    runner.start(desk)
    desk.put(3)
    runner.wake()
    eventually(lambda: len(desk.ended) == 3)
    runner.stop()
    assert [outcome for _, outcome in desk.ended] == [DONE] * 3
    assert runs == ["7:0:0:-1 0", "7:1:0:-1 0", "7:2:0:-1 0"]


def test_what_is_reset_costs_no_slot() -> None:
    """Spans attach and detach a context around each handler."""
    tasks = set[Any]()

    async def handle(message: Message) -> None:
        tasks.add(asyncio.current_task())
        token = TENANT.set("anna")
        await asyncio.sleep(0)
        TENANT.reset(token)

    desk, runner = TestDesk(), AsyncExecutor(handle, 1)
    runner.start(desk)
    desk.put(10)
    runner.wake()
    eventually(lambda: len(desk.ended) == 10)
    runner.stop()
    assert len(tasks) == 1
