"""Who reads which lane: workers are counted over all lanes, and a lane without any is an alarm."""

from __future__ import annotations

from kodo_consumer.core.upkeep.lane_workers import PATIENCE, REPEAT, LaneWorkers
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.lane_selection import LaneSelection, select_lanes
from kodo_consumer.testing import ManualClock

from tests.unit.consumer.engine_bench import L1, policy


class Fleet:
    """The stats of three lanes, as a worker of the ready lane sees them. `names`: workers by lane, None: not known."""

    def __init__(self, lanes: str = "ready", expected: int = 1) -> None:
        self.clock, self.shared, self.alarms = ManualClock(), list[int](), list[Alarm]()
        whole = policy(levels=(L1,), expected_workers=expected)
        self.of = select_lanes(whole, LaneSelection.parse(lanes))
        self.workers = LaneWorkers(self.of, self.clock, self.shared.append, self.alarms.append)

    def read(self, passed: float = 5.0, **names: str | None) -> None:
        """Other lanes first, as each is read before some reading of the ground topic's."""
        self.clock.advance(passed)
        for lane in sorted(self.of.every_lane, key=lambda lane: lane.state == "ready"):
            if lane.state in names:
                told = names[lane.state]
                self.workers(lane, None if told is None else LaneStats(frozenset(told.split())))


def test_limits_are_shared_by_the_workers_of_all_lanes_together() -> None:
    fleet = Fleet()
    fleet.read(ready="a b", retrying="c", pending="c d", blocking="a")
    assert fleet.shared == [4]
    assert (fleet.workers.count, fleet.workers.elsewhere) == (4, frozenset("cd"))


def test_a_worker_that_left_counts_no_more_although_another_lane_was_not_read_since() -> None:
    fleet = Fleet()
    fleet.read(ready="a b", retrying="a b c")
    fleet.read(31.0, ready="a")
    assert fleet.shared[-1] == 2
    assert fleet.workers.elsewhere == frozenset("c")
    fleet.read(retrying="a c", pending="e")
    fleet.read(ready="a b")
    assert fleet.workers.count == 4, "a, b, c and e"


def test_what_cannot_be_read_changes_nothing_and_the_expected_ones_count() -> None:
    fleet = Fleet(expected=3)
    fleet.read(ready="a", retrying="b")
    assert fleet.shared == [3]
    fleet.read(40.0, ready="a", retrying=None)
    assert fleet.shared[-1] == 2
    fleet.read(40.0, ready=None)
    assert fleet.shared[-1] == 3
    assert fleet.alarms == []


def test_a_part_of_a_lane_without_workers_says_nothing_of_it() -> None:
    fleet = Fleet()
    lane = fleet.of.unread[0]
    fleet.workers(lane, LaneStats(frozenset("c"), whole=False))
    assert fleet.workers.elsewhere == frozenset("c")
    fleet.workers(lane, LaneStats(whole=False))
    fleet.read(PATIENCE + 1, ready="a")
    assert (fleet.workers.elsewhere, fleet.alarms) == (frozenset("c"), [])


def test_lanes_without_workers_are_one_alarm_after_a_minute_that_ends_when_all_have_one() -> None:
    fleet = Fleet()
    fleet.read(ready="a", retrying="", pending="", blocking="b")
    fleet.read(PATIENCE - 1, ready="a")
    assert fleet.alarms == [], "a roll-out takes as long"
    fleet.read(2.0, ready="a", pending="")
    assert [(alarm.kind, alarm.severe) for alarm in fleet.alarms] == [("unread", True)]
    text = fleet.alarms[0].text
    assert "no live worker reads 2 lanes of t s, what comes there waits" in text
    assert "`--lanes L1/retrying,L1/pending`" in text
    fleet.read(REPEAT / 2, ready="a", retrying="", pending="")
    assert len(fleet.alarms) == 1
    fleet.read(REPEAT / 2, ready="a", retrying="", pending="")
    assert len(fleet.alarms) == 2
    fleet.read(ready="a", pending="c")
    assert "1 lane of" in fleet.alarms[-1].text
    fleet.read(ready="a", retrying="c")
    assert (fleet.alarms[-1].good, fleet.alarms[-1].text) == (True, "every lane has a worker again")
    fleet.read(PATIENCE, ready="a")
    assert len(fleet.alarms) == 4


def test_what_cannot_be_read_any_more_is_neither_without_workers_nor_known_to_have_some() -> None:
    fleet = Fleet()
    fleet.read(ready="a", retrying="", pending="b")
    fleet.read(PATIENCE, ready="a", retrying=None)
    assert fleet.alarms == []
    fleet.read(ready="a", retrying="")
    fleet.read(PATIENCE, ready="a", retrying="")
    assert len(fleet.alarms) == 1
    fleet.read(ready="a", retrying=None)
    fleet.read(ready="a")
    assert len(fleet.alarms) == 1
    fleet.read(ready="a", retrying="c")
    assert [alarm.good for alarm in fleet.alarms] == [False, True]


def test_a_lane_of_its_own_is_no_alarm_although_the_broker_lists_nobody() -> None:
    fleet = Fleet("all")
    fleet.read(ready="", retrying="", pending="", blocking="")
    fleet.read(PATIENCE * 2, ready="")
    assert fleet.alarms == []
