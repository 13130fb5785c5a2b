"""Evidence: live figures of the data and the clients that a change would put at risk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """Live figures of a topic or subscription. Times are ms since the epoch.

    `messages` counts what the backlog's entries (batches) hold, without the `marks` of producers that were seen; None:
    not counted; `unseen_marks`: others may be among them; `at_least`: the broker stopped counting. `ledgers` are
    (closed at, bytes) of stored ledgers, 0 = still open: the granularity in which Pulsar drops data.
    """

    entries: int = 0
    messages: int | None = None
    marks: int = 0
    unseen_marks: bool = False
    at_least: bool = False
    bytes: int = 0
    oldest: int | None = None
    clients: tuple[str, ...] = ()
    last_publish: int = 0
    ledgers: tuple[tuple[int, int], ...] = ()
