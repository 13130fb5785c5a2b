"""The law of every limiter: passed in any window w ≤ burst + rate·w; and promises that are kept."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kodo_consumer.core.limits.limiters import ConcurrencyLimiter, Limiter, QuotaLimiter, RateLimiter

GAPS = st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=120)


def _passes(limiter: Limiter, gaps: list[float]) -> list[float]:
    """Moments at which a message passed that asked at each of these moments."""
    now, passed = 1000.0, []
    for gap in gaps:
        now += gap
        if limiter.free(now):
            limiter.start(now)
            passed.append(now)
    return passed


@given(GAPS, st.floats(0.01, 2), st.integers(1, 10))
def test_a_rate_is_never_exceeded_in_any_window(gaps: list[float], interval: float, burst: int) -> None:
    passed = _passes(RateLimiter(interval, burst), gaps)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            window = passed[last] - passed[first]
            assert last - first + 1 <= burst + window / interval + 1e-6


@given(GAPS, st.integers(1, 10), st.floats(0.5, 20))
def test_a_quota_is_never_exceeded_in_any_window_of_its_period(gaps: list[float], amount: int, period: float) -> None:
    passed = _passes(QuotaLimiter(amount, period), gaps)
    for first in range(len(passed) - amount):
        assert passed[first + amount] - passed[first] >= period - 1e-6


@given(st.floats(0.01, 1), st.integers(1, 5), st.integers(1, 200))
def test_a_rate_is_used_fully_by_those_who_wait_for_it(interval: float, burst: int, count: int) -> None:
    limiter, now = RateLimiter(interval, burst), 0.0
    for _ in range(count):
        now = limiter.free_at(now)
        limiter.start(now)
    assert now <= max(0, count - burst) * interval + 1e-6


@given(st.integers(1, 20), st.integers(1, 100))
def test_a_quota_is_used_to_98_percent_by_those_who_wait_for_it(amount: int, count: int) -> None:
    limiter, now = QuotaLimiter(amount, 60.0), 0.0
    for _ in range(count):
        now = limiter.free_at(now)
        limiter.start(now)
    assert now <= (count - 1) // amount * 61.0 + 1e-6


@example(1.0, 1, [(0.0, False)] * 3 + [(0.0, True), (0.0, False), (0.0, False), (0.0, True), (0.0, True)])
@given(st.floats(0.01, 1), st.integers(1, 5), st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60))
def test_promised_rate_slots_are_far_enough_apart(
    interval: float, burst: int, requests: list[tuple[float, bool]]
) -> None:
    """Slots are moments like any other: who starts at them keeps the law."""
    limiter, now, slots = RateLimiter(interval, burst), 0.0, []
    for gap, far in requests:
        now += gap
        limiter.forget_before(now)
        slot = limiter.next_deferred_slot(now + 3.0) if far else limiter.next_slot(now)
        limiter.reserve_deferred(slot) if far else limiter.reserve(slot)
        assert slot >= now
        slots.append(slot)
    slots.sort()
    for first in range(len(slots)):
        for last in range(first, len(slots)):
            window = slots[last] - slots[first]
            assert last - first + 1 <= 2 * burst + window / interval + 1e-6


def test_far_promises_come_one_after_the_other_and_leave_room_before_them() -> None:
    limiter = RateLimiter(1.0, 1)
    far = []
    for _ in range(3):
        far.append(limiter.next_deferred_slot(60.0))
        limiter.reserve_deferred(far[-1])
    assert far == [60.0, 61.0, 62.0]
    near = []
    for _ in range(61):
        near.append(limiter.next_slot(0.0))
        limiter.reserve(near[-1])
    assert near == [*range(60), 63]
    assert limiter.next_slot(61.5) == 64.0
    assert limiter.next_deferred_slot(0.0) == 64.0


def test_a_burst_saved_before_does_not_reach_into_a_promised_stretch() -> None:
    limiter = RateLimiter(1.0, 10)
    for slot in (5.0, 6.0, 7.0):
        limiter.reserve_deferred(slot)
    assert limiter.next_slot(5.5) == 8.0
    limiter.forget_before(8.0)
    assert limiter.next_slot(5.5) == 5.5


def test_who_waits_for_a_rate_waits_behind_the_others() -> None:
    limiter = RateLimiter(2.0, 1)
    limiter.start(0.0)
    assert limiter.wait(0.0) == 2.0
    limiter.waiters = deque("x")
    assert limiter.wait(0.0) == 4.0


def test_quota_slots_are_when_starts_leave_the_window_and_wrap_around() -> None:
    limiter = QuotaLimiter(2, 60.0)
    limiter.start(0.0)
    limiter.start(10.0)
    slots = []
    for _ in range(5):
        slots.append(limiter.slot(20.0))
        limiter.reserve(slots[-1])
    assert slots == [61.0, 71.0, 121.0, 131.0, 181.0]
    assert not limiter.free(20.0)


def test_a_kept_promise_is_off_the_book_and_a_forgotten_one_after_a_while() -> None:
    limiter = QuotaLimiter(1, 60.0)
    limiter.reserve(limiter.slot(0.0))
    assert limiter.slot(0.0) == 60.0
    assert limiter.slot(6.0) == 6.0
    limiter.reserve(6.0)
    limiter.start(7.0)
    assert limiter.slot(7.0) == 68.0


def test_a_quota_made_smaller_waits_for_all_that_is_too_much() -> None:
    limiter = QuotaLimiter(3, 60.0)
    for moment in (0.0, 5.0, 10.0):
        limiter.start(moment)
    limiter.amount = 1
    assert limiter.free_at(20.0) == 71.0
    limiter.start(20.0)
    assert limiter.slot(20.0) == 81.0


def test_a_cap_knows_no_time() -> None:
    limiter = ConcurrencyLimiter(1)
    assert limiter.free(0.0)
    limiter.start(0.0)
    assert limiter.free_at(0.0) == float("inf")
    limiter.finish()
    assert limiter.free(0.0)
    assert limiter.wait(0.0) == 0.0


def test_a_limiter_as_good_as_new_is_idle() -> None:
    rate, quota, cap = RateLimiter(1.0, 1), QuotaLimiter(1, 60.0), ConcurrencyLimiter(1)
    limiters: tuple[Limiter, ...] = (rate, quota, cap)
    assert all(limiter.idle(0.0) for limiter in limiters)
    for limiter in limiters:
        limiter.start(0.0)
        limiter.finish() if limiter is not cap else None
    assert not any(limiter.idle(0.0) for limiter in limiters)
    cap.finish()
    assert all(limiter.idle(100.0) for limiter in limiters)
    rate.reserve_deferred(200.0)
    quota.reserve(200.0)
    cap.waiters = deque("x")
    assert not any(limiter.idle(100.0) for limiter in limiters)


def test_the_base_of_limiters_is_no_limiter() -> None:
    limiter = Limiter()
    for call in (lambda: limiter.free_at(0.0), lambda: limiter.start(0.0), lambda: limiter.idle(0.0)):
        with pytest.raises(NotImplementedError):
            call()
    limiter.finish()


def test_a_promise_that_is_given_back_is_there_for_the_next_and_none_is_nothing() -> None:
    quota = QuotaLimiter(1, 3_600.0)
    quota.give_back()
    quota.reserve(quota.slot(0.0))
    assert quota.slot(0.0) > 0
    quota.give_back()
    assert quota.slot(0.0) == 0
