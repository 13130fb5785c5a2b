"""What a handler may raise, as values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.state_machine import Reroute, decide
from kodo_consumer.core.values.envelope import Envelope, Headers, Level, State
from kodo_consumer.core.values.exceptions import (
    Blocking,
    Dead,
    Discard,
    HandlerFailedError,
    HandlerSignal,
    InvalidPayloadError,
    MoveTo,
    Pending,
    Postpone,
    Repeat,
    Retry,
    Transfer,
    Unavailable,
    exception_for,
)
from kodo_consumer.core.values.outcomes import (
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    Failed,
    MoveAsked,
    OtherSubscription,
    Outcome,
    PostponeAsked,
    Repeated,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from kodo_consumer.runtime.handler_errors import ExceptionReporter

from kodoctl.topology.units import UnitError
from tests.unit.consumer.engine_bench import policy


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Retry(), RetryAsked(None, "asked to retry")),
        (Retry("1.5m", "busy"), RetryAsked(90_000, "busy")),
        (Retry(after=timedelta(seconds=2)), RetryAsked(2_000, "asked to retry")),
        (Retry(after=timedelta(seconds=-2)), RetryAsked(0, "asked to retry")),
        (Pending(), StateAsked(State.PENDING, "asked for pending")),
        (Pending("slow down"), StateAsked(State.PENDING, "slow down")),
        (Blocking(), StateAsked(State.BLOCKING, "asked for blocking")),
        (Dead("bad"), DeadLettered("bad")),
        (Dead(), DeadLettered("dead")),
        (InvalidPayloadError("not JSON"), DeadLettered("not JSON")),
        (Discard(), Discarded("discarded")),
        (MoveTo("L2"), MoveAsked(Level.L2)),
        (Postpone("1.5m", "closed"), PostponeAsked(90_000, None, "closed")),
        (Postpone(timedelta(seconds=-2)), PostponeAsked(0, None, "")),
        (Postpone(datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)), PostponeAsked(0, 2_000_000_000_000, "")),
        (Postpone(datetime(1960, 1, 1, tzinfo=UTC)), PostponeAsked(0, 0, "")),
        (MoveTo("L99"), Failed("MoveTo: no level L99")),
        (Transfer("t"), TransferAsked("t")),
        (Transfer("t", b"p", key="k", properties={"a": "b"}), TransferAsked("t", b"p", {"a": "b"}, "k")),
        (Unavailable("psp"), DependencyUnavailable("psp")),
    ],
)
def test_a_verdict_is_an_outcome(verdict: HandlerSignal, outcome: Outcome) -> None:
    assert verdict.outcome == outcome


def test_a_postponement_in_another_process_is_the_same_for_the_code_around_it() -> None:
    for asked in (PostponeAsked(90_000, None, "closed"), PostponeAsked(0, 2_000_000_000_001, "")):
        assert exception_for(asked).outcome == asked


def test_a_wait_needs_a_unit() -> None:
    with pytest.raises(UnitError, match="no unit"):
        Retry("30")


def test_the_base_of_verdicts_says_nothing() -> None:
    with pytest.raises(NotImplementedError):
        _ = HandlerSignal().outcome


def test_a_payload_check_names_the_place_and_never_the_value() -> None:
    check = Payloads("json", {"type": "object", "properties": {"card": {"type": "integer"}}})
    check({"card": 1})
    with pytest.raises(InvalidPayloadError) as problem:
        check({"card": "4711-secret"})
    assert str(problem.value) == "payload breaks its schema at $.card: type"


def test_a_repeat_says_nothing_but_that_it_is_one() -> None:
    assert Repeat().outcome == Repeated()


def test_a_retry_with_a_code_waits_as_the_topology_says_for_it() -> None:
    of = policy(delays_by_code={"busy": (7_000, 70_000)})
    here = Envelope(Level.L1, State.READY, may_wait=False)

    def due(envelope: Envelope, retry: Retry) -> int | None:
        decision = decide(envelope, retry.outcome, of, 0)
        assert isinstance(decision, Reroute)
        assert decision.headers.reason == (retry.why or "asked to retry")
        return decision.headers.due

    assert due(here, Retry(code="busy")) == 7_000
    assert due(replace(here, headers=Headers(retrying=1)), Retry(code="busy", why="bank")) == 70_000
    assert due(here, Retry(code="unknown")) == due(here, Retry()) == 10_000
    assert due(here, Retry("3s", code="busy")) == 3_000
    assert due(Envelope(Level.B1, State.READY, Headers(backup=1)), Retry(code="busy")) == 70_000


def test_what_a_verdict_says_travels_as_text_whatever_it_was() -> None:
    cause = ValueError("bank is closed")
    assert Retry("30s", why=cause).outcome == RetryAsked(30_000, "bank is closed")  # type: ignore[arg-type]
    assert Retry("30s", why=5).outcome == RetryAsked(30_000, "5")  # type: ignore[arg-type]
    assert Dead("order \ud800, caf\xe9").outcome == DeadLettered("order ?, caf\xe9")
    assert Unavailable("ps\udfffp").outcome == DependencyUnavailable("ps?p")


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        (Retry, {"code": ["busy"]}, "code is a word"),
        (Postpone, {"until": 30}, "until is a datetime, a timedelta or a text"),
        (Postpone, {"until": datetime(2033, 5, 18)}, "until is a time with a time zone"),  # noqa: DTZ001  # refused
        (MoveTo, {"level": 2}, "level is a name"),
        (Transfer, {"topic": ["x"]}, "topic and key are text"),
        (Transfer, {"topic": "x", "key": 5}, "topic and key are text"),
        (Transfer, {"topic": "x", "payload": "text"}, "payload is bytes, not str: encode it"),
        (Transfer, {"topic": "x", "payload": {"a": 1}}, "payload is bytes, not dict"),
        (Transfer, {"topic": "x", "key": "\ud800"}, "topic and key are text"),
        (Transfer, {"topic": "x", "properties": {"a": None}}, "a is None, not text"),
        (Transfer, {"topic": "x", "properties": {"a": b"b"}}, "a is bytes, not text"),
        (Transfer, {"topic": "x", "properties": {1: "a"}}, "the name '1' is a number, not text"),
        (Transfer, {"topic": "x", "properties": {"a": "\ud800"}}, "a is no Unicode text"),
        (Transfer, {"topic": "x", "properties": ["a"]}, "a list, not a mapping"),
    ],
)
def test_a_verdict_of_the_wrong_kind_fails_in_the_handler_that_made_it(
    kind: Any, values: dict[str, Any], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        kind(**values)


def test_a_verdict_of_the_users_own_making_that_asks_for_nothing_known_is_a_failed_run() -> None:
    class Odd(HandlerSignal):
        @property
        def outcome(self) -> Outcome:
            return "later"  # type: ignore[return-value]

    told: list[BaseException | None] = []
    assert ExceptionReporter(say=lambda text, problem, fields: told.append(problem)).outcome(Odd()) == Failed(
        "TypeError"
    )
    assert "Odd.outcome is no outcome, but 'later'" in str(told[0])


def test_the_code_around_a_handler_sees_any_other_outcome_as_a_failure_by_its_name() -> None:
    found = exception_for(OtherSubscription())
    assert isinstance(found, HandlerFailedError)
    assert str(found) == "OtherSubscription"
