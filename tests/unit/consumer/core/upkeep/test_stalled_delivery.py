"""Delayed delivery that stands still is told from one that has nothing to do, and ended by leaving for a moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kodo_consumer.core.upkeep.stalled_delivery import StalledDeliveryDetector
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.due_times import DueTimes
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.manual_clock import START_WALL

from tests.unit.consumer.engine_bench import L1, policy

PAUSED = LaneStats(backlog=51_002, delayed=50_068, permits=1_000, dispatched=7)  # as measured


class Watch:
    """One lane whose stats are read each five seconds."""

    def __init__(self, unread: frozenset[int] = frozenset()) -> None:
        self.clock, self.dues, self.closely = ManualClock(), DueTimes(), set[int]()
        self.lane = policy((L1,), ()).lanes[0]
        self.left: list[tuple[float, float]] = []
        self.alarms: list[Alarm] = []
        self.still = StalledDeliveryDetector(
            self.clock,
            self.dues,
            self.closely,
            lambda _lane, wait, away: self.left.append((wait, away)),
            self.alarms.append,
            unread,
        )

    def reads(self, *readings: LaneStats | None) -> None:
        for stats in readings:
            self.clock.advance(5.0)
            self.still(self.lane, stats)

    def sent(self, due_in: float) -> None:
        """This worker sends a message to the lane's topic."""
        due = self.clock.wall() + round(due_in * 1000)
        self.dues.add(Outgoing(self.lane.topic, b"", {}, deliver_at=due))


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_due_messages_that_nobody_is_sent_are_a_stand_still_at_the_second_look(watch: Watch) -> None:
    watch.reads(PAUSED, PAUSED)
    assert (watch.still.lanes, watch.closely, watch.left) == (set(), {0}, [])
    watch.reads(PAUSED)
    assert watch.still.lanes == {0}
    assert [alarm.kind for alarm in watch.alarms] == ["standstill"]
    assert "50068 delayed ones" in watch.alarms[0].text
    assert watch.left == [(5.0, 2.0)], "at the next full ten seconds of the clock, as every other worker"


@pytest.mark.parametrize("stats", [PAUSED, LaneStats(backlog=9, permits=5)], ids=["delayed", "not delayed"])
def test_of_a_lane_that_only_others_read_it_is_told_what_a_person_can_do(stats: LaneStats) -> None:
    watch = Watch(frozenset({0}))
    watch.reads(*[stats] * 8)
    assert watch.still.lanes == {0}
    assert watch.left == [], "nobody here can leave it"
    assert "unload the topic, its lane is another worker's" in watch.alarms[0].text
    assert "connected anew" not in watch.alarms[0].text


def test_it_is_tried_again_as_long_as_it_lasts_and_over_when_anything_comes(watch: Watch) -> None:
    watch.reads(*[PAUSED] * 5)
    assert len(watch.left) == 2
    watch.reads(replace(PAUSED, dispatched=8))
    assert (watch.still.lanes, watch.closely) == (set(), set())
    watch.reads(replace(PAUSED, dispatched=8))
    assert watch.still.lanes == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"delayed": 0},  # nothing waits: no business of delays
        {"permits": 0},  # nobody has room
        {"backlog": 50_068},  # all that is stored is not due
        {"unacknowledged": 934},  # what is due is held by workers
        {"unacknowledged": None},  # nobody knows
    ],
    ids=str,
)
def test_what_has_another_reason_is_none(watch: Watch, changes: dict[str, Any]) -> None:
    watch.reads(*[replace(PAUSED, **changes)] * 4)
    assert watch.left == []


STUCK = LaneStats(backlog=127, permits=1_890, dispatched=110)  # as measured: behind a chunk without its first one


def test_messages_that_wait_without_delay_while_consumers_have_room_are_a_stand_still(watch: Watch) -> None:
    watch.reads(*[STUCK] * 6)
    assert (watch.closely, watch.left) == ({0}, [])
    watch.reads(STUCK)
    assert (watch.still.lanes, len(watch.left)) == ({0}, 1)
    assert "A part of a chunked message without its first part does this" in watch.alarms[0].text
    watch.reads(replace(STUCK, dispatched=210))
    assert (watch.still.lanes, watch.closely) == (set(), set())


@pytest.mark.parametrize(
    "changes",
    [{"permits": 0}, {"unacknowledged": 127}, {"unacknowledged": None}, {"blocked": frozenset({"w"})}, {"backlog": 0}],
    ids=str,
)
def test_without_delays_too_what_has_another_reason_is_none(watch: Watch, changes: dict[str, Any]) -> None:
    watch.reads(*[replace(STUCK, **changes)] * 9)
    assert (watch.left, watch.still.lanes) == ([], set())


def test_where_order_is_kept_a_message_may_wait_for_others_of_its_key(watch: Watch) -> None:
    watch.lane = replace(watch.lane, ordered=True)
    watch.reads(*[STUCK] * 9)
    assert watch.left == []


def test_a_broker_that_reads_the_topic_anew_is_at_work(watch: Watch) -> None:
    watch.reads(*(replace(PAUSED, delayed=number * 1_000) for number in range(20, 30)))
    assert watch.left == []


def test_a_due_that_this_worker_knows_of_and_the_broker_takes_for_delayed(watch: Watch) -> None:
    """As a topic policy with a tick of its own does it: all is counted as delayed, for ever."""
    asleep = LaneStats(backlog=10, delayed=10, permits=5)
    watch.reads(asleep)
    watch.sent(1.5)
    watch.reads(asleep, replace(asleep, delayed=11, backlog=11))
    assert watch.closely == set(), "the broker may count it as delivered before the first look"
    watch.sent(1)
    watch.reads(asleep)
    assert (watch.closely, watch.left) == ({0}, [])
    watch.reads(asleep)
    assert watch.left == [(5.0, 2.0)]
    watch.reads(*[asleep] * 11)
    assert (len(watch.left), watch.still.lanes) == (1, {0}), "a broker takes its time to read a large topic"
    watch.sent(12)
    watch.reads(*[asleep] * 6)
    assert len(watch.left) == 2


def test_what_cannot_be_read_is_no_sign_of_anything(watch: Watch) -> None:
    watch.reads(PAUSED, PAUSED, None, PAUSED)
    assert watch.left == []


def test_dues_are_remembered_by_the_second_forgotten_when_past_and_bounded() -> None:
    dues = DueTimes()
    dues.add(Outgoing("t", b"", {}))
    assert not dues.any_between("t", 0, 1e12)
    start = START_WALL // 1000
    for second in range(10_000):
        dues.add(Outgoing("t", b"", {}, deliver_at=START_WALL + 1000 * second))
    assert len(dues._of["t"]) == 4_096
    assert dues.any_between("t", start + 5, start + 6)
    assert not dues.any_between("t", start - 9, start)
    assert dues.any_between("t", start + 2_000, start + 2_001)
    assert len(dues._of["t"]) == 4_096 - 2_000 + 300


def test_nothing_follows_from_sums_of_a_part(watch: Watch) -> None:
    watch.reads(*[replace(PAUSED, whole=False)] * 8)
    assert (watch.still.lanes, watch.left) == (set(), [])
    watch.reads(PAUSED, replace(PAUSED, whole=False), PAUSED, PAUSED)
    assert watch.left == []
