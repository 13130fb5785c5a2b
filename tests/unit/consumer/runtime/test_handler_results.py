"""What handlers and hooks return: work that nobody awaits is not done, a returned exception counts, other values are told of."""

from __future__ import annotations

import asyncio
import functools
import gc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead, Message
from kodo_consumer.testing import Harness

from tests.unit.consumer.topologies import write

SMALL = "  J: {subscriptions: {s: {in_place: [], retrying: {attempts: 3}}}}\n"
both = pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer.load(write(tmp_path, SMALL), topic="J", subscription="s", environ={})


@pytest.fixture(autouse=True)
def _quiet(few_objects: None) -> Iterator[None]:
    """Python itself has nothing to complain of: no coroutine is left that nobody awaited."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught if "never awaited" in str(warning.message)] == []


async def bill(_message: Any) -> None:
    raise AssertionError("nobody awaits it")


def logged(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator that forgets that functions may be async."""

    @functools.wraps(function)
    def run(message: Any) -> Any:
        return function(message)

    return run


def logged_later(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An async one that does."""

    @functools.wraps(function)
    async def run(message: Any) -> Any:
        return function(message)

    return run


async def stream(_message: Any) -> Any:
    yield 1


def harness_of(consumer: Consumer, *payloads: bytes) -> Harness:
    harness = Harness(consumer)
    for payload in payloads or (b"x",):
        harness.send(payload)
    harness.run()
    return harness


def failed(harness: Harness, reason: str) -> None:
    """The message is kept, and tried again as after any failure."""
    assert harness.counts.done == 0
    assert harness.counts.failed[reason] == 1
    assert [waiting.properties["kodo-reason"] for waiting in harness.waiting("L1", "retrying")] == [reason]


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (logged(bill), "coroutine"),
        (logged_later(bill), "coroutine"),
        (functools.partial(logged(bill)), "coroutine"),
        (lambda message: (one for one in [message]), "generator"),
        (logged(stream), "async_generator"),
        (lambda message: asyncio.Future(loop=asyncio.new_event_loop()), "Future"),
    ],
    ids=["decorated", "decorated by an async one", "partial", "generator", "async generator", "future"],
)
def test_work_that_nobody_awaits_fails_and_says_what_to_do(
    consumer: Consumer, handler: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.handler(handler)
    failed(harness_of(consumer), "NotAwaitedError")
    assert f"returned a {kind} that nobody awaits, so its work is not done: declare it async" in caplog.text


@both
def test_work_given_to_an_executor_is_not_done_while_nobody_waits_for_it(
    consumer: Consumer, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its failure would be told to nobody."""
    with ThreadPoolExecutor(1) as pool:

        def handle(message: Message) -> Any:
            return pool.submit(int, message.data)

        async def handle_later(message: Message) -> Any:
            return handle(message)

        consumer.handler(handle_later if later else handle)
        failed(harness_of(consumer), "NotAwaitedError")
    assert "returned a Future that nobody awaits, so its work is not done: wait there for its result()" in caplog.text


@pytest.mark.parametrize(
    "handler",
    [
        logged(bill),
        lambda messages: [bill(message) for message in messages],
        lambda messages: {message: bill(message) for message in messages},
    ],
    ids=["coroutine", "list of coroutines", "mapping of coroutines"],
)
def test_a_batch_whose_work_nobody_awaits_fails_as_a_whole(
    consumer: Consumer, handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.batch_handler(handler)
    harness = harness_of(consumer, b"1", b"2")
    assert harness.counts.done == 0
    assert harness.counts.failed["NotAwaitedError"] == 2
    assert "declare it async" in caplog.text


def test_a_plain_hook_around_an_async_one_is_not_done(consumer: Consumer) -> None:
    consumer.handler(lambda message: None)

    async def around(message: Message, handle: Any) -> None:
        handle(message)

    @functools.wraps(around)
    def plain(message: Message, handle: Any) -> Any:
        return around(message, handle)

    consumer.middleware(plain)
    failed(harness_of(consumer), "NotAwaitedError")


def test_a_hook_sees_that_the_handlers_work_was_not_awaited(consumer: Consumer) -> None:
    """A hook that commits when the handler has returned must not commit then."""
    committed, raised = [], []
    consumer.handler(logged(bill))

    @consumer.middleware
    def commit(message: Message, handle: Any) -> None:
        handle(message)
        committed.append(message)

    @consumer.middleware("decide")
    def look(message: Message, problem: BaseException | None) -> None:
        raised.append(type(problem).__name__)

    failed(harness_of(consumer), "NotAwaitedError")
    assert committed == []
    assert raised == ["NotAwaitedError"]


@pytest.mark.parametrize("hook_is_async", [False, True], ids=["plain hook", "async hook"])
def test_a_hook_that_does_not_await_the_handler_is_told_how_to(
    consumer: Consumer, hook_is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.handler(bill)

    def around(message: Message, handle: Any) -> None:
        handle(message)

    async def around_later(message: Message, handle: Any) -> None:
        handle(message)

    consumer.middleware(around_later if hook_is_async else around)
    failed(harness_of(consumer), "NotHandledError")
    assert "did not await the handler: declare it async, and write await handle(message)" in caplog.text


@both
def test_hooks_elsewhere_whose_work_nobody_awaits_are_told_of_and_lose_nothing(
    consumer: Consumer, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle_later(message: Message) -> None:
        await asyncio.sleep(0)

    consumer.handler(handle_later if later else lambda message: None)
    consumer.middleware("receive")(logged(bill))
    consumer.middleware("decide")(lambda message, raised: (logged_later if later else logged)(bill)(message))
    assert harness_of(consumer).counts.done == 1
    assert caplog.text.count("that nobody awaits") == 2


@both
def test_a_returned_exception_is_as_if_it_were_raised(consumer: Consumer, later: bool) -> None:
    """`return Dead(…)` where `raise` was meant: the message must not count as done."""

    def handle(message: Message) -> Any:
        return Dead("negative amount")

    async def handle_later(message: Message) -> Any:
        return Dead("negative amount")

    consumer.handler(handle_later if later else handle)
    harness = harness_of(consumer)
    assert harness.counts.done == 0
    assert [letter.properties["kodo-reason"] for letter in harness.dead_letters] == ["negative amount"]


@both
@pytest.mark.parametrize(("value", "told"), [(False, 1), ({"status": "failed"}, 1), (True, 1), (None, 0)])
def test_any_other_value_is_ignored_and_told_of_once(
    consumer: Consumer, later: bool, value: Any, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> Any:
        return value

    async def handle_later(message: Message) -> Any:
        return value

    consumer.handler(handle_later if later else handle)
    assert harness_of(consumer, b"1", b"2", b"3").counts.done == 3
    assert caplog.text.count("which is ignored") == told
    if told:
        assert f"returned a value ({type(value).__name__}), which is ignored: the message counts as done" in caplog.text


def test_a_clean_up_that_fails_does_not_hide_the_reason(consumer: Consumer) -> None:
    def begun() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise OSError("clean-up")

    def handle(message: Message) -> Any:
        generator = begun()
        next(generator)
        return generator

    consumer.handler(handle)
    failed(harness_of(consumer), "NotAwaitedError")
