"""Live orders for handler slots: whose bulkhead they change, in proportion where a worker has other slots, and at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_consumer.core.upkeep.override_state import apply_overrides, why_not_followed
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.slot_overrides import bulkheads_with
from kodo_consumer.runtime.batch_executor import Batching
from kodo_consumer.runtime.handler_spec import HandlerSpec
from kodo_consumer.runtime.middleware import Hooks

from kodoctl.protocol.overrides import Override, OverrideKind
from tests.unit.consumer.engine_bench import L2, Bench, delivery, policy

RETRYING = Bulkhead(LaneSet((State.RETRYING,)), 8, 1)
MADE = policy(concurrency=32, bulkheads=(RETRYING,))


def order(within: str, to: str) -> Override:
    return Override(OverrideKind.SLOTS, 1, 2, "ann@desk", within=within, to=to)


@pytest.mark.parametrize(
    ("within", "to", "expected"),
    [
        ("retrying", "max 2", (replace(RETRYING, most=2),)),
        ("retrying", "min 4", (replace(RETRYING, least=4),)),
        ("retrying", "max 9 min 0", (replace(RETRYING, most=9, least=0),)),
        ("L2", "max 3", (RETRYING, Bulkhead(LaneSet((), (Level.L2,)), 3))),
        ("pending", "min 3", (RETRYING, Bulkhead(LaneSet((State.PENDING,)), None, 3))),
        ("L2/retrying", "max 1", (RETRYING, Bulkhead(LaneSet((State.RETRYING,), (Level.L2,)), 1))),
        ("L7/retrying", "max 1", (RETRYING,)),
        ("retrying", "nothing", (RETRYING,)),
    ],
)
def test_an_order_changes_the_bulkhead_of_its_lanes_or_adds_one(
    within: str, to: str, expected: tuple[Bulkhead, ...]
) -> None:
    assert bulkheads_with(MADE, [order(within, to)]) == expected


def test_a_minimum_that_the_file_has_since_an_order_for_fewer_slots_keeps_none_that_nothing_may_use() -> None:
    bench = Bench(policy(concurrency=8, reserves_slots=False, bulkheads=(Bulkhead(LaneSet((), (L2,)), 8, 5),)))
    bench.give(*(delivery(number) for number in range(20)))
    bench.give(*(delivery(100 + number) for number in range(20)), level=L2)
    bench.engine.apply_policy(apply_overrides(bench.policy, [order("L2", "max 2")]))
    assert len(bench.take_all()) == 8


def test_other_orders_change_no_bulkhead_and_later_ones_count_on_top() -> None:
    pause = Override(OverrideKind.PAUSE, 1, 2, "ann@desk", tenant="u1")
    assert apply_overrides(MADE, [pause]).bulkheads == MADE.bulkheads
    both = [order("retrying", "max 2"), order("L2", "min 1")]
    assert [str(one) for one in apply_overrides(MADE, both).bulkheads] == ["retrying max 2 min 1", "L2 min 1"]


def test_a_worker_with_other_slots_takes_an_order_in_proportion() -> None:
    processes = HandlerSpec(print, processes=4).policy_for_worker(MADE, Hooks())
    assert [str(one) for one in bulkheads_with(processes, [order("retrying", "max 16 min 8")])] == [
        "retrying max 2 min 1"
    ]
    batches = HandlerSpec(print, batching=Batching(10, 0.001)).policy_for_worker(MADE, Hooks())
    assert [str(one) for one in bulkheads_with(batches, [order("retrying", "max 2")])] == ["retrying max 20 min 10"]


def test_lanes_that_are_not_there_are_named_with_those_that_are() -> None:
    assert why_not_followed(order("retrying", "max 2"), MADE) == ""
    said = why_not_followed(order("L7", "max 2"), MADE)
    assert said.startswith("no state, level or lane L7; there is ")
    assert "L1/ready" in said


def test_an_order_counts_from_the_next_start_on() -> None:
    bench = Bench(policy(concurrency=8, reserves_slots=False))
    bench.give(*(delivery(number) for number in range(20)), level=L2)
    bench.engine.apply_policy(apply_overrides(bench.policy, [order("L2", "max 3")]))
    assert len(bench.take_all()) == 3
    bench.engine.apply_policy(bench.policy)
    assert len(bench.take_all()) == 17
    assert bench.engine.check_invariants() == []
