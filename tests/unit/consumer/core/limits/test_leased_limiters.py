"""Limiters that open with what a store leases, one by one: with tokens, without, and while the store cannot be asked."""

from __future__ import annotations

from collections import deque

import pytest
from kodo_consumer.core.limits.lease_client import NEVER, LeaseClient
from kodo_consumer.core.limits.leased_limiters import LeasedCap, LeasedQuota, LeasedRate
from kodo_consumer.core.limits.limiter_set import LimiterSet, LimitKind, RerouteOptions
from kodo_consumer.core.values.lease_protocol import (
    HOLD,
    ConcurrencySpec,
    LeaseGrant,
    LeaseRequest,
    QuotaSpec,
    RateSpec,
    TokenRange,
)
from kodo_consumer.core.values.limit_policy import Concurrency, Limit, Pace, Quota, Rate

RATE = Rate(None, Pace(10, 1_000, 20), shared=True)
QUOTA = Quota(None, 6, 60_000, shared=True)
CAP = Concurrency(None, 4, shared=True)


class Desk:
    """One worker's limits. `rings` counts how often a collection was asked for."""

    def __init__(self, *limits: Limit, workers: int = 2) -> None:
        self.rings = 0
        self.limits = LimiterSet(limits, workers)
        self.leases: LeaseClient = self.limits.use_leases(self._ring)
        self.limiters = self.limits.limiters_of({}, "")

    def _ring(self) -> None:
        self.rings += 1

    def grant(self, grant: LeaseGrant, now: float = 0.0) -> None:
        self.leases.collect(now)
        self.leases.accept([grant], now, now)


def _rate(**more: int) -> tuple[Desk, LeasedRate]:
    desk = Desk(RATE, **more)
    (limiter,) = desk.limiters
    assert isinstance(limiter, LeasedRate)
    return desk, limiter


def _quota() -> tuple[Desk, LeasedQuota]:
    desk = Desk(QUOTA)
    (limiter,) = desk.limiters
    assert isinstance(limiter, LeasedQuota)
    return desk, limiter


def _cap() -> tuple[Desk, LeasedCap]:
    desk = Desk(CAP)
    (limiter,) = desk.limiters
    assert isinstance(limiter, LeasedCap)
    return desk, limiter


def _tokens(limiter: LeasedRate | LeasedQuota, count: int, after: float = 0.0, until: float = 2.0) -> LeaseGrant:
    return LeaseGrant(limiter.name, (TokenRange(100.0, count, after, until, 0.1),))


def test_names_tell_limits_apart() -> None:
    twice = Desk(RATE, CAP, Rate(None, Pace(5, 1_000, 5), shared=True), Rate("uid", Pace(1, 1_000, 1), shared=False))
    assert [getattr(limiter, "name", None) for limiter in twice.limiters] == [
        "rate::(none)", "concurrency::(none)", "rate1::(none)", None,
    ]  # fmt: skip


def test_a_limiter_that_has_nothing_rings_when_somebody_waits_and_asks_for_all_who_do() -> None:
    desk, limiter = _rate()
    assert limiter.free_at(0.0) == NEVER
    limiter.waiters = deque("xyz")
    limiter.on_wait(0.0)
    assert desk.rings == 1
    assert desk.leases.collect(0.0) == [LeaseRequest(limiter.name, RateSpec(0.1, 20), 4)]
    limiter.on_wait(0.01)
    assert desk.rings == 1, "it has just asked"
    assert desk.leases.accept([_tokens(limiter, 4)], 0.0, 0.02) == [limiter]
    assert desk.leases.due == pytest.approx(0.1)
    assert limiter.room(0.15) == 2
    for _ in range(2):
        assert desk.limits.start((limiter,), 0.15, quota_taken=False) is None
    assert desk.limits.start((limiter,), 0.15, quota_taken=False) is limiter
    assert limiter.wait(0.15) == pytest.approx(3 * 0.1 + 0.07)
    desk.limits.start((limiter,), 0.33, quota_taken=False)
    desk.limits.start((limiter,), 0.33, quota_taken=False)
    assert desk.rings == 2, "none is left and somebody waits"


def test_tokens_are_used_in_time_or_never() -> None:
    desk, limiter = _rate()
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    desk.grant(_tokens(limiter, 3, after=0.5, until=0.55))
    assert limiter.free_at(0.0) == 0.5
    assert not limiter.free(0.4)
    assert limiter.free_at(0.66) == pytest.approx(0.7)
    assert limiter.free_at(1.0) == NEVER
    desk.grant(LeaseGrant(limiter.name, (TokenRange(1.0, 2, -3.0, -1.0, 0.1),)), 2.0)
    assert limiter.free_at(2.0) == NEVER, "over before they came"


