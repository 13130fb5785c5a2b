"""Gates that open with what a store lends, one by one: with tokens, without, and while the store cannot be asked."""

from __future__ import annotations

from collections import deque

import pytest
from kodo_consumer.core.limits.lease_client import NEVER, LeaseClient
from kodo_consumer.core.limits.lease_protocol import (
    HOLD,
    ConcurrencySpec,
    LeaseGrant,
    LeaseRequest,
    QuotaSpec,
    RateSpec,
    TokenRange,
)
from kodo_consumer.core.limits.leased_limiters import LeasedCap, LeasedQuota, LeasedRate
from kodo_consumer.core.limits.limiter_set import LimiterSet, LimitKind, RerouteOptions
from kodo_consumer.core.policy import Concurrency, Limit, Pace, Quota, Rate

RATE = Rate(None, Pace(10, 1_000, 20), shared=True)
QUOTA = Quota(None, 6, 60_000, shared=True)
CAP = Concurrency(None, 4, shared=True)


class Desk:
    """One worker's limits. `rings` counts how often a collection was asked for."""

    def __init__(self, *limits: Limit, workers: int = 2) -> None:
        self.rings = 0
        self.limits = LimiterSet(limits, workers)
        self.borrower: LeaseClient = self.limits.borrow(self._ring)
        self.gates = self.limits.gates_of({}, "")

    def _ring(self) -> None:
        self.rings += 1

    def lend(self, loan: LeaseGrant, now: float = 0.0) -> None:
        self.borrower.collect(now)
        self.borrower.accept([loan], now, now)


def _rate(**more: int) -> tuple[Desk, LeasedRate]:
    desk = Desk(RATE, **more)
    (gate,) = desk.gates
    assert isinstance(gate, LeasedRate)
    return desk, gate


def _quota() -> tuple[Desk, LeasedQuota]:
    desk = Desk(QUOTA)
    (gate,) = desk.gates
    assert isinstance(gate, LeasedQuota)
    return desk, gate


def _cap() -> tuple[Desk, LeasedCap]:
    desk = Desk(CAP)
    (gate,) = desk.gates
    assert isinstance(gate, LeasedCap)
    return desk, gate


def _tokens(gate: LeasedRate | LeasedQuota, count: int, after: float = 0.0, until: float = 2.0) -> LeaseGrant:
    return LeaseGrant(gate.name, (TokenRange(100.0, count, after, until, 0.1),))


def test_names_tell_limits_apart() -> None:
    twice = Desk(RATE, CAP, Rate(None, Pace(5, 1_000, 5), shared=True), Rate("uid", Pace(1, 1_000, 1), shared=False))
    assert [getattr(gate, "name", None) for gate in twice.gates] == [
        "rate::(none)", "concurrency::(none)", "rate1::(none)", None,
    ]  # fmt: skip


def test_a_gate_that_has_nothing_rings_when_somebody_waits_and_asks_for_all_who_do() -> None:
    desk, gate = _rate()
    assert gate.free_at(0.0) == NEVER
    gate.waiters = deque("xyz")
    gate.awaited(0.0)
    assert desk.rings == 1
    assert desk.borrower.collect(0.0) == [LeaseRequest(gate.name, RateSpec(0.1, 20), 4)]
    gate.awaited(0.01)
    assert desk.rings == 1, "it has just asked"
    assert desk.borrower.accept([_tokens(gate, 4)], 0.0, 0.02) == [gate]
    assert desk.borrower.due == pytest.approx(0.1)
    assert gate.room(0.15) == 2
    for _ in range(2):
        assert desk.limits.start((gate,), 0.15, quota_taken=False) is None
    assert desk.limits.start((gate,), 0.15, quota_taken=False) is gate
    assert gate.wait(0.15) == pytest.approx(3 * 0.1 + 0.07)
    desk.limits.start((gate,), 0.33, quota_taken=False)
    desk.limits.start((gate,), 0.33, quota_taken=False)
    assert desk.rings == 2, "none is left and somebody waits"


def test_tokens_are_used_in_time_or_never() -> None:
    desk, gate = _rate()
    gate.waiters = deque("x")
    gate.awaited(0.0)
    desk.lend(_tokens(gate, 3, after=0.5, until=0.55))
    assert gate.free_at(0.0) == 0.5
    assert not gate.free(0.4)
    assert gate.free_at(0.66) == pytest.approx(0.7)
    assert gate.free_at(1.0) == NEVER
    desk.lend(LeaseGrant(gate.name, (TokenRange(1.0, 2, -3.0, -1.0, 0.1),)), 2.0)
    assert gate.free_at(2.0) == NEVER, "over before they came"


