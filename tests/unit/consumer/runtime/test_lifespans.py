"""Lifespans: resources that are made before the first message and closed after the last, however handlers run."""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from kodo_consumer import Consumer, Depends, Message
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.runtime.log_output import LogFormat, LogLevel, set_up_logging
from kodo_consumer.runtime.settings import Settings
from kodo_consumer.testing import Harness, MemoryBroker

from kodoctl.errors import KodoctlError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer import living_handlers
from tests.unit.consumer.runtime.test_log_output import process_without_logging
from tests.unit.consumer.runtime.worker_place import MemoryCluster
from tests.unit.consumer.topologies import write

TOPICS = "  J: {subscriptions: {s: {}}}\n"


def _consumer(folder: Path) -> tuple[Consumer, MemoryBroker]:
    policy = Consumer.load(write(folder, TOPICS), environ={}).policy
    broker = MemoryBroker(SystemClock())
    broker.create_for(policy)
    return Consumer(policy, lambda: (broker, MemoryCluster(policy))), broker


def _send(consumer: Consumer, broker: MemoryBroker) -> None:
    broker.send(Outgoing(consumer.policy.lanes[0].topic, b"x", {}))
    broker.step()


def test_a_plain_handler_gets_the_value_while_the_worker_lives(tmp_path: Path) -> None:
    consumer, broker = _consumer(tmp_path)
    log: list[object] = []

    @consumer.lifespan
    def outer() -> Iterator[str]:
        log.append("outer")
        yield "outer"
        log.append("left outer")

    @consumer.lifespan
    @contextmanager
    def inner() -> Iterator[str]:
        log.append("inner")
        yield "inner"
        log.append("left inner")

    @consumer.handler
    def handle(message: Message, value: Annotated[str, Depends(inner)]) -> None:
        log.append(value)

    consumer.start()
    assert log == ["outer", "inner"]
    _send(consumer, broker)
    eventually(lambda: consumer.counts.done == 1)
    consumer.stop()
    assert log == ["outer", "inner", "inner", "left inner", "left outer"]


def test_an_async_lifespan_shares_loop_and_task_from_begin_to_end(tmp_path: Path) -> None:
    consumer, broker = _consumer(tmp_path)
    log: list[object] = []

    @consumer.lifespan
    async def pool() -> AsyncIterator[asyncio.AbstractEventLoop]:
        async with asyncio.TaskGroup() as group:  # which refuses to be left by another task
            keeper = group.create_task(asyncio.sleep(60))
            yield asyncio.get_running_loop()
            log.append(("left", keeper.cancelled()))
            keeper.cancel()

    @consumer.lifespan
    def plain() -> Iterator[int]:
        yield 3

    @consumer.handler
    async def handle(
        message: Message,
        loop: Annotated[asyncio.AbstractEventLoop, Depends(pool)],
        three: Annotated[int, Depends(plain)],
    ) -> None:
        log.append((loop is asyncio.get_running_loop(), three))

    consumer.start()
    _send(consumer, broker)
    eventually(lambda: consumer.counts.done == 1)
    consumer.stop()
    assert log == [(True, 3), ("left", False)], "its tasks are not cancelled before it is left"


def _fails(message: str, *, is_async: bool) -> Callable[[], Any]:
    def plain() -> Iterator[None]:
        raise OSError(message)
        yield

    async def later() -> AsyncIterator[None]:
        raise OSError(message)
        yield

    return later if is_async else plain


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lifespan_that_fails_keeps_the_consumer_from_starting(is_async: bool, tmp_path: Path) -> None:
    consumer, _ = _consumer(tmp_path)
    left: list[str] = []

    @consumer.lifespan
    def first() -> Iterator[None]:
        try:
            yield
        finally:
            left.append("first")

    consumer.lifespan(_fails("no database", is_async=is_async))

    async def later(message: Message) -> None: ...

    consumer.handler(later if is_async else lambda message: None)
    with pytest.raises(KodoctlError, match=r"K770.*: OSError in .*test_lifespans.py:\d+: no database"):
        consumer.start()
    assert left == ["first"]
    assert not [thread for thread in threading.enumerate() if thread.name == "kodo-handlers"]