def test_tokens_that_nobody_uses_are_given_back() -> None:
    desk, limiter = _rate()
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    desk.grant(_tokens(limiter, 3, until=9.0))
    limiter.waiters.clear()
    assert desk.leases.collect(0.3) == []
    (request,) = desk.leases.collect(0.6)
    assert (request.wanted, request.back) == (0, pytest.approx((100.0, 100.1, 100.2)))
    assert desk.leases.collect(0.7) == []
    assert desk.leases.active == {}
    assert desk.leases.due == NEVER
    assert limiter.idle(10.0)


def test_tokens_for_later_are_kept_while_messages_wait_for_them() -> None:
    """They went back after half a second, and another worker could take the time of a message that waited."""
    desk = Desk(Rate(None, Pace(1, 4_000, 1), shared=True))
    (limiter,) = desk.limiters
    assert isinstance(limiter, LeasedRate)
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    desk.grant(_tokens(limiter, 1, after=3.0, until=9.0))
    assert [desk.leases.collect(now) for now in (0.6, 2.9, 3.4)] == [[], [], []]
    (request,) = desk.leases.collect(3.6)
    assert request.back == pytest.approx((100.0,)), "it could have been used"


def test_who_would_wait_long_at_a_rate_is_told_a_moment_behind_all_who_wait() -> None:
    desk, limiter = _rate()
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    desk.grant(LeaseGrant(limiter.name, sharers=5))
    assert (limiter.interval, limiter.burst) == (0.5, 4)
    leave = RerouteOptions(rate_after=10.0)
    assert desk.limits.reserve((limiter,), 0.0, leave, quota_taken=False).over is LimitKind.NOTHING
    limiter.waiters.extend("x" * 10)
    assert desk.limits.reserve((limiter,), 0.0, RerouteOptions(), quota_taken=False).over is LimitKind.NOTHING, (
        "it waits here"
    )
    slots = [desk.limits.reserve((limiter,), 0.0, leave, quota_taken=False) for _ in range(3)]
    assert [slot.at for slot in slots] == [10.0, 10.5, 11.0]
    assert slots[0].over is LimitKind.RATE


def test_a_full_quota_knows_when_it_has_room() -> None:
    desk, limiter = _quota()
    assert (limiter.slot(0.0), limiter.wait(0.0)) == (0.0, 0.0), "nobody knows yet"
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    desk.grant(LeaseGrant(limiter.name, sharers=2, leaving=((20.0, 2), (40.0, 4))))
    assert (limiter.free_at(0.0), limiter.wait(0.0)) == (20.0, 20.0)
    slots = [desk.limits.reserve((limiter,), 0.0, RerouteOptions(quota=True), quota_taken=False) for _ in range(4)]
    assert [slot.at for slot in slots] == [20.0, 40.0, 40.0, 80.0]
    assert desk.leases.due == 1.0, "others may give some back"
    assert desk.leases.collect(1.0)[0].wanted == 1
    assert desk.leases.due == 2.0
    desk.grant(_tokens(limiter, 1), 1.1)
    assert limiter.free(1.2)
    assert limiter.slot(1.2) == 1.2
    assert limiter.room(1.2) == 1
    desk.limits.start((limiter,), 1.2, quota_taken=False)
    assert not limiter.idle(1.2)


def test_a_cap_opens_while_its_permits_last() -> None:
    desk, limiter = _cap()
    limiter.waiters = deque("xy")
    limiter.on_wait(0.0)
    assert desk.leases.collect(0.0) == [LeaseRequest(limiter.name, ConcurrencySpec(4), 2)]
    desk.leases.accept([LeaseGrant(limiter.name, permits=2, fair=2)], 0.0, 0.1)
    assert limiter.room(0.1) == 2
    assert limiter.free(0.1)
    desk.limits.start((limiter,), 0.1, quota_taken=False)
    assert limiter.free(0.1)
    assert not limiter.free(HOLD), "it may have been lent to others since"
    desk.limits.start((limiter,), 0.1, quota_taken=False)
    limiter.waiters.clear()
    desk.leases.collect(0.2)
    desk.leases.accept([LeaseGrant(limiter.name, permits=2, fair=1)], 0.2, 0.2)
    assert not limiter.free(0.2)
    limiter.finish()
    assert desk.rings == 2, "others wait for it"
    (request,) = desk.leases.collect(0.3)
    assert (request.wanted, request.in_use) == (2, 1)
    assert desk.leases.leave(0.3) == [LeaseRequest(limiter.name, ConcurrencySpec(4), 0, 1)]


