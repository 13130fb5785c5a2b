# pure: every branch is tested
"""Rates and depths of lanes over the last readings, kept in memory, and their drawing as a sparkline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.status.backlog_pace import EarlierRates
from kodoctl.text.formatting import duration_text

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus, StatusReading

READINGS: Final = 60  # that are kept: ten minutes of a window that is seen
_KEPT: Final = 600  # seconds of them, of a shorter interval
_MISSED: Final = 3  # intervals: after a longer pause, earlier rates are not those of "the minutes before"
WIDTH, HEIGHT = 120, 24  # of a sparkline
_SPAN: Final = 60_000  # ms: the broker's rates are of the last minute
_APART: Final = 120_000  # ms: rates of a minute have none of it in common
_GROWTH: Final = 100  # entries: a smaller growth is no news
LaneKey = tuple[str, str, str, str]
"""(topology, topic, ground topic, subscription)."""
ReaderKey = tuple[str, str, str]
"""(topology, ground topic, subscription)."""


def lane_key(topology: str, lane: LaneStatus) -> LaneKey:
    """Key of a lane of the topology with this name: (topology, topic, ground topic, subscription)."""
    return topology, lane.topic, *lane.reader


class RatePoint(NamedTuple):
    """Rates of a subscription's ready lanes in messages per second, at the time `at` (ms since the epoch). `into`:
    published to them; `out`: delivered by the broker; `handled`: handled by workers, as LaneStatus.rate_handled;
    `waiting`: messages that are due in lanes with workers, 0 if that is unknown; `delivered`: messages that the ready
    lanes delivered since the broker loaded them, None: unknown; `topics`: those of the ready lanes that were read, None
    if a rate is not steady.
    """

    at: int
    into: float
    out: float
    waiting: int
    handled: float = 0.0
    topics: frozenset[str] | None = frozenset()
    delivered: int | None = None


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Drawing of the rates, of 120 × 24 units (WIDTH, HEIGHT). `into`, `out`: points of the two lines as in SVG, such
    as `0.0,23.0 2.0,1.0`, "" for less than two readings; `now`: the last rates in words; `text`: the drawing in words.
    """

    into: str
    out: str
    now: str
    text: str


