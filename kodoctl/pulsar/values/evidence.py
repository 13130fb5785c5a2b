"""Evidence: live figures of the data and the clients that a change would put at risk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """Live figures of a topic or subscription. Times are ms since the epoch.

    `messages`: number of messages in the backlog's entries (batches), None if not counted; `marks`: number of
    producers' marks that were found there and not counted in it; `unseen_marks`: `messages` may include more marks;
    `at_least`: the broker stopped counting early. `ledgers`: (closing time, bytes) of each stored ledger, time 0: still
    open. Pulsar deletes data by whole ledgers.
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
