"""Metrics and health of a source of change data, beside those of workers and relays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kodo_consumer.adapters.metrics.view_metrics import ViewCollector, ViewMetric, one_group

if TYPE_CHECKING:
    from kodo_consumer.source.runner import Source

_SILENT: Final = 90.0  # seconds without a turn: three times the longest pause


class SourceView:
    """View of a source for metrics and probes. Thread-safe."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def unhealthy(self) -> list[str]:
        """Reason to restart this process, in a list: the source has taken no turn for more than 90 s, because it hangs,
        has ended, or waits so long for one answer of database or broker. Empty otherwise, also while it tries again
        after failures.
        """
        silent = time.monotonic() - self.source.turned_at
        return [f"the source took no turn for {silent:.0f} s"] if silent > _SILENT else []

    def not_ready(self) -> list[str]:
        """Reason why the source does not do all of its work just now, in a list (see `trouble` of Source); empty if it
        knows of none.
        """
        return [self.source.trouble] if self.source.trouble else []


def _count(name: str) -> Callable[[SourceView], float]:
    return lambda view: float(view.source.counts[name])


SOURCE_METRICS: Final[tuple[ViewMetric[SourceView], ...]] = (
    ViewMetric("kodo_source_sent_total", "Messages sent, those of a snapshot included.", _count("sent")),
    ViewMetric("kodo_source_known_total", "Changes that came again and that the broker had already.", _count("known")),
    ViewMetric("kodo_source_restarts_total", "Times that database or broker failed.", _count("restarts")),
    ViewMetric(
        "kodo_source_schema_changes_total", "Tables whose columns changed while it ran.", _count("schema_changes")
    ),
    ViewMetric("kodo_source_truncates_total", "TRUNCATEs, of which no message says anything.", _count("truncates")),
    ViewMetric(
        "kodo_source_superseded_total",
        "Changes left out: the row was deleted by a later commit, and a large value with it.",
        _count("superseded"),
    ),
    ViewMetric(
        "kodo_source_lag_seconds",
        "Seconds from the last commit to its receipt.",
        lambda view: view.source.lag,
        one_group,
    ),
    ViewMetric("kodo_source_waiting_messages", "Messages without a receipt.", lambda view: float(view.source.waiting)),
    ViewMetric(
        "kodo_source_confirmed_bytes",
        "Position in the database's log up to which everything is stored.",
        lambda view: float(view.source.confirmed),
        one_group,
    ),
    ViewMetric(
        "kodo_source_away",
        "1 while database or broker keep it from its work.",
        lambda view: float(bool(view.source.trouble)),
        one_group,
    ),
)


SOURCES: Final = ViewCollector(SOURCE_METRICS, "source")
"""The collector of this process."""
