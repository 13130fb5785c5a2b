"""What a handler asks for in a task of its own arrives in a group, and what its database reports in an error of a layer between:
both count as raised by the handler.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead, Discard, Message, MoveTo, Pending, Repeat, Retry, Transfer, Unavailable
from kodo_consumer.core.values.exceptions import HandlerSignal
from kodo_consumer.core.values.infrastructure_faults import fault_of
from kodo_consumer.core.values.outcomes import DependencyUnavailable, Failed, Outcome
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.testing import Harness

from tests.unit.consumer.topologies import DOUBLE, write

FULL = OSError(errno.ENOSPC, "No space left on device")
WAITS = DependencyUnavailable("machine (No space left on device)")


def _lacks_table() -> sqlite3.OperationalError:
    with closing(sqlite3.connect(":memory:")) as database, pytest.raises(sqlite3.OperationalError) as found:
        database.execute("SELECT * FROM bills")
    return found.value


class OrderError(Exception):
    """Of a layer between the handler and its database."""


def _from(cause: BaseException, problem: Exception | None = None) -> BaseException:
    """As `raise problem from cause` makes it."""
    raised = problem or OrderError("order 7")
    raised.__cause__ = cause
    return raised


async def _in_tasks(*problems: BaseException) -> None:
    async def step(problem: BaseException) -> None:
        raise problem

    async with asyncio.TaskGroup() as group:
        for problem in problems:
            group.create_task(step(problem))


def _group(*problems: BaseException) -> BaseException:
    with pytest.raises(BaseExceptionGroup) as found:
        asyncio.run(_in_tasks(*problems))
    return found.value


def outcome(problem: Any) -> Outcome:
    return ExceptionReporter().outcome(problem)


@pytest.mark.parametrize(
    "verdict",
    [
        Retry("5s"), Retry(code="busy"), Pending("p"), Dead("d"), Discard("x"), MoveTo("L2"), Repeat("r"),
        Unavailable("bank"), Transfer("other", b"new", properties={"a": "b"}),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_a_verdict_in_a_task_is_the_handlers(verdict: HandlerSignal) -> None:
    """A repeat was tried again until it died, and a bank that was down cost attempts."""
    assert outcome(_group(verdict)) == verdict.outcome
    assert outcome(ExceptionGroup("outer", [_group(verdict)])) == verdict.outcome
    assert outcome(_group(verdict, verdict)) == verdict.outcome


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ([ValueError("a")], Failed("ValueError")),
        ([ValueError("a"), ValueError("b")], Failed("ValueError")),
        ([ValueError("a"), KeyError("b")], Failed("ExceptionGroup")),
        ([FULL], WAITS),
        ([FULL, Unavailable("bank")], WAITS),
        ([FULL, ValueError("a")], Failed("ExceptionGroup")),
        ([Discard("x"), ValueError("a")], Failed("ExceptionGroup")),
        ([Discard("x"), Discard("y")], Failed("ExceptionGroup")),
        ([Repeat("r"), Retry("5s")], Failed("ExceptionGroup")),
        ([Dead("d"), Discard("d")], Failed("ExceptionGroup")),
    ],
)
def test_where_tasks_disagree_the_run_has_failed(problems: list[Exception], expected: Outcome) -> None:
    """Nothing ends a message unless all ask for it."""
    assert outcome(ExceptionGroup("tasks", problems)) == expected


def test_a_verdict_of_the_users_own_making_that_fails_has_failed_in_a_group_too() -> None:
    class BrokenVerdict(HandlerSignal):
        @property
        def outcome(self) -> Outcome:
            raise KeyError

    assert ExceptionReporter().outcome(_group(BrokenVerdict())) == Failed("KeyError")
    assert ExceptionReporter().outcome(_group(BrokenVerdict(), BrokenVerdict())) == Failed("KeyError")


def test_a_group_that_is_no_exception_is_understood_as_well() -> None:
    assert ExceptionReporter().outcome(BaseExceptionGroup("tasks", [SystemExit(3)])) == Failed("SystemExit")


def test_the_log_has_the_whole_group(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ExceptionReporter().outcome(_group(ValueError("in a task")))
    assert "handler failed with ValueError" in caplog.text
    assert "unhandled errors in a TaskGroup" in caplog.text


def test_a_fault_is_known_behind_an_error_that_was_raised_from_it() -> None:
    """Django and most applications have a layer of their own: a missing migration made dead letters."""
    assert outcome(_from(_lacks_table())) == DependencyUnavailable("database (no such table: bills)")
    assert outcome(_from(_from(FULL))) == WAITS
    assert outcome(_group(_from(FULL))) == WAITS
    assert outcome(_from(ValueError("a"))) == Failed("OrderError")


def test_what_merely_came_before_is_no_cause() -> None:
    problem = OrderError("order 7")
    problem.__context__ = FULL
    assert ExceptionReporter().outcome(problem) == Failed("OrderError")


def test_a_verdict_that_was_raised_from_a_fault_is_the_verdict() -> None:
    assert ExceptionReporter().outcome(_from(FULL, Dead("order 7"))) == Dead("order 7").outcome


def test_causes_that_go_in_a_circle_end() -> None:
    one, other = OrderError("1"), OrderError("2")
    one.__cause__, other.__cause__ = other, one
    assert fault_of(one) is None


def test_an_async_handler_with_tasks_through_a_whole_consumer(tmp_path: Path) -> None:
    consumer = Consumer.load(write(tmp_path, DOUBLE), topic="orders", subscription="billing")
    asked: dict[str, BaseException] = {"repeat": Repeat("r"), "full": FULL, "dead": Dead("no customer")}

    @consumer.handler
    async def bill(message: Message) -> None:
        await _in_tasks(asked[message.text()])

    harness = Harness(consumer)
    for word in asked:
        harness.send(word.encode(), properties={"uid": word})
    harness.advance("10m")
    assert harness.counts.finished["repeated"] == 1
    assert [letter.properties["kodo-reason"] for letter in harness.dead_letters] == ["no customer"]
    assert len(harness.waiting("L1", "ready")) == 1, "it waits for room on the machine"
