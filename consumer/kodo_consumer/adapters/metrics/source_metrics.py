"""Metrics and health of a source of change data, beside those of workers and relays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from kodo_consumer.source.runner import Source

_SILENT: Final = 90.0  # seconds without a turn: three times the longest pause


class SourceMetric(NamedTuple):
    """One metric of a source, without labels."""

    name: str
    help: str
    read: Callable[[Source], float]

    @property
    def kind(self) -> str:
        """The kind of the metric by its name: `counter` where it ends in `_total`, else `gauge`."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def family(self, value: float | None = None) -> Metric:
        """Metric family of Prometheus, with one sample if `value` is given."""
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix("_total"), self.help, value=value)
        return GaugeMetricFamily(self.name, self.help, value=value)


def _count(name: str) -> Callable[[Source], float]:
    return lambda source: float(source.counts[name])


SOURCE_METRICS: Final = (
    SourceMetric("kodo_source_sent_total", "Messages sent, those of a snapshot included.", _count("sent")),
    SourceMetric(
        "kodo_source_known_total", "Changes that came again and that the broker had already.", _count("known")
    ),
    SourceMetric("kodo_source_restarts_total", "Times that database or broker failed.", _count("restarts")),
    SourceMetric(
        "kodo_source_schema_changes_total", "Tables whose columns changed while it ran.", _count("schema_changes")
    ),
    SourceMetric("kodo_source_truncates_total", "TRUNCATEs, of which no message says anything.", _count("truncates")),
    SourceMetric(
        "kodo_source_superseded_total",
        "Changes left out: the row was deleted by a later commit, and a large value with it.",
        _count("superseded"),
    ),
    SourceMetric("kodo_source_lag_seconds", "Seconds from the last commit to its receipt.", lambda source: source.lag),
    SourceMetric("kodo_source_waiting_messages", "Messages without a receipt.", lambda source: float(source.waiting)),
    SourceMetric(
        "kodo_source_confirmed_bytes",
        "Position in the database's log up to which everything is stored.",
        lambda source: float(source.confirmed),
    ),
    SourceMetric(
        "kodo_source_away",
        "1 while database or broker keep it from its work.",
        lambda source: float(bool(source.trouble)),
    ),
)


class SourceView:
    """View of a source for metrics and probes. Thread-safe."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def unhealthy(self) -> list[str]:
        """Reasons to restart this process: it took no turn for 90 s. Empty while it works."""
        silent = time.monotonic() - self.source.turned_at
        return [f"the source took no turn for {silent:.0f} s"] if silent > _SILENT else []

    def not_ready(self) -> list[str]:
        """Reasons why it does not do its work just now; empty while it does."""
        return [self.source.trouble] if self.source.trouble else []


class SourceCollector:
    """Prometheus collector of the source of this process, registered in `registry` while there is one."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._view: SourceView | None = None

    def add(self, view: SourceView) -> None:
        """Shows a source: one, for a process runs no second."""
        self._view = view
        self._registry.register(self)

    def remove(self, view: SourceView) -> None:
        """Ends showing the source."""
        if self._view is view:
            self._view = None
            self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Yields all metrics without values: the Prometheus registry learns the names from them."""
        return (metric.family() for metric in SOURCE_METRICS)

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics for a scrape by the Prometheus registry."""
        view = self._view
        return (metric.family(None if view is None else metric.read(view.source)) for metric in SOURCE_METRICS)

    def health(self, ask: Callable[[SourceView], list[str]]) -> list[dict[str, Any]]:
        """Health of the source, if there is one: an object with the problems that `ask` lists."""
        return [] if self._view is None else [{"problems": ask(self._view)}]


SOURCES: Final = SourceCollector()
"""The collector of this process."""
