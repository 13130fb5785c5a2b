"""Who the active consumers of a failover topic are: asked twice a second, of the lanes that have them, in our types."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest
from kodo_consumer.adapters.pulsar.active_consumers import active_consumers
from kodo_consumer.core.state.failover_partitions import ASK_EVERY
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.policy import Lane
from kodo_consumer.runtime.active_consumer_poller import ActiveConsumers, lanes_with_active_consumers
from kodo_consumer.testing import ManualClock

from kodoctl.errors import ClusterError, error
from tests.unit.consumer.engine_bench import L1, L2, policy

FAILOVER = policy((L2, L1), ordered=True, subscription_type="failover")


class Said:
    """A cluster that takes its time to answer, or fails."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.takes = 0.0
        self.broken = False
        self.heard: list[tuple[str, Mapping[str, str] | None, float]] = []
        self.over = threading.Event()
        self.asking = ActiveConsumers(FAILOVER.ground_lane, "s", cast("Any", self), self.clock, self.hear)

    def partitions(self, topic: str) -> int | None:
        raise NotImplementedError

    subscriptions = stats = partitions
    unacked_limits = delays = largest = schema = partitions

    def active(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        self.clock.advance(self.takes)
        if self.broken:
            raise ClusterError(error("K514", "no broker answers"))
        return {"0": f"{topic} {subscription}"}

    def hear(self, lane: Lane, named: Mapping[str, str] | None, asked: float) -> None:
        self.heard.append((lane.topic, named, asked))
        if len(self.heard) == 3:
            self.over.set()

    def close(self) -> None:
        """Nothing to leave."""


def test_only_the_ready_lanes_of_a_failover_subscription_have_active_consumers() -> None:
    assert [lane.state for lane in lanes_with_active_consumers(FAILOVER)] == [State.READY, State.READY]
    for kind in ("shared", "key_shared", "exclusive"):
        assert lanes_with_active_consumers(policy(subscription_type=kind)) == []


def test_an_answer_is_told_with_the_moment_it_was_asked_for() -> None:
    said = Said()
    said.takes = 0.2
    asked = said.clock.now()
    assert said.asking.ask() == pytest.approx(ASK_EVERY - 0.2)
    topic = FAILOVER.ground_lane.topic
    assert said.heard == [(topic, {"0": f"{topic} s"}, asked)]
    said.takes = 30.0
    assert 0 < said.asking.ask() < ASK_EVERY, "no question follows another without a pause"


def test_a_cluster_that_cannot_be_asked_is_told_as_not_known_and_asked_again() -> None:
    said = Said()
    said.broken = True
    said.asking.run(said.over)
    assert [named for _, named, _ in said.heard] == [None, None, None]


def test_the_brokers_answer_by_partition() -> None:
    def part(**sub: object) -> dict[str, object]:
        return {"subscriptions": {"s": sub}}

    name = "persistent://p/n/my-partition-7-partition"
    answer = {
        "partitions": {
            f"{name}-0": part(activeConsumerName="anna"),
            f"{name}-1": part(type="Failover"),
            f"{name}-10": {},
        }
    }
    assert active_consumers(answer, "s") == {"0": "anna", "1": "", "10": ""}
    assert active_consumers(answer, "nobody") is None
    assert active_consumers({}, "s") is None
