"""How many workers a shared limit is divided by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.limits.live_workers import LiveWorkerCount


def test_the_expected_ones_count_for_half_a_minute_then_those_that_live() -> None:
    sharers = LiveWorkerCount(8, 0.0)
    assert [sharers.count(live, 5.0 * turn) for turn, live in enumerate((1, 3, 3, 3, 3, 3, 3))] == [8] * 7
    assert sharers.count(3, 35.0) == 3


def test_more_count_at_once_and_fewer_late() -> None:
    sharers = LiveWorkerCount(1, 0.0)
    assert sharers.count(4, 1.0) == 4
    assert sharers.count(2, 20.0) == 4
    assert sharers.count(2, 32.0) == 2


def test_what_cannot_be_read_stays_as_it_was_and_is_never_below_the_expected() -> None:
    sharers = LiveWorkerCount(2, 0.0)
    sharers.count(8, 1.0)
    assert sharers.count(None, 60.0) == 8
    again = LiveWorkerCount(3, 0.0)
    again.count(1, 40.0)
    assert again.count(None, 100.0) == 3


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 20)), min_size=1, max_size=40))
def test_never_fewer_than_were_seen_in_the_last_half_minute(expected: int, readings: list[tuple[int, float]]) -> None:
    sharers, now, seen = LiveWorkerCount(expected, 0.0), 0.0, [(0.0, expected)]
    for live, gap in readings:
        now += gap
        seen.append((now, live))
        assert sharers.count(live, now) == max(count for at, count in seen if now - at <= 30.0)