def test_an_idle_cap_gives_its_permits_back_and_is_forgotten() -> None:
    desk, limiter = _cap()
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    desk.grant(LeaseGrant(limiter.name, permits=1, fair=1))
    limiter.waiters.clear()
    limiter.start(0.0)
    limiter.finish()
    asked = []
    for step in range(1, 6):
        for request in desk.leases.collect(step / 10):
            asked.append((request.wanted, request.in_use))
            permits = min(request.wanted, 1)
            desk.leases.accept([LeaseGrant(limiter.name, permits=permits, fair=permits)], step / 10, step / 10)
    assert asked == [(1, 1), (0, 0)]
    assert desk.leases.active == {}


def test_without_the_store_each_takes_its_part_and_says_so_later() -> None:
    desk = Desk(RATE, QUOTA, CAP)
    rate, quota, cap = desk.limiters
    assert isinstance(rate, LeasedRate)
    assert isinstance(quota, LeasedQuota)
    for limiter in (rate, quota, cap):
        limiter.waiters = deque("x")
        limiter.on_wait(0.0)
    requests = desk.leases.collect(0.0)
    grants = [_tokens(rate, 5), _tokens(quota, 5), LeaseGrant(requests[2].name, permits=4, fair=4)]
    desk.leases.accept(grants, 0.0, 0.0)
    assert desk.leases.fall_back(1.0) == list(desk.limiters)
    assert (desk.leases.failed, len(desk.leases.active)) == (1, 3)
    for limiter in desk.limiters:
        limiter.waiters.clear()
    started = 0
    while desk.limits.start(desk.limiters, 1.0, quota_taken=False) is None:
        started += 1
    assert started == 2, "the cap's part"
    assert (rate.interval, rate.burst, quota.amount) == (0.2, 10, 3)
    assert [limiter.room(1.0) for limiter in desk.limiters] == [1, 1, 1]
    assert rate.wait(1.0) == 0.0
    assert desk.limits.reserve(desk.limiters, 1.0, RerouteOptions(rate_after=60.0), quota_taken=False).at == 1.0
    assert desk.limits.reserve(desk.limiters, 1.0, RerouteOptions(rate_after=60.0), quota_taken=False).at >= 61.0
    cap.finish()
    cap.on_wait(1.0)
    rings = desk.rings
    assert desk.leases.come_back(2.0) == []
    assert desk.rings == rings
    assert [request.spent for request in desk.leases.collect(2.0)] == [2, 2, 0]
    assert [request.spent for request in desk.leases.leave(2.0)] == [0, 0, 0]


def test_starts_without_a_token_are_reported_again_if_nobody_answered() -> None:
    desk = Desk(RATE, QUOTA)
    rate, quota = desk.limiters
    assert isinstance(rate, LeasedRate)
    assert isinstance(quota, LeasedQuota)
    desk.leases.fall_back(0.0)
    assert desk.limits.start(desk.limiters, 0.0, quota_taken=False) is None
    desk.leases.come_back(1.0)
    assert [request.spent for request in desk.leases.collect(1.0)] == [1, 1]
    desk.leases.fall_back(1.1)
    desk.leases.come_back(2.0)
    assert [request.spent for request in desk.leases.collect(2.0)] == [1, 1]
    desk.leases.accept([LeaseGrant(rate.name), LeaseGrant(quota.name)], 2.0, 2.0)
    desk.leases.fall_back(2.1)
    assert [request.spent for request in desk.leases.leave(2.1)] == [0, 0]


def test_requests_say_how_long_answers_took_lately() -> None:
    desk, limiter = _rate()
    limiter.waiters = deque("x")
    limiter.on_wait(0.0)
    assert [request.latency for request in desk.leases.collect(0.0)] == [0.0]
    desk.leases.accept([LeaseGrant(limiter.name)], 0.0, 0.2)
    assert [request.latency for request in desk.leases.collect(0.3)] == [0.2]
    desk.leases.accept([LeaseGrant(limiter.name)], 0.3, 0.31)
    assert [request.latency for request in desk.leases.collect(0.4)] == [pytest.approx(0.18)]


def test_a_limiter_made_while_the_store_is_down_has_its_part() -> None:
    desk = Desk(Rate("uid", Pace(10, 1_000, 20), shared=True))
    desk.leases.fall_back(0.0)
    (limiter,) = desk.limits.limiters_of({"uid": "new"}, "")
    assert isinstance(limiter, LeasedRate)
    assert (limiter.interval, limiter.burst) == (0.2, 10)


