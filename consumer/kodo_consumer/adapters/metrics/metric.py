"""Specification of a metric, with functions that make the usual kinds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kodo_consumer.adapters.metrics.worker_view import WorkerView

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import LaneState

BASE: Final = ("namespace", "topic", "subscription", "worker")
"""Labels of every series. `worker` numbers the consumers of one subscription in one process, from 0."""
LANE: Final = ("level", "state")

Labels = tuple[str, ...]
Read = Callable[[WorkerView], Iterable[tuple[Labels, Any]]]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `read` gives its label values, those of BASE left out, with the value (a Histogram for histograms)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels
    read: Read

    def family(self) -> Metric:
        """A family of the metric's kind without samples, for prometheus_client."""
        names = [*BASE, *self.labels]
        match self.kind:
            case "counter":
                return CounterMetricFamily(self.name.removesuffix("_total"), self.help, labels=names)
            case "gauge":
                return GaugeMetricFamily(self.name, self.help, labels=names)
            case "histogram":
                return HistogramMetricFamily(self.name, self.help, labels=names)


def plain(read: Callable[[WorkerView], float | None]) -> Read:
    """One value, or none that is known."""

    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        if (value := read(sight)) is not None:
            yield (), value

    return values


def of_lane(read: Callable[[LaneState], float]) -> Read:
    """One value a lane."""
    return lambda sight: [((lane.level.value, lane.state.value), read(lane_state)) for lane, lane_state in sight.lanes]


def counter(name: str, text: str, labels: Labels, read: Read) -> MetricSpec:
    """A count that only grows."""
    return MetricSpec(f"kodo_consumer_{name}_total", "counter", text, labels, read)


def gauge(name: str, text: str, labels: Labels, read: Read) -> MetricSpec:
    """A figure that comes and goes."""
    return MetricSpec(f"kodo_consumer_{name}", "gauge", text, labels, read)
