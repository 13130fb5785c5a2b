"""Batch handlers: how messages are gathered, one outcome for each, time-outs, and what a wrong answer costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kodo_consumer import Dead, Repeat, Retry
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.exceptions import HandlerSignal, InvalidPayloadError
from kodo_consumer.core.values.handler_executor import HandlerExecutor
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.outcomes import DONE, DeadLettered, Failed, Outcome, Repeated, RetryAsked
from kodo_consumer.message import Message
from kodo_consumer.runtime.batch_executor import Batching, Gatherer
from kodo_consumer.runtime.handler_spec import HandlerSpec
from kodo_consumer.runtime.middleware import Hooks

from kodoctl.errors import KodoctlError
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.runtime.test_thread_executor import TestDesk

Sync = Callable[[list[Message]], Any]


def _later(function: Sync) -> Callable[[list[Message]], Any]:
    async def handle(messages: list[Message]) -> Any:
        await asyncio.sleep(0)
        return function(messages)

    return handle


both = pytest.mark.parametrize("kind", ["threads", "loop"])


def started(
    kind: str, function: Sync, most: int = 10, wait: float = 0.01, count: int = 0, slots: int = 2
) -> tuple[HandlerExecutor, TestDesk, list[Message]]:
    """A runner at work on `count` messages that were there before it began."""
    handling = HandlerSpec(function if kind == "threads" else _later(function), batching=Batching(most, wait)).check()
    desk, runner = TestDesk(), handling.runner(policy(concurrency=slots), None, Hooks())
    messages = desk.put(count)
    runner.start(desk)
    runner.wake()
    return runner, desk, messages


@both
def test_batches_are_full_while_there_is_enough_and_the_rest_comes_when_it_waited_long_enough(kind: str) -> None:
    sizes: list[int] = []
    runner, desk, _ = started(kind, lambda messages: sizes.append(len(messages)), count=35)
    eventually(lambda: len(desk.ended) == 35)
    runner.stop()
    assert sorted(sizes) == [5, 10, 10, 10]
    assert {outcome for _, outcome in desk.ended} == {DONE}
    assert len({name for name, _ in desk.ended}) == 35


@both
def test_a_batch_waits_for_more_before_it_begins(kind: str) -> None:
    sizes: list[int] = []
    runner, desk, _ = started(kind, lambda messages: sizes.append(len(messages)), most=3, wait=60.0, count=2)
    eventually(lambda: desk.out == 2)
    desk.put(1)
    runner.wake()
    eventually(lambda: len(desk.ended) == 3)
    runner.stop()
    assert sizes == [3]


@both
def test_without_a_wait_a_batch_is_what_is_there(kind: str) -> None:
    sizes: list[int] = []
    runner, desk, _ = started(kind, lambda messages: sizes.append(len(messages)), most=100, wait=0.0, count=7)
    eventually(lambda: len(desk.ended) == 7)
    runner.stop()
    assert sizes == [7]


class OwnVerdict(HandlerSignal):
    """Of a user who forgot the outcome."""


@both
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda batch: None, [DONE] * 3),
        (lambda batch: [None, Dead("bad"), ValueError("secret")], [DONE, DeadLettered("bad"), Failed("ValueError")]),
        (lambda batch: {batch[2]: Retry("30s")}, [DONE, DONE, RetryAsked(30_000, "asked to retry")]),
        (lambda batch: (True, None, OwnVerdict()), [DONE, DONE, Failed("NotImplementedError")]),
        (lambda batch: {}, [DONE] * 3),
    ],
    ids=["none", "list", "mapping", "own verdict", "empty mapping"],
)
def test_each_message_has_its_outcome(kind: str, answer: Sync, expected: list[Outcome]) -> None:
    runner, desk, messages = started(kind, answer, most=3, wait=60.0, count=3)
    eventually(lambda: len(desk.ended) == 3)
    runner.stop()
    assert [dict(desk.ended)[message.id] for message in messages] == expected


@both
@pytest.mark.parametrize(
    "answer",
    [
        lambda batch: [None],
        lambda batch: "abc",
        lambda batch: 7,
        lambda batch: [1, 2, 3],
        lambda batch: {"x": Dead("y")},
    ],
)
def test_an_answer_that_makes_no_sense_fails_all(kind: str, answer: Sync, caplog: pytest.LogCaptureFixture) -> None:
    runner, desk, _ = started(kind, answer, most=3, wait=60.0, count=3)
    eventually(lambda: len(desk.ended) == 3)
    runner.stop()
    assert {outcome for _, outcome in desk.ended} == {Failed("batch handler returned no outcomes")}
    assert "must return None" in caplog.text


@both
@pytest.mark.parametrize(
    ("problem", "outcome", "logged"),
    [
        (Dead("all of it"), DeadLettered("all of it"), ""),
        (KeyError("x"), Failed("KeyError"), "attempt 1, and 2 other messages of its batch)"),
    ],
)
def test_a_raise_fails_all(
    kind: str, problem: Exception, outcome: Outcome, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(messages: list[Message]) -> None:
        raise problem

    runner, desk, _ = started(kind, fail, most=3, wait=60.0, count=3)
    eventually(lambda: len(desk.ended) == 3)
    runner.stop()
    assert {outcome for _, outcome in desk.ended} == {outcome}
    assert logged in caplog.text
    assert ("handler failed with KeyError (" in caplog.text) is bool(logged)


@both
@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (Repeat(), Repeated()),
        (InvalidPayloadError("payload is not JSON"), DeadLettered("payload is not JSON")),
        (BaseExceptionGroup("tasks", [Repeat()]), Repeated()),
    ],
    ids=["repeat", "payload", "task group"],
)
def test_a_repeat_or_an_invalid_payload_ends_its_own_message_alone(
    kind: str, problem: BaseException, outcome: Outcome
) -> None:
    handled: list[str] = []

    def handle(messages: list[Message]) -> None:
        for message in messages:
            if message.id.split(":")[1] in "14":
                raise problem
        handled.extend(message.id for message in messages)

    runner, desk, messages = started(kind, handle, most=6, wait=60.0, count=6)
    eventually(lambda: len(desk.ended) == 6)
    runner.stop()
    ended = dict(desk.ended)
    assert [ended[one.id] for one in messages] == [DONE, outcome, DONE, DONE, outcome, DONE]
    assert handled == [messages[place].id for place in (0, 2, 3, 5)]


@both
def test_what_fails_beside_a_repeat_fails_its_part_of_the_batch_alone(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(messages: list[Message]) -> None:
        if len(messages) == 4:
            raise Repeat
        if messages[0].id.split(":")[1] == "2":
            raise KeyError("x")

    runner, desk, messages = started(kind, handle, most=4, wait=60.0, count=4)
    eventually(lambda: len(desk.ended) == 4)
    runner.stop()
    ended = dict(desk.ended)
    assert [ended[one.id] for one in messages] == [DONE, DONE, Failed("KeyError"), Failed("KeyError")]
    assert "and 1 other message of its batch)" in caplog.text


def test_a_batch_that_hangs_loses_its_slot_and_what_was_gathered_meanwhile_goes_on() -> None:
    gate, entered = threading.Event(), threading.Event()

    def hang(messages: list[Message]) -> None:
        if len(messages) == 3 and not entered.is_set():
            entered.set()
            gate.wait()

    runner, desk, messages = started("threads", hang, most=3, wait=0.01, count=3, slots=1)
    assert entered.wait(10)
    for message in messages:
        runner.time_out(message)
    desk.put(3)
    runner.wake()
    eventually(lambda: len(desk.ended) == 3)
    gate.set()
    runner.stop()


def test_a_message_given_up_before_its_batch_began_is_not_handled() -> None:
    seen: list[Message] = []
    runner, desk, messages = started("threads", seen.extend, most=3, wait=60.0, count=2)
    eventually(lambda: desk.out == 2)
    runner.time_out(messages[0])
    desk.put(2)
    runner.wake()
    eventually(lambda: len(desk.ended) == 3)
    runner.stop()
    assert messages[0] not in seen


@pytest.mark.parametrize(("most", "wait"), [(0, 0.0), (10_001, 0.0), (1, -1.0)])
def test_a_batch_that_cannot_be_is_refused(most: int, wait: float) -> None:
    with pytest.raises(KodoctlError, match="K754"):
        HandlerSpec(lambda messages: None, batching=Batching(most, wait)).check()


def test_a_batch_that_waits_as_long_as_handlers_may_run_is_refused() -> None:
    handling = HandlerSpec(lambda messages: None, batching=Batching(2, 16.0)).check()
    with pytest.raises(KodoctlError, match="K754"):
        handling.policy_for_worker(policy(), Hooks())
    slots = (Bulkhead(LaneSet((State.RETRYING,)), 3, 1),)
    found = HandlerSpec(print, batching=Batching(50, 1.0)).policy_for_worker(
        policy(concurrency=4, bulkheads=slots), Hooks()
    )
    assert found.concurrency == 200
    assert found.bulkheads == (Bulkhead(LaneSet((State.RETRYING,)), 150, 50),), "a message takes a slot"


def test_only_what_the_batch_under_way_has_room_for_is_taken() -> None:
    desk = TestDesk()
    gatherer = Gatherer(desk, Batching(5, 60.0), lambda: None)
    desk.put(2)
    assert gatherer.next(None, None) is None
    desk.put(9)
    batch = gatherer.next(None, None)
    assert batch is not None
    assert (len(batch.messages), len(desk.work)) == (5, 6)
