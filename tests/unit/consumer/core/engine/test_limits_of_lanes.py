"""Limits of some lanes in the whole engine, in virtual time: their law holds for those lanes, and others never meet them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from kodo_consumer.core.state.in_flight import Stage
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_set import LaneSet
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate

from tests.unit.consumer.engine_bench import L1, L2, Bench, delivery, lane_of, policy
from tests.unit.consumer.shop import Shop

RETRYING = LaneSet((State.RETRYING,))
BOTH = LaneSet((State.RETRYING, State.PENDING))
RATE = Rate(None, Pace(10, 1_000, 1), shared=False, within=RETRYING)


def _started(shop: Shop, tenant: str, until: float) -> int:
    return sum(one.tenant == tenant and one.at < until for one in shop.started)


def test_a_rate_of_retrying_holds_over_its_lanes_and_no_others() -> None:
    of = policy((L2, L1), fair_by="u", concurrency=8, limits=(RATE,))
    shop = Shop(of, lambda _: 0.001)
    for number in range(200):
        shop.comes(0.0, "retry", lane_of(of, (L1, L2)[number % 2], State.RETRYING))
        shop.comes(0.0, "new", lane_of(of, L1, State.READY))
    shop.run(30.0)
    assert _started(shop, "new", 1.0) == 200
    assert [_started(shop, "retry", second + 0.05) for second in (1, 5, 10)] == [11, 51, 101]
    assert len(shop.started) == 400
    assert not shop.engine.context.effects.publish, "nothing went where the rate does not hold"


@pytest.mark.parametrize(("within", "leaves"), [(RETRYING, False), (BOTH, True), (LaneSet(levels=(L1,)), True)])
@pytest.mark.parametrize("kind", ["rate", "quota"])
def test_what_is_refused_leaves_only_for_a_lane_where_the_limit_holds(kind: str, within: LaneSet, leaves: bool) -> None:
    if kind == "quota" and within is BOTH:
        within = replace(BOTH, states=(*BOTH.states, State.BLOCKING))
    limits: dict[str, Any] = {
        "rate": Rate(None, Pace(1, 60_000, 1), shared=False),
        "quota": Quota(None, 1, 600_000, shared=False),
    }
    bench = Bench(policy((L1,), limits=(replace(limits[kind], within=within),)))
    bench.give(*(delivery(number) for number in range(5)), state=State.RETRYING)
    assert len(bench.take_all()) == 1
    assert len(bench.published()) == (4 if leaves else 0)
    stages = Counter(held.stage for held in bench.engine.lanes[lane_of(bench.policy, L1, State.RETRYING)])
    assert stages[Stage.PUBLISHING] == (4 if leaves else 0)
    assert bench.engine.check_invariants() == []


def test_what_waits_in_memory_for_a_quota_starts_when_its_window_has_room() -> None:
    of = policy((L1,), fair_by="u", limits=(Quota(None, 2, 60_000, shared=False, within=RETRYING),))
    shop = Shop(of, lambda _: 0.001)
    for _ in range(5):
        shop.comes(0.0, "retry", lane_of(of, L1, State.RETRYING))
    shop.trickle(["new"], 1.0, 200.0)
    shop.run(200.0)
    moments = [round(one.at) for one in shop.started if one.tenant == "retry"]
    assert moments[:2] == [0, 0]
    assert all(60 <= later - earlier <= 62 for earlier, later in zip(moments, moments[2:], strict=False))
    assert len(moments) == 5


def test_a_concurrency_of_a_level_passes_over_its_messages_alone() -> None:
    limit = Concurrency("u", 2, shared=False, within=LaneSet(levels=(L2,)))
    bench = Bench(policy((L2, L1), concurrency=32, limits=(limit,)))
    for level in (L2, L1):
        bench.give(*(delivery(10 * (level is L1) + number, u="a") for number in range(4)), level=level)
    taken = Counter(message.level for message in bench.take_all())
    assert taken == {L2: 2, L1: 4}
