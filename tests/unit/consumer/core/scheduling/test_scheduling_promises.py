"""What is promised of fairness, in virtual time and with the whole engine: equal demand, weights, windows, memory."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kodo_consumer.core.state.tenant_ring import MAX_TENANTS
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.policy import Policy

from tests.unit.consumer.engine_bench import L1, L2, STATES, Bench, delivery, policy
from tests.unit.consumer.shop import Shop, jain

TENANTS = [f"t{number}" for number in range(20)]
WEIGHTS = (33, 20, 10, 3, 17, 10, 5, 2)  # of eight lanes: 100 together


def _busy(seconds: float, **changes: Any) -> Shop:
    """Twenty tenants that always have work, one of them a flood before all others; handlers take 5 to 15 ms at random."""
    rng = Random(5)
    shop = Shop(policy((L1,), states=(), fair_by="u", concurrency=16, **changes), lambda _: rng.uniform(0.005, 0.015))
    for _ in range(3_000):
        shop.comes(0.0, TENANTS[0])
    for number in range(int(seconds * 2_000)):
        shop.comes(0.0, TENANTS[1 + number % 19])
    for tenant, weight in shop.policy.tenant_weights.items():
        for _ in range(int(seconds * 105 * (weight - 1))):
            shop.comes(0.0, tenant)
    shop.run(seconds)
    return shop


def test_equal_demand_is_served_equally_over_all_and_in_every_window_of_a_second() -> None:
    shop = _busy(4)
    served = Counter(one.tenant for one in shop.started)
    assert served.total() > 6_000
    assert jain(served[tenant] for tenant in TENANTS) >= 0.999
    moments = [one.at for one in shop.started]
    worst = 1.0
    for begin in range(0, 300, 5):
        first, last = bisect_left(moments, begin / 100), bisect_left(moments, begin / 100 + 1)
        window = Counter(one.tenant for one in shop.started[first:last])
        worst = min(worst, *(window[tenant] * len(TENANTS) / (last - first) for tenant in TENANTS))
    assert worst >= 0.9, f"the worst served got {worst:.3f} of its fair share"


def test_tenant_weights_hold_to_a_point_in_a_hundred() -> None:
    shop = _busy(4, tenant_weights={"t1": 3, "t2": 2})
    served = Counter(one.tenant for one in shop.started)
    together = len(TENANTS) + 3
    for tenant in TENANTS:
        fair = {"t1": 3, "t2": 2}.get(tenant, 1) / together
        assert abs(served[tenant] / served.total() - fair) <= 0.01


def _lanes(weights: tuple[int, ...]) -> Policy:
    of = policy((L2, L1), STATES, fair_by="u", lookahead_messages=1_000_000)
    lanes = tuple(replace(lane, weight=weights[lane.index]) for lane in of.lanes)
    return replace(of, lanes=lanes)


class Lanes(Bench):
    """Eight lanes with work, as many handlers as one likes."""

    def __init__(self) -> None:
        super().__init__(_lanes(WEIGHTS))
        self.number = 0

    def fill(self, lane: int, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.engine.deliver(lane, [delivery(self.number, u=f"t{self.number % 7}")])

    def serve(self, count: int) -> Counter[int]:
        """So many handler starts, by lane; none is idle while there is work."""
        served = Counter[int]()
        for _ in range(count):
            message = self.engine.take()
            assert message is not None
            served[message._lane.index] += 1
            self.engine.finish(message, DONE)
        return served


def test_lanes_weights_hold_to_a_point_in_ten_thousand_starts() -> None:
    bench = Lanes()
    for lane, weight in enumerate(WEIGHTS):
        bench.fill(lane, 100 * weight + 200)
    served = bench.serve(10_000)
    for lane, weight in enumerate(WEIGHTS):
        assert abs(served[lane] - 100 * weight) <= 1, "a hundredth of a point"


def test_an_empty_lanes_share_is_used_at_once_and_given_back_at_once() -> None:
    bench = Lanes()
    bench.fill(0, 3_000)
    bench.fill(1, 3_000)
    assert bench.serve(530) == {0: 330, 1: 200}, "two lanes have all of it"
    bench.fill(2, 10)
    served = bench.serve(63)
    assert served[2] in {9, 10, 11}, "from its first message on it has its part"
    bench.serve(30)
    assert bench.serve(53) == {0: 33, 1: 20}, "and when it has none, the others"


@pytest.mark.simulated
def test_memory_is_bounded_however_many_tenants_were_seen() -> None:
    bench = Bench(policy((L1,), states=(), fair_by="u", concurrency=16))

    def see(first: int, count: int) -> None:
        for number in range(first, first + count):
            bench.engine.deliver(0, [delivery(number, u=f"tenant-{number}")])
            message = bench.engine.take()
            assert message is not None
            bench.engine.finish(message, DONE)
            if number % 100 == 0:
                bench.engine.acknowledgements()
                bench.clock.advance(0.01)
                bench.engine.tick()

    see(0, 2 * MAX_TENANTS)
    gc.collect()
    before = len(gc.get_objects())
    see(2 * MAX_TENANTS, 2 * MAX_TENANTS)
    gc.collect()
    after = len(gc.get_objects())
    assert len(bench.engine.lanes[0].ring._queues) <= MAX_TENANTS + 1
    assert after <= 1.02 * before, "twice as many tenants leave nothing behind"