def test_other_limits_are_borrowed_of_from_then_on() -> None:
    desk = Desk(RATE, QUOTA, CAP)
    rate, quota, cap = desk.limiters
    assert isinstance(rate, LeasedRate)
    assert isinstance(quota, LeasedQuota)
    assert isinstance(cap, LeasedCap)
    quota.waiters = deque("x")
    quota.on_wait(0.0)
    desk.grant(LeaseGrant(quota.name, sharers=2, leaving=((20.0, 2),)))
    desk.limits.share_out(4)
    assert (rate.interval, rate.divided, quota.amount, cap.limit) == (0.1, (0.4, 5), 1, 1)
    assert quota.free_at(0.0) == 20.0
    faster = Rate(None, Pace(100, 1_000, 200), shared=True)
    desk.limits.apply_limits((faster, Quota(None, 60, 60_000, shared=True), Concurrency(None, 8, shared=True)), 0.0)
    assert (rate.terms, quota.terms, cap.terms) == (RateSpec(0.01, 200), QuotaSpec(60, 60.0), ConcurrencySpec(8))
    assert (rate.interval, quota.amount, cap.limit) == (0.01, 15, 2)
    assert quota.free_at(0.0) == NEVER, "who was full may have room"
    desk.leases.fall_back(0.0)
    desk.limits.share_out(2)
    assert (rate.interval, rate.burst) == (0.02, 100)


def test_promises_of_a_quota_go_by_its_part_while_the_store_is_down() -> None:
    desk, limiter = _quota()
    desk.leases.fall_back(0.0)
    for _ in range(3):
        desk.limits.start((limiter,), 0.0, quota_taken=False)
    assert desk.limits.reserve((limiter,), 0.0, RerouteOptions(quota=True), quota_taken=False).at == 61.0


def test_a_quota_with_another_window_keeps_to_it_while_the_store_is_down() -> None:
    desk, limiter = _quota()
    desk.leases.fall_back(0.0)
    for _ in range(3):
        desk.limits.start((limiter,), 0.0, quota_taken=False)
    desk.limits.reserve((limiter,), 0.0, RerouteOptions(quota=True), quota_taken=False)
    desk.limits.apply_limits((Quota(None, 60, 3_600_000, shared=True),), 1.0)
    for _ in range(27):
        assert desk.limits.start((limiter,), 1.0, quota_taken=False) is None
    assert 3_600.0 <= limiter.free_at(1.0) <= 3_720.0
    assert limiter.slot(1.0) == limiter.free_at(1.0), "what was promised before is void"
    before = limiter.free_at(1.0)
    desk.limits.apply_limits((Quota(None, 60, 3_600_000, shared=True),), 1.0)
    assert limiter.free_at(1.0) == before


def test_a_rate_that_is_made_faster_is_so_at_once_while_the_store_is_down() -> None:
    desk, limiter = _rate()
    desk.leases.fall_back(0.0)
    desk.limits.apply_limits((Rate(None, Pace(1, 3_600_000, 1), shared=True),), 0.0)
    desk.limits.start((limiter,), 0.0, quota_taken=False)
    assert limiter.free_at(0.0) == 7_200.0
    desk.limits.apply_limits((RATE,), 0.0)
    assert limiter.free_at(0.0) <= 0.2


def test_what_a_rate_promised_before_it_was_changed_is_void() -> None:
    desk, limiter = _rate()
    leave = RerouteOptions(rate_after=10.0)
    limiter.waiters = deque("x" * 100)
    assert [desk.limits.reserve((limiter,), 0.0, leave, quota_taken=False).at for _ in range(2)] == [10.0, 10.1]
    desk.limits.share_out(3)
    assert desk.limits.reserve((limiter,), 0.0, leave, quota_taken=False).at == pytest.approx(10.2)
    desk.limits.apply_limits((RATE,), 0.0)
    assert desk.limits.reserve((limiter,), 0.0, leave, quota_taken=False).at == 10.0


def test_a_limiter_that_is_not_active_has_its_part_as_well_while_the_store_is_down() -> None:
    desk = Desk(RATE, Concurrency(None, 4, shared=False))  # the second one is each worker's own
    limiter = next(one for one in desk.limiters if isinstance(one, LeasedRate))
    assert desk.leases.active == {}
    desk.leases.fall_back(0.0)
    assert (limiter.interval, limiter.burst) == (0.2, 10)
