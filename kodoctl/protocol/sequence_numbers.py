"""Numbers that producers put on messages so that a hole shows: the property `kodo-seq`, written and read in one
place.

A *run* is the life of one producer of one ready topic; each partition counts from 1. The producer chooses the
partition itself, so that the count is its own. A message carries

    RUN:PARTITION:NUMBER                         7f3a9c2e41b00a12:3:1841

A *mark* is a message without payload and recipient (`kodo-for`) that says how far the count has come and which
numbers were given up: sends without a receipt, whose messages may be stored or not. `end`: the run is over.

    RUN:PARTITION:high=NUMBER[:void=RANGES][:end]   7f3a9c2e41b00a12:3:high=1841:void=17,40-52:end

Of a run and partition every number up to the highest one seen or marked is due, once, but for the void ones. Only the
first hop counts: what a worker moved or a recall sent again keeps its number, and is no second message.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NOBODY: Final = (
    "(mark)"  # `kodo-for` of marks: no subscription has this name, so every worker acknowledges them unhandled
)
MAX_RANGES: Final = 500  # of void numbers in a mark: some 10 kB
_VALUE: Final = re.compile(
    r"([0-9a-f]{15,43}):(\d{1,15}):(?:(\d{1,15})|high=(\d{1,15})(?::void=([\d,-]+))?(:end)?)", re.ASCII
)
_RANGE: Final = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")

Ranges = tuple[tuple[int, int], ...]
"""First and last number of each range, ascending, apart from each other."""


class BrokenNumberError(ValueError):
    """The property `kodo-seq` has a value that no producer writes."""


class Number(NamedTuple):
    """The number of a message. As a text: the property's value."""

    run: str
    partition: int
    number: int

    def __str__(self) -> str:
        return f"{self.run}:{self.partition}:{self.number}"


class ProducerWatermark(NamedTuple):
    """Progress of the count of a run on a partition. As a text: the value of the property."""

    run: str
    partition: int
    high: int
    void: Ranges = ()
    end: bool = False

    def __str__(self) -> str:
        ranges = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in self.void)
        return f"{self.run}:{self.partition}:high={self.high}{f':void={ranges}' if ranges else ''}{':end' if self.end else ''}"


def new_run(now: int, token: str) -> str:
    """A run that begins now (ms since the epoch). `token`: unique hex digits."""
    return f"{now:011x}{token}"


def run_start(run: str) -> int:
    """Start time of a run by the clock of its producer, ms since the epoch."""
    return int(run[:11], 16)


def read_number(text: str) -> Number | ProducerWatermark:
    """A value of `kodo-seq`. Raises BrokenNumberError."""
    match = _VALUE.fullmatch(text)
    if match is None:
        raise BrokenNumberError(text[:100])
    run, partition, number, high, void, end = match.groups()
    if number is not None:
        return Number(run, int(partition), int(number))
    return ProducerWatermark(run, int(partition), int(high), _ranges(void) if void else (), end is not None)


def _ranges(text: str) -> Ranges:
    found = []
    before = 0
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else 0
        if not before < first <= last:
            raise BrokenNumberError(text[:100])
        found.append((first, last))
        before = last
    return tuple(found)
