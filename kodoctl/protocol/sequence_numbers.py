"""Numbers that producers put on messages so that a hole shows: the property `kodo-seq`, written and read in one
place.

A *run* is the life of one producer of one ready topic; it numbers the messages of each partition from 1, and chooses
the partition of a message itself. A message has the property's value

    RUN:PARTITION:NUMBER                         7f3a9c2e41b00a12:3:1841

A *mark* is a message without payload that no subscription handles (`kodo-for` is NOBODY). It has the highest number
so far, and the void numbers: sends without a receipt, whose messages may be stored or not. `end`: the run is over.

    RUN:PARTITION:high=NUMBER[:void=RANGES][:end]   7f3a9c2e41b00a12:3:high=1841:void=17,40-52:end

A reader expects every number of a run and partition once, up to the highest one seen or marked, except void ones. Only
the first hop counts: a message that a worker moved or a recall sent again keeps its number, and is no second message.
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
"""(first, last) number of each range, both included; ascending and without overlap."""


class BrokenNumberError(ValueError):
    """The property `kodo-seq` has a value that no producer writes. The text of the exception is that value, or only its
    void numbers if these are wrong, cut to 100 characters.
    """


class Number(NamedTuple):
    """Number of one message: the `number`-th of the producer run `run` on `partition`. `str` gives the value of the
    property.
    """

    run: str
    partition: int
    number: int

    def __str__(self) -> str:
        return f"{self.run}:{self.partition}:{self.number}"


class ProducerWatermark(NamedTuple):
    """A mark, by which a producer reports that it has given numbers up to `high` on `partition` (0: none). `void`:
    numbers of sends without a receipt, perhaps not all of them, as several marks may share them; `end`: the run is
    over. `str` gives the value of the property.
    """

    run: str
    partition: int
    high: int
    void: Ranges = ()
    end: bool = False

    def __str__(self) -> str:
        ranges = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in self.void)
        return f"{self.run}:{self.partition}:high={self.high}{f':void={ranges}' if ranges else ''}{':end' if self.end else ''}"


def new_run(now: int, token: str) -> str:
    """Makes the id of a producer run that begins at `now` (ms since the epoch). `token`: 4 to 32 lower-case hexadecimal
    digits that no other run has.
    """
    return f"{now:011x}{token}"


def run_start(run: str) -> int:
    """Start of a run by its producer's clock, in ms since the epoch, read from the run's id."""
    return int(run[:11], 16)


def read_number(text: str) -> Number | ProducerWatermark:
    """Parses a value of `kodo-seq`, of a message or of a mark. Raises BrokenNumberError."""
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