def test_tokens_that_nobody_uses_are_given_back() -> None:
    desk, gate = _rate()
    gate.waiters = deque("x")
    gate.awaited(0.0)
    desk.lend(_tokens(gate, 3, until=9.0))
    gate.waiters.clear()
    assert desk.borrower.collect(0.3) == []
    (ask,) = desk.borrower.collect(0.6)
    assert (ask.wanted, ask.back) == (0, pytest.approx((100.0, 100.1, 100.2)))
    assert desk.borrower.collect(0.7) == []
    assert desk.borrower.active == {}
    assert desk.borrower.due == NEVER
    assert gate.idle(10.0)


def test_who_would_wait_long_at_a_rate_is_told_a_moment_behind_all_who_wait() -> None:
    desk, gate = _rate()
    gate.waiters = deque("x")
    gate.awaited(0.0)
    desk.lend(LeaseGrant(gate.name, sharers=5))
    assert (gate.interval, gate.burst) == (0.5, 4)
    leave = RerouteOptions(rate_after=10.0)
    assert desk.limits.reserve((gate,), 0.0, leave, quota_taken=False).over is LimitKind.NOTHING
    gate.waiters.extend("x" * 10)
    assert desk.limits.reserve((gate,), 0.0, RerouteOptions(), quota_taken=False).over is LimitKind.NOTHING, (
        "it waits here"
    )
    slots = [desk.limits.reserve((gate,), 0.0, leave, quota_taken=False) for _ in range(3)]
    assert [slot.at for slot in slots] == [10.0, 10.5, 11.0]
    assert slots[0].over is LimitKind.RATE


def test_a_full_quota_knows_when_it_has_room() -> None:
    desk, gate = _quota()
    assert (gate.slot(0.0), gate.wait(0.0)) == (0.0, 0.0), "nobody knows yet"
    gate.waiters = deque("x")
    gate.awaited(0.0)
    desk.lend(LeaseGrant(gate.name, sharers=2, leaving=((20.0, 2), (40.0, 4))))
    assert (gate.free_at(0.0), gate.wait(0.0)) == (20.0, 20.0)
    slots = [desk.limits.reserve((gate,), 0.0, RerouteOptions(quota=True), quota_taken=False) for _ in range(4)]
    assert [slot.at for slot in slots] == [20.0, 40.0, 40.0, 80.0]
    assert desk.borrower.due == 1.0, "others may give some back"
    assert desk.borrower.collect(1.0)[0].wanted == 1
    assert desk.borrower.due == 2.0
    desk.lend(_tokens(gate, 1), 1.1)
    assert gate.free(1.2)
    assert gate.slot(1.2) == 1.2
    assert gate.room(1.2) == 1
    desk.limits.start((gate,), 1.2, quota_taken=False)
    assert not gate.idle(1.2)


def test_a_cap_opens_while_its_permits_last() -> None:
    desk, gate = _cap()
    gate.waiters = deque("xy")
    gate.awaited(0.0)
    assert desk.borrower.collect(0.0) == [LeaseRequest(gate.name, ConcurrencySpec(4), 2)]
    desk.borrower.accept([LeaseGrant(gate.name, permits=2, fair=2)], 0.0, 0.1)
    assert gate.room(0.1) == 2
    assert gate.free(0.1)
    desk.limits.start((gate,), 0.1, quota_taken=False)
    assert gate.free(0.1)
    assert not gate.free(HOLD), "it may have been lent to others since"
    desk.limits.start((gate,), 0.1, quota_taken=False)
    gate.waiters.clear()
    desk.borrower.collect(0.2)
    desk.borrower.accept([LeaseGrant(gate.name, permits=2, fair=1)], 0.2, 0.2)
    assert not gate.free(0.2)
    gate.finish()
    assert desk.rings == 2, "others wait for it"
    (ask,) = desk.borrower.collect(0.3)
    assert (ask.wanted, ask.held) == (2, 1)
    assert desk.borrower.leave(0.3) == [LeaseRequest(gate.name, ConcurrencySpec(4), 0, 1)]


