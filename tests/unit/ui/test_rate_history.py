"""Rates over the last readings: bounded, drawn in one scale, and told in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kodoctl.status.backlog_pace import EarlierRates
from kodoctl.status.lane_status import StatusReading
from kodoctl.ui.rate_history import HEIGHT, READINGS, WIDTH, RateHistory, RatePoint, sparkline
from tests.samples.consoles import NOW, lane, reading

READER = ("orders", "billing")


def at(seconds: int, into: float = 0, out: float = 0, entries: int = 0) -> StatusReading:
    ready = lane(rate_in=into, rate_out=out, entries=entries, consumers=1)
    return replace(reading(ready, lane("dead", entries=entries)), at=NOW + seconds * 1_000)


def history(*readings: StatusReading) -> RateHistory:
    made = RateHistory()
    for one in readings:
        made.add(one)
    return made


def test_the_last_readings_are_kept_and_a_lane_that_is_gone_begins_anew() -> None:
    made = history(*(at(number, number) for number in range(READINGS + 5)))
    points = made.rates("trade", READER)
    assert (len(points), points[0].into, points[-1].into) == (READINGS, 5, READINGS + 4)
    made.add(StatusReading(NOW, ()))
    assert made.rates("trade", READER) == ()
    made.add(at(9, 7))
    assert [point.into for point in made.rates("trade", READER)] == [7]


def test_a_drawing_has_one_scale_and_says_the_same_in_words() -> None:
    drawn = sparkline([RatePoint(0, 0, 10, 0), RatePoint(60_000, 20, 0, 0)])
    assert drawn.into == f"0.0,{HEIGHT - 1}.0 {WIDTH}.0,1.0"
    assert drawn.out == f"0.0,{HEIGHT / 2}.0 {WIDTH}.0,{HEIGHT - 1}.0" or drawn.out.startswith("0.0,12.0")
    assert drawn.text == "in 20.0/s, out 0.0/s; in the last 1 min in 0.0 to 20.0/s, out 0.0 to 10.0/s"
    alone = sparkline([RatePoint(0, 1_234.5, 0, 0)])
    assert (alone.into, alone.text) == ("", "in 1,234.5/s, out 0.0/s")


def test_a_lane_grows_if_it_never_shrank_for_a_minute_and_by_a_hundred() -> None:
    dead = lane("dead")

    def growth(*entries: int) -> tuple[int, int]:
        return history(*(at(number * 30, entries=count) for number, count in enumerate(entries))).growth("trade", dead)

    assert growth(0, 50, 120) == (120, 60_000)
    assert growth(0, 200) == growth(0, 50, 90) == growth(0, 200, 190) == growth(7) == (0, 0)
    assert RateHistory().growth("trade", dead) == (0, 0)


def test_rates_are_compared_with_the_average_of_those_of_two_minutes_before_and_more() -> None:
    seen = [at(number * 60, into=number) for number in range(4)]
    assert history(*seen[:2]).earlier("trade", READER) is None
    assert history(*seen[:3]).earlier("trade", READER) == EarlierRates(0, 0)
    assert history(*seen).earlier("trade", READER) == EarlierRates(0.5, 0)
    assert RateHistory().earlier("trade", READER) is None


def test_readings_of_other_lanes_or_of_workers_that_had_just_connected_are_not_compared() -> None:
    """A topic that could not be read for a while made its senders faster, when it was read again."""
    first, last = at(0, into=5), at(120, into=5)
    [topology] = first.topologies
    young = replace(topology, lanes=tuple(replace(one, steady=False) for one in topology.lanes))
    more = replace(topology, lanes=(*topology.lanes, replace(topology.lanes[0], level="L2", topic="orders-L2")))
    for other in (young, more):
        assert history(replace(first, topologies=(other,)), last).earlier("trade", READER) is None
    assert history(first, last).earlier("trade", READER) == EarlierRates(5, 0)


def test_rates_of_before_a_long_pause_are_not_those_of_the_minutes_before() -> None:
    """Nobody saw the window for an hour, or the clock went back."""
    made = history(at(0, into=5, entries=3), at(150, into=5, entries=500))
    assert made.earlier("trade", READER) == EarlierRates(5, 0)
    made.add(at(3_750, into=90, entries=900))
    assert made.earlier("trade", READER) is None
    assert made.standstill("trade", READER) == 0
    assert made.growth("trade", lane("dead")) == (897, 3_750_000), "it did grow meanwhile"
    slow = RateHistory(1_800.0)
    slow.add(at(0, into=5))
    slow.add(at(3_600, into=5))
    assert slow.earlier("trade", READER) == EarlierRates(5, 0), "two intervals"
    made.add(at(3_000, into=7, entries=7))
    assert [point.into for point in made.rates("trade", READER)] == [7]
    made.add(at(3_100, entries=700))
    assert made.growth("trade", lane("dead")) == (693, 100_000)


def test_short_intervals_are_kept_for_ten_minutes_and_a_reading_counts_once() -> None:
    made = RateHistory(1.0)
    for second in range(1_000):
        made.add(at(second))
        made.add(at(second))
    points = made.rates("trade", READER)
    assert points[-1].at - points[0].at == 599_000


def test_messages_stand_still_if_none_was_delivered_for_a_minute() -> None:
    still = [at(number * 30, entries=3) for number in range(4)]
    assert history(*still).standstill("trade", READER) == 90_000
    assert history(at(0, out=1, entries=3), *still[1:]).standstill("trade", READER) == 60_000
    assert history(*still[:2]).standstill("trade", READER) == 0
    assert history(*still, at(120)).standstill("trade", READER) == 0


def test_messages_do_not_stand_still_if_few_were_delivered_or_they_are_not_due_or_nobody_knows() -> None:
    def standstill(*changes: dict[str, Any]) -> int:
        readings = [at(number * 30, entries=3) for number in range(len(changes))]
        return history(*(_changed(one, change) for one, change in zip(readings, changes, strict=True))).standstill(
            "trade", READER
        )

    same: dict[str, Any] = {"delivered": 7}
    assert standstill(same, same, same, same) == 90_000
    assert standstill({"delivered": 4}, same, same, same) == 60_000, "three, of which a rate shows nothing"
    assert standstill(same, same, same, {"delivered": 8}) == 0
    assert standstill(*[{"delayed": 3}] * 4) == standstill(*[{"one_each": True}] * 4) == 0


def _changed(status: StatusReading, change: dict[str, Any]) -> StatusReading:
    [topology] = status.topologies
    ready, *others = topology.lanes
    return replace(status, topologies=(replace(topology, lanes=(replace(ready, **change), *others)),))