class RateHistory:
    """Rates of subscriptions and depths of lanes over the last ten minutes, but of 60 readings (READINGS) at least. A
    lane or subscription that a reading lacks begins anew. All rates begin anew after ten minutes, or three intervals if
    these are longer, without a reading, as of a window that nobody sees; rates and depths do if the clock went back.
    Only one thread may call `add` at a time. `every`: seconds between two readings.
    """

    def __init__(self, every: float = _KEPT / READINGS) -> None:
        self._readings = max(READINGS, round(_KEPT / every))
        self._longest = 1_000 * max(_KEPT, _MISSED * every)
        self._at: int | None = None
        self._rates: dict[ReaderKey, deque[RatePoint]] = {}
        self._depths: dict[LaneKey, deque[tuple[int, int]]] = {}

    def add(self, reading: StatusReading) -> None:
        """Adds a reading. Does nothing if the reading has the same time as the last one. Series of lanes and
        subscriptions that the reading lacks are dropped.
        """
        if reading.at == self._at:
            return
        gap = 0 if self._at is None else reading.at - self._at
        self._rates = self._rates if 0 <= gap <= self._longest else {}
        self._depths = self._depths if gap >= 0 else {}
        self._at = reading.at
        rates: dict[ReaderKey, deque[RatePoint]] = {}
        depths: dict[LaneKey, deque[tuple[int, int]]] = {}
        for topology in reading.topologies:
            for lane in topology.lanes:
                key = lane_key(topology.name, lane)
                depths[key] = self._depths.get(key) or deque(maxlen=self._readings)
                depths[key].append((reading.at, lane.entries))
            for names, lanes in topology.by_reader.items():
                reader = (topology.name, *names)
                rates[reader] = self._rates.get(reader) or deque(maxlen=self._readings)
                rates[reader].append(_point(reading.at, lanes))
        self._rates, self._depths = rates, depths

    def rates(self, topology: str, reader: tuple[str, str]) -> Sequence[RatePoint]:
        """Rates of a subscription, oldest first; () for one that the last reading lacks. `reader`: (ground topic,
        subscription).
        """
        return tuple(self._rates.get((topology, *reader), ()))

    def earlier(self, topology: str, reader: tuple[str, str]) -> EarlierRates | None:
        """The average rates of earlier readings, to compare the last one with: of those that are two minutes older or
        more, have the same lanes, and are steady. None if there is no such reading. `reader`: (ground topic,
        subscription).
        """
        points = self.rates(topology, reader)
        before = [
            point
            for point in points
            if points[-1].at - point.at >= _APART and point.topics == points[-1].topics and point.topics is not None
        ]
        if not before:
            return None
        into, handled = sum(point.into for point in before), sum(point.handled for point in before)
        return EarlierRates(into / len(before), handled / len(before))

    def growth(self, topology: str, lane: LaneStatus) -> tuple[int, int]:
        """(entries, ms): growth of a lane over the kept readings, and their span. (0, 0) if the lane ever shrank in
        them, or grew by less than 100 entries, or if they span less than a minute.
        """
        points = tuple(self._depths.get(lane_key(topology, lane), ()))
        if any(later[1] < earlier[1] for earlier, later in pairwise(points)) or len(points) < 2:
            return 0, 0
        span, growth = points[-1][0] - points[0][0], points[-1][1] - points[0][1]
        return (growth, span) if growth >= _GROWTH and span >= _SPAN else (0, 0)

    def standstill(self, topology: str, reader: tuple[str, str]) -> int:
        """Returns for how long (ms), up to the last reading, messages were due in ready lanes with workers and none was
        delivered; 0 if that is less than a minute. `reader`: (ground topic, subscription).
        """
        still = 0
        points = self.rates(topology, reader)
        for point in reversed(points):
            if point.out or not point.waiting or point.delivered != points[-1].delivered:
                break
            still = points[-1].at - point.at
        return still if still >= _SPAN else 0


def _point(at: int, lanes: Iterable[LaneStatus]) -> RatePoint:
    ready = [lane for lane in lanes if lane.state == "ready"]
    waiting = sum(lane.due for lane in ready if lane.consumers and not lane.one_each)  # these wait in a worker's memory
    counts = [lane.delivered for lane in ready if lane.delivered is not None]
    into, out = sum(lane.rate_in for lane in ready), sum(lane.rate_out for lane in ready)
    topics = frozenset(lane.topic for lane in ready) if all(lane.steady for lane in ready) else None
    delivered = sum(counts) if len(counts) == len(ready) else None
    return RatePoint(at, into, out, waiting, sum(lane.rate_handled for lane in ready), topics, delivered)


def sparkline(points: Sequence[RatePoint]) -> Sparkline:
    """Drawing of rates, with one scale for both lines. `points`: one or more, oldest first; a single one gives words
    without lines.
    """
    last = points[-1]
    now = f"in {last.into:,.1f}/s, out {last.out:,.1f}/s"
    if len(points) < 2:
        return Sparkline("", "", now, now)
    span = max(1, last.at - points[0].at)
    top = max(1.0, *(max(point.into, point.out) for point in points))

    def line(values: Iterable[float]) -> str:
        places = zip(points, values, strict=True)
        return " ".join(
            f"{(point.at - points[0].at) * WIDTH / span:.1f},{HEIGHT - 1 - value * (HEIGHT - 2) / top:.1f}"
            for point, value in places
        )

    into, out = [point.into for point in points], [point.out for point in points]
    ranges = f"in {min(into):,.1f} to {max(into):,.1f}/s, out {min(out):,.1f} to {max(out):,.1f}/s"
    return Sparkline(line(into), line(out), now, f"{now}; in the last {duration_text(span)} {ranges}")
