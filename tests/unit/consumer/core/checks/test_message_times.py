"""Times of a message: what senders may give, in ms, and what is said of anything else."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from kodo_consumer.core.checks.message_times import as_delay, as_time
from kodo_consumer.core.checks.message_validation import DelayRule, MessageValidator, validator_of
from kodo_consumer.core.values.send_target import SendTarget

from kodoctl.errors import UsageError
from kodoctl.topology.model.policies import DelayedDelivery

NOW = 1_000_000
ZONE = timezone(timedelta(hours=2))


class NoZone(tzinfo):
    """A zone that knows no offset."""

    def utcoffset(self, _: datetime | None) -> None: ...
    def dst(self, _: datetime | None) -> None: ...
    def tzname(self, _: datetime | None) -> None: ...


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0), (17, 17), ((1 << 63) - 1, (1 << 63) - 1), (datetime(1970, 1, 1, 2, 0, 1, 500_900, ZONE), 1_500),
        (datetime(2004, 3, 7, 2, 8, 51, 860_000, UTC), 1_078_625_331_860),  # int(timestamp() * 1000) is 1 less
    ],
)  # fmt: skip
def test_a_moment_is_a_number_or_a_datetime_with_a_zone(value: Any, ms: int) -> None:
    found: list[str] = []
    assert (as_time("at", value, found), found) == (ms, [])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1, "at is -1, not ms since the epoch, nor a datetime with a time zone"), (1 << 63, "not ms"), (True, "not ms"),
        (1.5, "not ms"), ("now", "at is 'now', not ms"), (None, "not ms"), (datetime(1969, 1, 1, tzinfo=UTC), "not ms"),
        (datetime(2026, 1, 2), "at is 2026-01-02 00:00:00, without a time zone"),  # noqa: DTZ001
        (datetime(2026, 1, 2, tzinfo=NoZone()), "without a time zone"),
    ],
)  # fmt: skip
def test_what_is_no_moment_is_said_by_its_name(value: Any, said: str) -> None:
    found: list[str] = []
    assert as_time("at", value, found) == 0
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    ("value", "ms"), [("10m", 600_000), ("0s", 0), (1.5, 1_500), (0, 0), (2, 2_000), (timedelta(days=1), 86_400_000)]
)
def test_a_delay_is_a_text_seconds_or_a_timedelta(value: Any, ms: int) -> None:
    found: list[str] = []
    assert (as_delay(value, found), found) == (ms, [])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("10", "delay: '10' has no unit"), ("soon", "'soon' is not a duration"), (-1, "delay is -1: it cannot be negative"),
        (timedelta(seconds=-1), "negative"), (float("nan"), "not a text such as"), (float("inf"), "not a text such as"),
        (True, "not a text such as"), (b"1s", "not a text such as"), (1e30, "more than 1,000 years"),
        (10**400, "int too large"), (timedelta.max, "more than 1,000 years"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_delay_is_refused(value: Any, said: str) -> None:
    found: list[str] = []
    assert as_delay(value, found) == 0
    assert len(found) == 1
    assert said in found[0]


def _target(**more: Any) -> SendTarget:
    return SendTarget("persistent://p/n/t", None, {}, by_key=False, ordered=False, ground="t", **more)


@pytest.mark.parametrize(
    ("target", "delays", "said"),
    [
        (_target(), None, ""), (_target(ttl=60_000), DelayedDelivery(), ""),
        (_target(), DelayedDelivery(longest=60_000), ""),
        (_target(undelayed=("a", "b")), None, "t: readers of a, b would get it at once"),
        (_target(), DelayedDelivery(on=False), "t: the broker delivers delayed messages at once"),
        (_target(ttl=59_000), None, "1m is beyond 59s, after which messages of t expire"),
        (_target(ttl=59_000), DelayedDelivery(longest=58_000), "1m is beyond 58s, the most that the broker keeps"),
        (_target(ttl=57_000), DelayedDelivery(longest=58_000), "1m is beyond 57s"),
    ],
)  # fmt: skip
def test_a_delay_that_would_not_be_kept_is_refused_with_the_reason(
    target: SendTarget, delays: DelayedDelivery | None, said: str
) -> None:
    form = validator_of(target, 0, delays)
    assert form.accept(b"x", lambda: NOW).deliver_at is None
    assert form.accept(b"x", lambda: NOW, deliver_at=NOW).deliver_at is None, "it is over"
    if not said:
        assert form.accept(b"x", lambda: NOW, delay="1m").deliver_at == NOW + 60_000
        return
    for when in ({"delay": "1m"}, {"deliver_at": NOW + 60_000}):
        with pytest.raises(UsageError, match="K732") as raised:
            form.accept(b"x", lambda: NOW, **when)
        assert said in str(raised.value)


def test_a_delay_is_refused_as_it_was_given_however_long_the_check_takes() -> None:
    clock = itertools.count(NOW)
    with pytest.raises(UsageError, match=r"a delay of 2m is beyond 1m"):
        MessageValidator(delays=DelayRule("", 60_000, "the most")).accept(b"x", lambda: next(clock), delay="2m")
    accepted = MessageValidator(delays=DelayRule("", 60_000, "the most")).accept(b"x", lambda: next(clock), delay="1m")
    assert accepted.deliver_at is not None, "as long as the most is not beyond it"


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        MessageValidator().accept(b"x", lambda: NOW, key=5, ordering_key=b"o", id=7, event_time=-1, delay="x")  # type: ignore[arg-type]
    assert [one.code for one in raised.value.diagnostics] == ["K730"] * 5
    with pytest.raises(UsageError, match="give one of them"):
        MessageValidator().accept(b"x", lambda: NOW, delay="1s", deliver_at=1)


def test_without_a_topology_any_delay_is_taken() -> None:
    DelayRule().check(10**12)
