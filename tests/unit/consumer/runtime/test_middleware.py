"""Middleware: hooks around receive, handle and decide, and that their failures lose nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead, Discard, Message
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.testing import Harness

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.protocol.sequence_numbers import NOBODY
from tests.unit.consumer.topologies import write

SMALL = "  J: {subscriptions: {s: {in_place: [], retrying: {attempts: 3}}}}\n"
both = pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer.load(write(tmp_path, SMALL), topic="J", subscription="s", environ={})


def handled(consumer: Consumer, seen: list[Any], *, later: bool, fails: bool = False) -> None:
    def handle(message: Message) -> None:
        seen.append("handler")
        if fails:
            raise ValueError

    async def handle_later(message: Message) -> None:
        await asyncio.sleep(0)
        handle(message)

    consumer.handler(handle_later if later else handle)


@both
def test_hooks_are_called_around_the_handler_the_first_one_outside(consumer: Consumer, later: bool) -> None:
    seen: list[Any] = []
    handled(consumer, seen, later=later)

    for name in ("outer", "inner"):
        if later:

            async def around(message: Message, handle: Any, name: str = name) -> None:
                seen.append(f"{name} in")
                await handle(message)
                seen.append(f"{name} out")

            consumer.middleware(around)
        else:

            def around_plain(message: Message, handle: Any, name: str = name) -> None:
                seen.append(f"{name} in")
                handle(message)
                seen.append(f"{name} out")

            consumer.middleware("handle")(around_plain)

    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert seen == ["outer in", "inner in", "handler", "inner out", "outer out"]
    assert harness.counts.done == 1


@both
def test_a_hook_that_does_not_call_the_handler_makes_the_message_fail_unless_it_says_what_it_wants(
    consumer: Consumer, later: bool
) -> None:
    seen: list[Any] = []
    handled(consumer, seen, later=later)

    def forgets(message: Message, handle: Any) -> None:
        if message.text() == "old":
            raise Discard("old")

    async def forgets_later(message: Message, handle: Any) -> None:
        forgets(message, handle)

    consumer.middleware(forgets_later if later else forgets)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.send(b"old")
    harness.run()
    assert seen == []
    assert harness.counts.finished["discarded"] == 1
    assert harness.counts.failed["NotHandledError"] == 1
    assert len(harness.waiting("L1", "retrying")) == 1


@both
def test_a_hook_sees_what_was_raised_and_may_say_otherwise(consumer: Consumer, later: bool) -> None:
    seen: list[Any] = []
    handled(consumer, [], later=later, fails=True)

    @consumer.middleware("decide")
    def look(message: Message, raised: BaseException | None) -> None:
        seen.append(type(raised))

    if later:

        @consumer.middleware("decide")
        async def kill_later(message: Message, raised: BaseException | None) -> BaseException:
            await asyncio.sleep(0)
            return Dead("never again")
    else:

        @consumer.middleware("decide")
        def kill(message: Message, raised: BaseException | None) -> BaseException:
            return Dead("never again")

    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert seen == [ValueError]
    assert harness.dead_letters[0].properties["kodo-reason"] == "never again"


@both
def test_a_hook_that_fails_loses_nothing(consumer: Consumer, later: bool, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    handled(consumer, seen, later=later)

    def fail(*_: Any) -> None:
        raise RuntimeError("hook")

    consumer.middleware("receive")(fail)
    consumer.middleware("decide")(fail)
    harness = Harness(consumer)
    for _ in range(3):
        harness.send(b"x")
    harness.run()
    assert harness.counts.done == 3
    assert "fail failed; the message goes its way" in caplog.text

    @dataclass
    class Audit:
        """A hook that has no hash, as data classes have none."""

        url: str

        def __call__(self, *_: Any) -> None:
            raise RuntimeError(self.url)

    consumer.middleware("receive")(Audit("first"))
    consumer.middleware("receive")(Audit("first"))
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert harness.counts.done == 1
    assert caplog.text.count("middleware Audit failed") == 2

    def around(message: Message, handle: Any) -> Any:
        raise RuntimeError("hook")

    consumer.middleware(around)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert len(harness.waiting("L1", "retrying")) == 1, "around the handler its failure is the handler's"


def test_every_message_is_shown_as_it_comes_also_one_that_nobody_handles(consumer: Consumer) -> None:
    handled(consumer, [], later=False)
    seen: list[tuple[str, dict[str, str], int]] = []

    @consumer.middleware("receive")
    def look(message: Message) -> None:
        seen.append((message.text(), dict(message.properties), message.attempt))

    harness = Harness(consumer)
    harness.inject(b"1", properties={"a": "b", "kodo-for": "other"})
    harness.inject(b"2", properties={"kodo-hop": "junk"})
    harness.inject(b"", properties={"kodo-for": NOBODY})
    harness.run()
    assert seen == [("1", {"a": "b"}, 1), ("2", {}, 1)]
    assert harness.counts.started == 1


def test_a_place_that_is_none_is_refused(consumer: Consumer) -> None:
    with pytest.raises(KodoctlError, match=r"K755.*receive, handle, decide"):
        consumer.middleware("publish")  # type: ignore[call-overload]


def test_async_hooks_that_nobody_would_wait_for_are_refused_together(consumer: Consumer) -> None:
    class Around:
        async def __call__(self, message: Message, handle: Any) -> None:
            await handle(message)

    @consumer.middleware("receive")
    async def look(message: Message) -> None:
        raise AssertionError(message)

    consumer.middleware("handle")(Around())
    handled(consumer, [], later=False)
    for begin in (consumer.start, lambda: Harness(consumer)):
        with pytest.raises(KodoctlError) as raised:
            begin()
        text = str(raised.value)
        assert text.count("K755") == 2
        assert "look around receive is async" in text
        assert "Around around handle is async, and the handler is a plain function" in text


def test_async_hooks_around_async_handlers_are_fine_but_not_around_receive(consumer: Consumer) -> None:
    @consumer.middleware("decide")
    async def judge(message: Message, raised: BaseException | None) -> None:
        await asyncio.sleep(0)

    handled(consumer, [], later=True)
    harness = Harness(consumer)
    harness.send(b"1")
    harness.run()
    assert harness.counts.done == 1


@both
def test_what_a_batch_handler_answers_passes_through_a_hook_that_answers_nothing(
    consumer: Consumer, later: bool
) -> None:
    answers: list[Any] = []

    def handle(messages: list[Message]) -> list[Exception | None]:
        return [None if message.text() == "good" else Dead("bad") for message in messages]

    async def handle_later(messages: list[Message]) -> list[Exception | None]:
        return handle(messages)

    def forgets(messages: list[Message], handle: Any) -> None:
        answers.append(handle(messages))

    async def forgets_later(messages: list[Message], handle: Any) -> None:
        answers.append(await handle(messages))

    consumer.batch_handler(handle_later if later else handle)
    consumer.middleware(forgets_later if later else forgets)
    harness = Harness(consumer)
    harness.send(b"good")
    harness.send(b"bad")
    harness.run()
    assert {type(answer) for found in answers for answer in found} == {type(None), Dead}
    assert harness.counts.done == 1
    assert [letter.properties["kodo-reason"] for letter in harness.dead_letters] == ["bad"]


def test_a_coroutine_that_a_hook_forgets_to_await_is_not_done(consumer: Consumer) -> None:
    seen: list[Any] = []
    handled(consumer, seen, later=True)

    async def forgets(message: Message, handle: Any) -> None:
        handle(message).close()

    consumer.middleware(forgets)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert seen == []
    assert harness.counts.failed["NotHandledError"] == 1


def test_a_handler_that_goes_on_in_a_task_of_a_hook_is_not_done(consumer: Consumer) -> None:
    @consumer.handler
    async def handle(message: Message) -> None:
        await asyncio.sleep(0.05)

    tasks = []

    async def begins(message: Message, handle: Any) -> None:
        tasks.append(asyncio.ensure_future(handle(message)))
        await asyncio.sleep(0)

    consumer.middleware(begins)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert harness.counts.failed["NotHandledError"] == 1


def test_hooks_that_cannot_be_called_are_refused_before_the_start() -> None:
    hooks = Hooks()
    hooks.add("handle", lambda message: None)
    hooks.add("decide", lambda: None)
    hooks.add("receive", lambda *_: None)
    hooks.add("redact", min)  # without a signature
    with pytest.raises(UsageError) as raised:
        hooks.check(is_async=False)
    first, second = (one.detail for one in raised.value.diagnostics)
    assert first.endswith("around handle is called with the message and the handler: too many positional arguments")
    assert second.endswith("around decide is called with the message and the exception: too many positional arguments")
