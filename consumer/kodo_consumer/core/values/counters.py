"""Counters of a worker: plain numbers, written under one lock; views are made elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Counts since the start of the worker.

    `received`: deliveries, repeated ones included; `redelivered`: those dropped, as their message was in flight or just
    acknowledged. `released`: messages given up unstarted, which the broker delivers again. `started`: handler runs;
    `done`: messages whose handler did its work. `finished`: messages that ended in their lane otherwise, moves
    included, by rule. `waited`: waits in memory, by rule. `failed`: handler runs, by reason; `timed_out`: those of them
    that took too long. `parked`: messages that every target refused, which stay unacknowledged. `isolated`: times a
    tenant was moved aside for filling the look-ahead. `paused`: times the circuit breaker opened. `republished`:
    publishes repeated after a failure. `recorded`: audit records with a receipt; `unrecorded`: given up, where nobody
    waits for them. `unsigned`: deliveries with control properties that cannot be believed, where headers are signed.
    `hurried`: messages started before the time they claim, because too many claimed one. `marks`: marks of producers,
    which are no messages and in no other count. `missing` and `duplicated`: sequence numbers of producers, where this
    worker is the only reader.
    """

    received: int = 0
    started: int = 0
    done: int = 0
    redelivered: int = 0
    released: int = 0
    timed_out: int = 0
    parked: int = 0
    republished: int = 0
    recorded: int = 0
    unrecorded: int = 0
    isolated: int = 0
    unsigned: int = 0
    hurried: int = 0
    marks: int = 0
    missing: int = 0
    duplicated: int = 0
    paused: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    waited: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def take_gaps(self, missing: int, duplicated: int) -> None:
        """Sets `missing` and `duplicated` to these totals since the start."""
        self.missing, self.duplicated = missing, duplicated
