"""Tenants of whom nothing is known: they have the slots that they need while they are quick, and no more."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from kodo_consumer.core.state import tenant_ring
from kodo_consumer.core.state.tenant_filter import TenantFilter
from kodo_consumer.core.state.tenant_queue import TenantQueue
from kodo_consumer.core.state.tenant_ring import DeficitRoundRobin
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Rate

from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.engine_bench import L1, policy
from tests.unit.consumer.shop import Shop

if TYPE_CHECKING:
    from kodo_consumer.message import Message

READY, RETRYING = 0, 1
SLOTS = 16


def _shop(quick: float = 0.01, slow: float = 30.0, slots: int = SLOTS, **changes: Any) -> Shop:
    of = policy((L1,), (State.RETRYING,), fair_by="u", concurrency=slots, handler_timeout=600_000, **changes)
    return Shop(of, lambda message: slow if message.tenant.startswith("ill") else quick, as_threads=True)


def _traffic(shop: Shop, rate: float, until: float, once: float) -> int:
    """Messages at random moments, a part of them of tenants that come once; how many from second 5 on."""
    rng, at, number, late = Random(2), 0.0, 0, 0
    while (at := at + rng.expovariate(rate)) < until:
        number += 1
        late += at >= 5
        shop.comes(at, f"once{number}" if rng.random() < once else f"good{number % 50}")
    return late


def _waits(shop: Shop) -> list[float]:
    waits = sorted(one.wait for one in shop.started if not one.tenant.startswith("ill") and one.at - one.wait >= 5)
    return waits or [float("inf")]


@pytest.mark.simulated
@pytest.mark.parametrize(("once", "part"), [(0.5, 0.99), (1.0, 0.9)])
def test_where_nobody_is_slow_tenants_that_come_once_have_the_slots_too(once: float, part: float) -> None:
    """All but one of them, where everybody is a newcomer."""
    shop = _shop(0.05)
    _traffic(shop, 1.3 * SLOTS / 0.05, 20.0, once)
    shop.run(20)
    started = sum(1 for one in shop.started if one.at >= 5)
    assert started >= part * 15 * SLOTS / 0.05


def test_with_few_slots_newcomers_have_every_slot() -> None:
    shop = _shop(0.02, slots=2)
    _traffic(shop, 150, 20.0, 1.0)
    shop.run(20)
    assert sum(1 for one in shop.started if one.at >= 5) >= 0.97 * 15 * 100


@pytest.mark.simulated
@pytest.mark.parametrize("once", [0.1, 0.5])
def test_an_outage_in_another_lane_does_not_delay_tenants_that_come_once(once: float) -> None:
    shop = _shop()
    sent = _traffic(shop, 100, 40.0, once)
    for number in range(1_000):
        shop.comes(10 + number / 1e6, f"ill{number % 50}", RETRYING)
    shop.run(40)
    waits = _waits(shop)
    assert len(waits) >= sent - 2
    assert waits[len(waits) * 99 // 100] <= 0.1
    assert sum(shop.busy[f"ill{number}"] for number in range(50)) >= 13


def test_an_outage_of_newcomers_in_the_same_lane_is_over_for_others_when_those_have_been_tried() -> None:
    shop = _shop(slow=2.0)
    sent = _traffic(shop, 100, 50.0, 0.1)
    for number in range(4_000):
        shop.comes(10 + number / 1e6, f"ill{number % 200}", READY)
    shop.run(60)
    waits = _waits(shop)
    assert len(waits) >= 0.99 * sent
    assert waits[len(waits) // 2] <= 0.01
    assert waits[len(waits) * 99 // 100] <= 4.0, "one that comes once waits until one of them has been tried"


@INTERPRETED_ONLY
@pytest.mark.parametrize("regular", [40, 60, 200])
@pytest.mark.parametrize("ill", [5, 80])
def test_more_regular_tenants_or_more_slow_ones_than_are_remembered(
    regular: int, ill: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_ring, "MAX_TENANTS", 50)
    shop = _shop()
    for number in range(4_000):
        shop.comes(number / 100, f"good{number % regular}")
    for number in range(20 * ill):
        shop.comes(10.0, f"ill{number % ill}")
    shop.run(40)
    waits = _waits(shop)
    assert len(waits) == 3_500
    assert waits[-1] <= 0.1
    assert len(shop.engine.lanes[0].ring._queues) <= 50 + ill, "and those that have messages"


@INTERPRETED_ONLY
def test_what_is_remembered_shrinks_again_when_fewer_have_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_ring, "MAX_TENANTS", 50)
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    for number in range(500):
        ring.push(f"one{number}", number)
    assert len(ring._queues) == 500, "all of them have messages"
    while ring.take() is not None:
        pass
    for number in range(40):
        ring.push(f"other{number}", number)
        ring.take()
    assert len(ring._queues) == 50


def test_a_filter_has_the_tenants_added_last_and_few_others() -> None:
    of = TenantFilter()
    assert "any" not in of
    for number in range(100_000):
        of.add(f"t{number}")
    assert all(f"t{number}" in of for number in range(40_000, 100_000))
    assert sum(f"u{number}" in of for number in range(10_000)) <= 200
    for number in range(100_000, 170_000):
        of.add(f"t{number}")
    assert sum(f"t{number}" in of for number in range(10_000)) <= 200, "what was long ago is forgotten"


def test_a_paused_newcomer_stops_no_other() -> None:
    shop = _shop(slow=4.0)
    for number in range(60):
        shop.comes(0.0, f"ill{number}")
    shop.run(5)
    shop.engine.apply_policy(shop.policy, paused=frozenset({"once"}))
    shop.comes(6.0, "once")
    for number in range(20):
        shop.comes(7.0 + number, f"other{number}")
    shop.run(50)
    assert len(shop.waits("other")) == 20
    assert not shop.waits("once")
    shop.engine.apply_policy(shop.policy)
    shop.run(200)
    assert len(shop.waits("once")) == 1


def test_a_newcomer_whose_first_handler_shows_it_slow_waits_among_the_slow_ones() -> None:
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    ring.newcomers_slow = True
    queue = ring.push("new", 1)
    assert list(ring.newcomers) == [queue]
    queue.slow = True
    ring.readmit_newcomer()
    assert (ring.quick.count, ring.slow.count) == (0, 1)


def test_a_newcomer_whose_first_handler_shows_it_quick_waits_among_the_quick_ones() -> None:
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    ring.newcomers_slow = True
    queue = ring.push("new", 1)
    ring.push("other", 2)
    assert ring.waiting(frozenset({"other", "nobody"})) == (0, 1)
    queue.slow = False
    ring.on_recovery(queue)
    assert (ring.quick.count, len(ring.newcomers)) == (1, 1)
    ring.clear()
    assert (len(ring), len(ring.newcomers)) == (0, 0)


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(12))
def test_random_histories_end_with_everything_handled(seed: int) -> None:
    """Arrivals, lanes, durations, limits and pauses at random; slots that are asked for only when a thread is woken."""
    rng = Random(seed)
    limits = [(), (Concurrency("u", rng.choice([1, 2]), shared=False),), (Rate("u", Pace(10, 1_000, 5), shared=False),)]
    of = policy(
        (L1,), (State.RETRYING,), fair_by="u", concurrency=rng.choice([1, 2, 3, 8, 16]), limits=rng.choice(limits)
    )
    quick, slow = rng.choice([0.001, 0.02, 0.1]), rng.choice([0.5, 3.0])
    hangs = {f"good{number}" for number in range(20) if rng.random() < 0.1}

    def seconds(message: Message) -> float:
        late = 5 <= shop.clock.now() < 10
        return slow if message.tenant.startswith("ill") or (late and message.tenant in hangs) else quick

    shop = Shop(replace(of, handler_timeout=600_000), seconds, as_threads=True)
    for number in range(600):
        tenant = rng.choice([f"good{rng.randrange(20)}", f"once{number}", f"ill{rng.randrange(30)}"])
        shop.comes(rng.uniform(0, 20), tenant, rng.choice([0, 0, 1]))
    for pause in sorted(rng.uniform(0, 20) for _ in range(3)):
        shop.run(pause)
        paused = frozenset({f"good{rng.randrange(20)}", f"ill{rng.randrange(30)}"})
        shop.engine.apply_policy(shop.policy, paused=paused)
    shop.run(20)
    shop.engine.apply_policy(shop.policy)
    shop.run(2_000)
    assert len(shop.started) == 600
    assert shop.engine.check_invariants() == []
    slots = shop.engine.scheduler.slots
    assert slots is not None
    assert (len(slots.slow_running), len(slots._newcomers.running), len(slots._running)) == (0, 0, 0)
    assert not slots.any_waiting
    assert [lane.ring.new_running for lane in shop.engine.lanes] == [0, 0]


@INTERPRETED_ONLY
def test_what_is_known_of_a_tenant_that_was_forgotten_while_its_handler_ran_counts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_ring, "MAX_TENANTS", 2)
    ring: DeficitRoundRobin[int] = DeficitRoundRobin()
    queue = ring.push("long", 0)
    assert ring.take() == 0
    for number, tenant in enumerate(("a", "b", "c"), 1):
        ring.push(tenant, number)
        assert ring.take() == number
    assert ring.push("long", 4) is not queue, "it was forgotten"
    assert ring.take() == 4
    for number, tenant in enumerate(("d", "e", "f"), 5):
        ring.push(tenant, number)
        assert ring.take() == number
    queue.slow = True
    ring.remember(queue)
    assert ring.push("long", 9) is queue
    assert ring.count(slow=True) == 1
    few, one = DeficitRoundRobin[int](), TenantQueue[int]("one", 1)
    few.remember(one)
    assert few.push("one", 1) is one