def test_an_idle_cap_gives_its_permits_back_and_is_forgotten() -> None:
    desk, gate = _cap()
    gate.waiters = deque("x")
    gate.awaited(0.0)
    desk.lend(LeaseGrant(gate.name, permits=1, fair=1))
    gate.waiters.clear()
    gate.start(0.0)
    gate.finish()
    asked = []
    for step in range(1, 6):
        for ask in desk.borrower.collect(step / 10):
            asked.append((ask.wanted, ask.held))
            permits = min(ask.wanted, 1)
            desk.borrower.accept([LeaseGrant(gate.name, permits=permits, fair=permits)], step / 10, step / 10)
    assert asked == [(1, 1), (0, 0)]
    assert desk.borrower.active == {}


def test_without_the_store_each_takes_its_part_and_says_so_later() -> None:
    desk = Desk(RATE, QUOTA, CAP)
    rate, quota, cap = desk.gates
    assert isinstance(rate, LeasedRate)
    assert isinstance(quota, LeasedQuota)
    for gate in (rate, quota, cap):
        gate.waiters = deque("x")
        gate.awaited(0.0)
    asks = desk.borrower.collect(0.0)
    loans = [_tokens(rate, 5), _tokens(quota, 5), LeaseGrant(asks[2].gate, permits=4, fair=4)]
    desk.borrower.accept(loans, 0.0, 0.0)
    assert desk.borrower.fall_back(1.0) == list(desk.gates)
    assert (desk.borrower.failed, len(desk.borrower.active)) == (1, 3)
    for gate in desk.gates:
        gate.waiters.clear()
    started = 0
    while desk.limits.start(desk.gates, 1.0, quota_taken=False) is None:
        started += 1
    assert started == 2, "the cap's part"
    assert (rate.interval, rate.burst, quota.amount) == (0.2, 10, 3)
    assert [gate.room(1.0) for gate in desk.gates] == [1, 1, 1]
    assert rate.wait(1.0) == 0.0
    assert desk.limits.reserve(desk.gates, 1.0, RerouteOptions(rate_after=60.0), quota_taken=False).at == 1.0
    assert desk.limits.reserve(desk.gates, 1.0, RerouteOptions(rate_after=60.0), quota_taken=False).at >= 61.0
    cap.finish()
    cap.awaited(1.0)
    rings = desk.rings
    assert desk.borrower.come_back(2.0) == []
    assert desk.rings == rings
    assert [ask.spent for ask in desk.borrower.collect(2.0)] == [2, 2, 0]
    assert [ask.spent for ask in desk.borrower.leave(2.0)] == [0, 0, 0]


def test_a_gate_made_while_the_store_is_down_has_its_part() -> None:
    desk = Desk(Rate("uid", Pace(10, 1_000, 20), shared=True))
    desk.borrower.fall_back(0.0)
    (gate,) = desk.limits.gates_of({"uid": "new"}, "")
    assert isinstance(gate, LeasedRate)
    assert (gate.interval, gate.burst) == (0.2, 10)


def test_other_limits_are_borrowed_of_from_then_on() -> None:
    desk = Desk(RATE, QUOTA, CAP)
    rate, quota, cap = desk.gates
    assert isinstance(rate, LeasedRate)
    assert isinstance(quota, LeasedQuota)
    assert isinstance(cap, LeasedCap)
    quota.waiters = deque("x")
    quota.awaited(0.0)
    desk.lend(LeaseGrant(quota.name, sharers=2, leaving=((20.0, 2),)))
    desk.limits.share_out(4)
    assert (rate.interval, rate.divided, quota.amount, cap.limit) == (0.1, (0.4, 5), 1, 1)
    assert quota.free_at(0.0) == 20.0
    faster = Rate(None, Pace(100, 1_000, 200), shared=True)
    desk.limits.apply_limits((faster, Quota(None, 60, 60_000, shared=True), Concurrency(None, 8, shared=True)), 0.0)
    assert (rate.terms, quota.terms, cap.terms) == (RateSpec(0.01, 200), QuotaSpec(60, 60.0), ConcurrencySpec(8))
    assert (rate.interval, quota.amount, cap.limit) == (0.01, 15, 2)
    assert quota.free_at(0.0) == NEVER, "who was full may have room"
    desk.borrower.fall_back(0.0)
    desk.limits.share_out(2)
    assert (rate.interval, rate.burst) == (0.02, 100)


def test_promises_of_a_quota_go_by_its_part_while_the_store_is_down() -> None:
    desk, gate = _quota()
    desk.borrower.fall_back(0.0)
    for _ in range(3):
        desk.limits.start((gate,), 0.0, quota_taken=False)
    assert desk.limits.reserve((gate,), 0.0, RerouteOptions(quota=True), quota_taken=False).at == 61.0