@pytest.mark.parametrize("is_async", [False, True])
def test_lifespans_are_left_if_the_store_cannot_be_opened(is_async: bool, tmp_path: Path) -> None:
    policy = _consumer(tmp_path)[0].policy
    (tmp_path / "file").touch()
    settings = Settings(crash_marks=tmp_path / "file" / "marks")
    consumer = Consumer(policy, lambda: (MemoryBroker(SystemClock()), MemoryCluster(policy)), settings=settings)
    left: list[str] = []

    @consumer.lifespan
    def pool() -> Iterator[None]:
        yield
        left.append("pool")

    async def later(message: Message) -> None: ...

    consumer.handler(later if is_async else lambda message: None)
    with pytest.raises(KodoctlError, match="K740"):
        consumer.start()
    assert left == ["pool"]
    assert not [thread for thread in threading.enumerate() if thread.name == "kodo-handlers"]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_at_the_end_is_logged_and_the_worker_ends(
    is_async: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, _ = _consumer(tmp_path)

    @consumer.lifespan
    def lease() -> Iterator[None]:
        yield
        raise OSError("gone")

    async def later(message: Message) -> None: ...

    consumer.handler(later if is_async else lambda message: None)
    consumer.start()
    with caplog.at_level(logging.ERROR, "kodo.consumer"):
        consumer.stop()
    assert [text for text in caplog.messages if text.startswith("a lifespan failed at its end: OSError")]


def test_what_is_no_lifespan_is_refused(tmp_path: Path) -> None:
    consumer, _ = _consumer(tmp_path)
    with pytest.raises(UsageError, match=r"K769.*is no generator"):
        consumer.lifespan(lambda: 3)
    with pytest.raises(UsageError, match=r"K769.*is called without arguments"):

        @consumer.lifespan  # type: ignore[type-var]
        def needy(value: int) -> Iterator[int]:
            yield value

    @consumer.lifespan
    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        yield

    consumer.handler(lambda message: None)
    with pytest.raises(UsageError, match=r"K769.*pool is async, and the handler is a plain function"):
        consumer.start()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_harness_enters_and_leaves_lifespans(is_async: bool, tmp_path: Path) -> None:
    consumer = Consumer.load(write(tmp_path, TOPICS), environ={})
    log: list[object] = []

    if is_async:

        @consumer.lifespan
        async def pool() -> AsyncIterator[asyncio.AbstractEventLoop]:
            yield asyncio.get_running_loop()
            log.append("left")

        @consumer.handler
        async def handle(message: Message, loop: Annotated[asyncio.AbstractEventLoop, Depends(pool)]) -> None:
            log.append(loop is asyncio.get_running_loop())
    else:

        @consumer.lifespan
        def plain() -> Iterator[bool]:
            yield True
            log.append("left")

        @consumer.handler
        def handle_plain(message: Message, value: Annotated[bool, Depends(plain)]) -> None:
            log.append(value)

    harness = Harness(consumer)
    harness.send(b"x")
    harness.send(b"y")
    harness.run()
    harness.close()
    assert log == [True, True, "left"]
    assert harness.counts.done == 2


def test_two_harnesses_of_a_consumer_have_values_of_their_own(tmp_path: Path) -> None:
    """The end of one took the value away from the other, which had been using it."""
    consumer, _ = _consumer(tmp_path)
    made: list[list[str]] = []

    @consumer.lifespan
    def pool() -> Iterator[list[str]]:
        made.append([])
        yield made[-1]

    @consumer.handler
    def handle(message: Message, value: Annotated[list[str], Depends(pool)]) -> None:
        value.append(message.data.decode())

    first, second = Harness(consumer), Harness(consumer)
    for harness, payload in ((first, b"a"), (second, b"b"), (first, b"c")):
        harness.send(payload)
        harness.run()
    second.close()
    first.send(b"d")
    first.run()
    first.close()
    assert made == [["a", "c", "d"], ["b"]]
    assert (first.counts.done, second.counts.done) == (3, 1)
    assert consumer.lifespans.values == {pool: None}


def test_a_handler_in_a_process_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, lines = living_handlers.consumer, tmp_path / "lines"
    monkeypatch.setenv(living_handlers.LINES, str(lines))
    broker = MemoryBroker(SystemClock())
    broker.create_for(consumer.policy)
    living_handlers.connections[:] = [(broker, MemoryCluster(consumer.policy))]
    consumer.start()
    _send(consumer, broker)
    eventually(lambda: consumer.counts.done == 1, within=30)
    consumer.stop()
    words, processes = zip(*(line.split() for line in lines.read_text("utf-8").splitlines()), strict=True)
    assert words == ("made", "used", "left")
    assert len(set(processes)) == 1
    assert str(os.getpid()) not in processes


@pytest.mark.parametrize("form", LogFormat)
def test_an_error_in_a_process_is_logged_in_the_format_of_the_worker(
    form: LogFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A collector of JSON could not read what a process wrote by itself."""
    consumer, message = living_handlers.consumer, "a lifespan failed at its end: OSError"
    monkeypatch.setenv(living_handlers.LINES, str(tmp_path / "lines"))
    monkeypatch.setenv(living_handlers.FAILS, "1")
    broker = MemoryBroker(SystemClock())
    broker.create_for(consumer.policy)
    living_handlers.connections[:] = [(broker, MemoryCluster(consumer.policy))]
    with process_without_logging(monkeypatch):
        set_up_logging(LogLevel.INFO, form, worker=3)
        consumer.start()
        consumer.stop()
    lines = capfd.readouterr().err.splitlines()
    if form is LogFormat.JSON:
        (entry,) = (json.loads(line) for line in lines)
        assert (entry["level"], entry["message"], entry["worker"]) == ("ERROR", message, 3)
        assert "OSError: cannot close\nfor a reason" in entry["traceback"]
    else:
        assert lines[0].endswith(f" worker 3 ERROR kodo.consumer {message}")
        assert lines[-1] == "OSError: cannot close\\x0afor a reason"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("end", ["exit", "swallowed", "hidden"])
def test_a_lifespan_that_never_comes_up_is_told_whatever_ends_it(end: str, is_async: bool, tmp_path: Path) -> None:
    """An async one hung the start for ever: nobody resolved what it waited for."""
    consumer, _ = _consumer(tmp_path)

    if end != "exit":

        @consumer.lifespan
        def first() -> Iterator[None]:
            try:
                yield
            except KodoctlError:
                if end == "hidden":
                    raise RuntimeError("another one") from None

    async def leaves_later() -> AsyncIterator[None]:
        sys.exit("DATABASE_URL is missing")
        yield

    def leaves() -> Iterator[None]:
        sys.exit("DATABASE_URL is missing")
        yield

    consumer.lifespan(leaves_later if is_async else leaves)

    async def later(message: Message) -> None: ...

    consumer.handler(later if is_async else lambda message: None)
    with pytest.raises(KodoctlError, match=r"K770.*SystemExit in .*: DATABASE_URL is missing"):
        consumer.start()


def test_a_lifespan_that_ends_while_the_worker_runs_fails_the_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, _ = _consumer(tmp_path)

    async def fail() -> None:
        await asyncio.sleep(0.1)
        raise OSError("gone")

    @consumer.lifespan
    async def pool() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield

    @consumer.handler
    async def handle(message: Message) -> None: ...

    consumer.start()
    assert consumer.wait(10), "handlers would go on with what is closed"
    with pytest.raises(KodoctlError, match=r"K770.*one ended while the worker ran"):
        consumer.stop()
    assert "a lifespan ended while the worker ran" in caplog.text


def test_a_plain_lifespan_that_hangs_at_its_end_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.lifespans.LEAVING", 0.2)
    consumer, _ = _consumer(tmp_path)
    gate = threading.Event()

    @consumer.lifespan
    def slow() -> Iterator[None]:
        yield
        gate.wait(10)

    consumer.handler(lambda message: None)
    consumer.start()
    consumer.stop()
    gate.set()
    assert "a lifespan takes longer than 0 s at its end: it is left alone" in caplog.text
    assert consumer.lifespans.values == {slow: None}


def test_a_lifespan_of_another_module_is_missing_in_the_process_of_a_handler() -> None:
    lifespans = living_handlers.consumer.lifespans
    lifespans.check_names(lifespans.names)
    with pytest.raises(UsageError, match=r"K769.*main.pool: declare it in the module of the handler"):
        lifespans.check_names(["main.pool"])
