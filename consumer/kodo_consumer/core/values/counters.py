"""Counters of a worker: plain numbers, written under one lock; views are made elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Counts since the start of the worker.

    `finished`: acknowledged, by rule. `waited`: waits in memory, by rule. `failed`: handler runs, by reason.
    `isolated`: times a tenant was moved aside for filling the look-ahead. `paused`: times the circuit breaker opened.
    `redelivered`: deliveries dropped, as their message was in flight or just acknowledged. `recorded`: audit records
    with a receipt; `unrecorded`: given up, where nobody waits for them. `unsigned`: deliveries whose control
    properties could not be believed. `hurried`: messages started before the time they claim, because too many claimed
    one. `marks`: marks of producers, which are no messages and in no other count. `missing` and `duplicated`: numbers
    of producers, where this worker is the only reader.
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
        """Totals of producers' numbers so far."""
        self.missing, self.duplicated = missing, duplicated
