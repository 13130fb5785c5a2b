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
"""Labels of every series. `worker` numbers the workers of one subscription in one process, from 0."""
LANE: Final = ("level", "state")

Labels = tuple[str, ...]
Read = Callable[[WorkerView], Iterable[tuple[Labels, Any]]]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Specification of one metric. `name`: full name, of a counter with `_total`. `labels`: names of its labels besides
    BASE. `read` yields pairs for one worker, none while it has no value: the values of these labels, in their order,
    and the metric's value (a Histogram for histograms, else a number).
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels
    read: Read

    def family(self) -> Metric:
        """New metric family of prometheus_client, of this kind and without samples."""
        names = [*BASE, *self.labels]
        match self.kind:
            case "counter":
                return CounterMetricFamily(self.name.removesuffix("_total"), self.help, labels=names)
            case "gauge":
                return GaugeMetricFamily(self.name, self.help, labels=names)
            case "histogram":
                return HistogramMetricFamily(self.name, self.help, labels=names)


def plain(read: Callable[[WorkerView], float | None]) -> Read:
    """`Read` of a metric without own labels: the value that `read` returns, or no value if that is None."""

    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        if (value := read(sight)) is not None:
            yield (), value

    return values


def of_lane(read: Callable[[LaneState], float]) -> Read:
    """`Read` of one value for each lane that the worker reads, with its level and its state as the labels LANE."""
    return lambda sight: [((lane.level.value, lane.state.value), read(lane_state)) for lane, lane_state in sight.lanes]


def counter(name: str, text: str, labels: Labels, read: Read) -> MetricSpec:
    """Specification of a counter. Its name gets the prefix kodo_consumer_ and the suffix _total."""
    return MetricSpec(f"kodo_consumer_{name}_total", "counter", text, labels, read)


def gauge(name: str, text: str, labels: Labels, read: Read) -> MetricSpec:
    """Specification of a gauge. Its name gets the prefix kodo_consumer_."""
    return MetricSpec(f"kodo_consumer_{name}", "gauge", text, labels, read)
