"""One reader of stats for a worker: which lane when, who is told, and the broker's answer in our types."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest
from kodo_consumer.adapters.pulsar.cluster_admin import lane_stats
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.policy import Lane, Policy
from kodo_consumer.runtime.supervisor import ROUND, StatsReader

from kodoctl.errors import ClusterError, error
from tests.unit.consumer.engine_bench import L1, policy


class Said:
    """A cluster that answers for lanes, or fails."""

    def __init__(self, of: Policy) -> None:
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.heard: list[tuple[Lane, LaneStats | None]] = []
        self.reader = StatsReader(
            of, cast("Any", self), [lambda lane, stats: self.heard.append((lane, stats))], set(), cast("Any", None)
        )

    def partitions(self, topic: str) -> int | None:
        raise NotImplementedError

    subscriptions = partitions
    unacked_limits = delays = largest = partitions

    def stats(self, topic: str, subscription: str) -> LaneStats | None:
        self.asked.append(topic)
        if topic in self.broken:
            raise ClusterError(error("K514", "no broker answers"))
        return LaneStats(backlog=len(self.asked))

    def close(self) -> None:
        """Nothing to leave."""


def test_the_ground_topics_lane_is_read_at_every_look_and_each_other_one_once_a_round() -> None:
    of = policy()
    said = Said(of)
    for _ in range(ROUND):
        said.reader.read_due_lanes()
    asked = Counter(said.asked)
    assert asked.pop(of.ground_lane.topic) == ROUND
    assert set(asked) == {lane.topic for lane in of.lanes if lane is not of.ground_lane}
    assert max(asked.values()) <= 2
    assert len(said.asked) <= 3 * ROUND
    assert set(said.reader.last) == {lane.index for lane in of.lanes}


def test_a_lane_that_is_watched_closely_is_read_at_every_look() -> None:
    of = policy()
    said = Said(of)
    said.reader.closely.add(3)
    for _ in range(ROUND):
        said.reader.read_due_lanes()
    assert Counter(said.asked)[of.lanes[3].topic] == ROUND


def test_a_single_lane_is_enough() -> None:
    said = Said(policy(levels=(L1,), states=()))
    said.reader.read_due_lanes()
    said.reader.read_due_lanes()
    assert len(said.asked) == 2


def test_a_lane_that_cannot_be_read_is_told_as_unknown_and_not_remembered() -> None:
    of = policy(levels=(L1,), states=())
    said = Said(of)
    said.reader.read_due_lanes()
    said.broken.add(of.lanes[0].topic)
    said.reader.read_due_lanes()
    assert said.reader.last == {}
    assert said.heard == [(of.lanes[0], LaneStats(backlog=1)), (of.lanes[0], None)]


def _fail(*_: object) -> None:
    raise ZeroDivisionError


def test_one_who_fails_keeps_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    said = Said(policy(levels=(L1,), states=()))
    said.reader.listeners.insert(0, _fail)
    said.reader.read_due_lanes()
    assert len(said.heard) == 1
    assert "ZeroDivisionError" in caplog.text


def test_the_answer_of_all_partitions_is_one_reading() -> None:
    def part(name: str, oldest: int, *, blocked: bool) -> dict[str, object]:
        consumers = [
            {"consumerName": name, "blockedConsumerOnUnackedMsgs": blocked, "availablePermits": 7},
            {"consumerName": "b", "blockedConsumerOnUnackedMsgs": False, "availablePermits": -3},
            {"consumerName": "c", "blockedConsumerOnUnackedMsgs": False},
            {"consumerName": "c", "blockedConsumerOnUnackedMsgs": True},
        ]
        sub = {
            "msgBacklog": 3, "msgDelayed": 1, "unackedMessages": 2, "msgRateOut": 1.5, "msgOutCounter": 5, "consumers": consumers,
            "earliestMsgPublishTimeInBacklog": oldest, "subscriptionProperties": {"kodo-steer": "{}"},
        }  # fmt: skip
        return {"msgRateIn": 4.0, "subscriptions": {"s": sub, "other": {"msgBacklog": 9}}}

    answer = {
        "partitions": {"p-partition-0": part("a", 50, blocked=True), "p-partition-1": part("a", 40, blocked=False)}
    }
    assert lane_stats(answer, "s") == LaneStats(
        workers=frozenset("abc"), blocked=frozenset("a"), backlog=6, delayed=2, unacknowledged=4, rate_in=8.0,
        dispatched=10, permits=14, oldest=40, properties={"kodo-steer": "{}"},
        partitions=2,
    )  # fmt: skip
    answer["partitions"]["p-partition-1"]["msgChunkPublished"] = True
    assert (found := lane_stats(answer, "s")) is not None
    assert found.chunks
    assert lane_stats(answer, "nobody") is None
    assert lane_stats({}, "s") is None
    quiet = lane_stats({"partitions": {"p-partition-0": {"subscriptions": {"s": {"msgBacklog": 0}}}}}, "s")
    assert quiet == LaneStats()


def test_a_count_below_none_is_no_count_also_where_the_sum_hides_it() -> None:
    """As measured: consumers that died had acknowledged parts of batches."""
    parts = {f"p-{index}": {"subscriptions": {"s": {"msgBacklog": 6, "unackedMessages": count}}}
             for index, count in enumerate((4_000, -3_199))}  # fmt: skip
    found = lane_stats({"partitions": parts}, "s")
    assert found is not None
    assert (found.backlog, found.unacknowledged) == (12, None)


def test_of_partitions_that_could_not_be_asked_a_reading_knows() -> None:
    """What is the same on all of them is known by one; sums are not."""
    sub = {"msgBacklog": 3, "consumers": [{"consumerName": "a"}], "subscriptionProperties": {"kodo-steer": "{}"}}
    found = lane_stats(
        {"metadata": {"partitions": 3}, "partitions": {"p-partition-0": {"subscriptions": {"s": sub}}}}, "s"
    )
    assert found is not None
    assert (found.whole, found.partitions, found.workers) == (False, 3, {"a"})
    assert found.properties == {"kodo-steer": "{}"}
