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
    """View of a relay and its table, for metrics and probes. `waiting` and `overdue_seconds` read the table again if
    this view has not tried that in the last 15 s; until then they use the figures of that reading, and have none if it
    failed. All their callers wait for a reading under way. Thread-safe.
    """

    def __init__(self, relay: Relay, store: OutboxStore) -> None:
        self.relay, self._store = relay, store
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._waiting: int | None = None
        self._late = 0.0

    def rows(self) -> Hashable:
        """Identity of the rows that `waiting` counts: equal for relays of one database URL and one OutboxScope only,
        although other scopes may have some of the same rows.
        """
        return self._store.identity

    def waiting(self) -> float | None:
        """Number of rows that are to be sent, now or later, or that a relay has claimed, without held rows; None if the
        last reading of the table failed. Reads the table again if that reading is 15 s old, which blocks.
        """
        self._refresh()
        return None if self._waiting is None else float(self._waiting)

    def overdue_seconds(self) -> float | None:
        """Seconds for which the row with the earliest due time, of those that `waiting` counts, had been due at the
        last reading of the table; 0 if no row was due, None if that reading failed. A claimed row is due when its claim
        ends. Reads the table again if that reading is 15 s old, which blocks.
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
        """Reason to restart this process, in a list: the relay has begun no turn, and no send, for more than 90 s,
        because it hangs, has ended, or waits so long for its database. Empty otherwise, also while its database fails.
        """
        silent = time.monotonic() - self.relay.turned_at
        return [f"the relay took no turn for {silent:.0f} s"] if silent > _SILENT else []

    def not_ready(self) -> list[str]:
        """Reason why the relay could not use its database in the last turn, in a list; empty if it could, also while
        the broker gives no receipts.
        """
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
