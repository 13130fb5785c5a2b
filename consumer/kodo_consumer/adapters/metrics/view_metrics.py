"""Metrics and health of relays of an outbox and of sources of change data, which a process runs beside workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

V = TypeVar("V")


def one_group(_view: object) -> Hashable:
    """Puts all views into one group: the metric has the largest of their values."""
    return None


class ViewMetric(NamedTuple, Generic[V]):
    """One metric without labels, computed from one or more views. `name`: full name, with `_total` for a counter.
    `read` returns the value of a view, or None while it is unknown. `group` returns the group of a view: views whose
    values are about the same thing share one, and only the largest of their values counts. Each view is a group of its
    own by default.
    """

    name: str
    help: str
    read: Callable[[V], float | None]
    group: Callable[[V], Hashable] = id

    def value(self, views: Sequence[V]) -> float | None:
        """Value of several views: the sum of the largest value in each group. Views that do not know their value are
        left out; None if none knows it.
        """
        largest: dict[Hashable, float] = {}
        for view in views:
            if (value := self.read(view)) is not None:
                group = self.group(view)
                largest[group] = max(value, largest.get(group, value))
        return sum(largest.values()) if largest else None

    @property
    def kind(self) -> str:
        """The kind of the metric by its name: `counter` where it ends in `_total`, else `gauge`."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def family(self, value: float | None = None) -> Metric:
        """Metric family of Prometheus, with one sample if `value` is given."""
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix("_total"), self.help, value=value)
        return GaugeMetricFamily(self.name, self.help, value=value)


class ViewCollector(Generic[V]):
    """Prometheus collector of the views that were added to it, all of one kind. It is registered in `registry` while it
    shows at least one view. `kind`: word for a view in the documents of health. `views`: those that it shows now.
    Thread-safe.
    """

    def __init__(self, metrics: Sequence[ViewMetric[V]], kind: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._metrics, self._kind, self._registry = metrics, kind, registry
        self._lock = threading.Lock()
        self.views: tuple[V, ...] = ()

    def add(self, view: V) -> None:
        """Shows one more view."""
        with self._lock:
            if not self.views:
                self._registry.register(self)
            self.views = (*self.views, view)

    def remove(self, view: V) -> None:
        """Ends showing a view. Raises ValueError if the view is not shown."""
        with self._lock:
            left = list(self.views)
            left.remove(view)
            self.views = tuple(left)
            if not left:
                self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Yields all metrics without values: the Prometheus registry learns the names from them."""
        return (metric.family() for metric in self._metrics)

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics for a scrape by the Prometheus registry, a metric without a sample if no view knows its
        value. Reading a value may block, such as that of a RelaySight.
        """
        return (metric.family(metric.value(self.views)) for metric in self._metrics)

    def health(self, ask: Callable[[V], list[str]]) -> list[dict[str, Any]]:
        """Health of the views that are shown now, one object for each: its place among them as text, from 0, under the
        word `kind` of the collector, and under `problems` the texts that `ask` returns. Views that are removed change
        the places of later ones.
        """
        return [{self._kind: str(number), "problems": ask(view)} for number, view in enumerate(self.views)]
