"""A clock that is not the broker's is told once it is certain, and once when it is over."""

from __future__ import annotations

import pytest
from kodo_consumer.core.upkeep.clock_skew import ClockSkewDetector
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.testing import ManualClock

from tests.unit.consumer.engine_bench import L1, policy

LANE = policy((L1,), ()).lanes[0]


class Watch:
    """Readings of a broker whose clock is so many seconds behind ours, five seconds apart."""

    def __init__(self) -> None:
        self.clock, self.alarms = ManualClock(), list[Alarm]()
        self.skew = ClockSkewDetector(self.clock, self.alarms.append)

    def reads(self, ahead: float, *, took: float = 0.0, times: int = 1) -> float | None:
        for _ in range(times):
            self.clock.advance(5.0)
            server_time = self.clock.wall() - round(1000 * (ahead + took))
            self.skew(LANE, LaneStats(server_time=server_time // 1000 * 1000, took=took))
        return self.skew.ahead

    @property
    def said(self) -> list[tuple[str, bool]]:
        return [(alarm.text.partition(":")[0], alarm.good) for alarm in self.alarms]


@pytest.fixture
def watch() -> Watch:
    return Watch()


AHEAD = "this machine's clock is 3,600 s ahead of the broker's"
BEHIND = "this machine's clock is 3,600 s behind the broker's"
AGREES = "this machine's clock agrees with the broker's again"


@pytest.mark.parametrize(("ahead", "text"), [(3_600.9, AHEAD), (-3_600.4, BEHIND)])
def test_it_is_told_at_the_second_reading_and_once(watch: Watch, ahead: float, text: str) -> None:
    watch.reads(ahead)
    assert watch.said == []
    watch.reads(ahead, times=9)
    assert watch.said == [(text, False)]
    assert {alarm.kind for alarm in watch.alarms} == {"clock"}


def test_its_end_is_told_too_and_what_comes_again_is_new(watch: Watch) -> None:
    watch.reads(60, times=3)
    watch.reads(0)
    watch.reads(60)
    assert len(watch.said) == 1, "one reading is none"
    watch.reads(0, times=2)
    assert watch.said[1:] == [(AGREES, True)]
    watch.reads(-60, times=2)
    assert len(watch.said) == 3


@pytest.mark.parametrize("ahead", [-0.9, -0.1, 0.0, 0.5, 0.999])
@pytest.mark.parametrize("took", [0.0, 0.2, 14.0])
def test_a_second_and_a_slow_answer_are_no_difference(watch: Watch, ahead: float, took: float) -> None:
    assert abs(watch.reads(ahead, took=took, times=4) or 0.0) < 1.0
    assert watch.said == []


def test_what_is_certain_is_never_more_than_what_is(watch: Watch) -> None:
    for tenths in range(-200, 200):
        found = watch.reads(tenths / 10, took=tenths % 7 / 10)
        assert found is not None
        assert abs(found) <= abs(tenths / 10) + 0.001
        assert abs(found - tenths / 10) <= 2.7


def test_who_is_not_asked_or_tells_no_time_changes_nothing(watch: Watch) -> None:
    watch.skew(LANE, None)
    watch.skew(LANE, LaneStats())
    assert watch.skew.ahead is None
    watch.reads(60)
    watch.skew(LANE, None)
    watch.reads(60)
    assert len(watch.said) == 1
