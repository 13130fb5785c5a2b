"""Metrics and health of an outbox's relay, beside those of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from kodo_consumer.adapters.metrics.view_metrics import ViewCollector, ViewMetric, one_group

if TYPE_CHECKING:
    from kodo_consumer.outbox.outbox_store import OutboxStore
    from kodo_consumer.outbox.relay import Relay

_SILENT: Final = 90.0  # seconds without a turn: three times the longest pause
_READ_EVERY: Final = 15.0  # seconds between two looks at the table


class RelaySight:
    """View of a relay and its table, for metrics and probes. It reads the table at most once in 15 s, also after a
    failure, and keeps the figures meanwhile; the call that reads waits for the database. Thread-safe.
    """

    def __init__(self, relay: Relay, store: OutboxStore) -> None:
        self.relay, self._store = relay, store
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._waiting: int | None = None
        self._late = 0.0

    def rows(self) -> Hashable:
        """Identity of the rows of which `waiting` is the number: other relays of the same rows count them, too."""
        return self._store.identity

    def waiting(self) -> float | None:
        """Number of rows that are to be sent now or later, without held rows; None if the last reading of the table
        failed. Reads the table again if the last reading is old, which blocks.
        """
        self._refresh()
        return None if self._waiting is None else float(self._waiting)

    def overdue_seconds(self) -> float | None:
        """Seconds for which the row that has waited longest had been due at the last reading of the table; 0 if no row
        was due. None if that reading failed. Reads the table again if the last reading is old, which blocks.
        """
        self._refresh()
        return None if self._waiting is None else self._late / 1000

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._read_at < _READ_EVERY:
                return
            self._read_at = time.monotonic()
            from sqlalchemy.exc import SQLAlchemyError  # here: workers without a database show metrics, too

            try:
                self._waiting, self._late = self._store.waiting()
            except SQLAlchemyError:
                self._waiting = None

    def unhealthy(self) -> list[str]:
        """Reasons to restart this process: the relay took no turn for 90 s. Empty while it works."""
        silent = time.monotonic() - self.relay.turned_at
        return [f"the relay took no turn for {silent:.0f} s"] if silent > _SILENT else []

    def not_ready(self) -> list[str]:
        """Reasons why the relay does not do its work just now; empty while it does."""
        return [self.relay.trouble] if self.relay.trouble else []


def _count(name: str) -> Callable[[RelaySight], float]:
    return lambda sight: float(sight.relay.counts[name])


METRICS: Final[tuple[ViewMetric[RelaySight], ...]] = (
    ViewMetric("kodo_outbox_sent_total", "Rows with a receipt.", _count("sent")),
    ViewMetric("kodo_outbox_sent_again_total", "Sends without a receipt, whose rows are tried again.", _count("again")),
    ViewMetric("kodo_outbox_late_total", "Sends without a receipt beyond outbox_attempts.", _count("late")),
    ViewMetric("kodo_outbox_failed_total", "Rows that can never be sent: they wait for a person.", _count("failed")),
    ViewMetric(
        "kodo_outbox_overtaken_total",
        "Rows that another relay claimed before they were settled: sent twice, with one identity.",
        _count("overtaken"),
    ),
    ViewMetric(
        "kodo_outbox_waiting_rows",
        "Rows to be sent, now or later; those held are left out.",
        RelaySight.waiting,
        RelaySight.rows,
    ),
    ViewMetric(
        "kodo_outbox_overdue_seconds",
        "How long the row that has waited longest is due.",
        RelaySight.overdue_seconds,
        one_group,
    ),
    ViewMetric(
        "kodo_outbox_database_away",
        "1 while the relay cannot work with its database: it does not answer, or lacks a table or a right.",
        lambda sight: float(bool(sight.relay.trouble)),
        one_group,
    ),
)


RELAYS: Final = ViewCollector(METRICS, "relay")
"""The collector of this process."""
