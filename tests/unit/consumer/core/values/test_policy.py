"""Policies as data."""

from __future__ import annotations

import pytest
from kodo_consumer.core.values.delay_schedule import JITTER, MAX_MEMORY_WAIT, DelaySchedule
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.limit_policy import NOBODY, value_of
from kodo_consumer.core.values.policy import MAX_RATE_DUE

from kodoctl.topology import defaults
from tests.unit.consumer.engine_bench import policy


def test_the_last_delay_repeats() -> None:
    waits = DelaySchedule((1, 2, 3), 5)
    assert [waits.delay(attempt) for attempt in (1, 2, 3, 4, 99)] == [1, 2, 3, 3, 3]


def test_a_level_on_its_way_out_waits_where_l1_does() -> None:
    of = policy(draining=(Level.L2,))
    assert of.is_draining(Level.L2)
    assert of.target(Level.L2, State.RETRYING) == of.targets[Level.L1, State.RETRYING]
    assert of.target(Level.L2, State.READY) is None
    assert of.target(Level.B1, State.RETRYING) is None


def test_the_tenant_is_the_fair_by_value() -> None:
    assert policy().tenant({"uid": "a"}, "k") == NOBODY
    assert policy(fair_by="uid").tenant({"uid": "a"}, "k") == "a"
    assert policy(fair_by="uid").tenant({}, "k") == NOBODY
    assert policy(fair_by="key").tenant({}, "k") == "k"
    assert value_of("key", {"key": "property"}, "") == NOBODY


@pytest.mark.parametrize(
    ("messages", "queue", "batch", "held"),
    [(50_000, 1_111, 500, 35_501), (100, 2, 1, 73), (1, 1, 1, 1), (10**6, 2_000, 500, 977_500)],
)
def test_receiver_queues_and_batches_on_their_way_are_part_of_the_lookahead(
    messages: int, queue: int, batch: int, held: int
) -> None:
    of = policy(lookahead_messages=messages)
    assert len(of.lanes) == 9
    assert (of.queue, of.batch, of.max_held) == (queue, batch, held)
    assert of.lanes[0].name == "L2/ready"


def test_what_plans_and_workers_go_by_is_the_same_though_workers_do_not_load_the_file_s_model() -> None:
    assert MAX_MEMORY_WAIT == defaults.MAX_IN_MEMORY_WAIT
    assert JITTER == defaults.JITTER
    assert defaults.RATE_WAIT == defaults.LIMIT_WAIT == MAX_RATE_DUE
