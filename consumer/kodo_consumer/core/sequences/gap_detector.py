"""Gap detector: finds missing and doubled messages by the sequence numbers of producers, for a reader that gets all of
them.

For exclusive and failover subscriptions with one worker; one of several Shared workers sees holes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from kodo_consumer.core.sequences.intervals import Intervals
from kodoctl.protocol.sequence_numbers import BrokenNumberError, Number, ProducerWatermark, read_number, run_start

GRACE: Final = 30.0  # seconds a hole may stay open: a batch on its way again may fill it
_SKEW: Final = 60_000  # ms that clocks of producers and readers may differ
_MAX_RUNS: Final = 10_000  # runs and partitions that are remembered, and as many that are over
_MAX_HOLES: Final = 50_000  # of all runs: a producer that leaves out numbers makes one with each message
_MAX_HOLES_OF_ONE: Final = 1_000


class NumberCheck(StrEnum):
    """Judgement on a sequence number: its first time, its second, a mark without a message, or unreadable."""

    NEW = "new"
    DOUBLED = "doubled"
    MARK = "mark"
    BROKEN = "broken"


class Hole(NamedTuple):
    """Numbers from `first` to `last`, both included, of one producer run in one partition, that never came."""

    run: str
    partition: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of missing numbers."""
        return self.last - self.first + 1


@dataclass(slots=True)
class _Count:
    """Numbers of one producer run in one partition. `base`: the first that is expected; `high`: the highest that was
    seen or marked. `came`: those that came; `known`: those from `base` on that came, are void or were reported as lost.
    """

    base: int
    high: int
    ended: bool = False
    came: Intervals = field(default_factory=Intervals)
    known: Intervals = field(default_factory=Intervals)
    open_since: dict[int, float] = field(default_factory=dict)  # first number of a hole -> seconds

    def holes(self) -> Iterator[tuple[int, int]]:
        return self.known.holes(self.base, self.high)


class Gaps:
    """Finds gaps in sequence numbers. `since`: when the reader became the only one, ms since the epoch: of runs that
    began over a minute later every number is expected, of others those from the first one seen. `doubled`: count of
    numbers that came twice; `lost`: count of numbers in holes that `check` has returned.

    It remembers 10,000 runs and partitions, and as many complete ones that are over. An older one is forgotten with its
    holes; if that run goes on, its numbers are expected from the next one seen.
    """

    def __init__(self, since: int) -> None:
        self._since = since
        self._counts: dict[tuple[str, int], _Count] = {}
        self._over: dict[tuple[str, int], _Count] = {}  # complete: copies of their messages and marks may still come
        self.doubled = 0
        self.lost = 0  # numbers of holes that stayed open for longer than GRACE

    def see(self, text: str) -> NumberCheck:
        """Takes the `kodo-seq` of a message or mark, and judges it. Redeliveries of a message must not be passed in."""
        try:
            read = read_number(text)
        except BrokenNumberError:
            return NumberCheck.BROKEN
        count = self._count(read)
        match read:
            case Number():
                if read.number in count.came:
                    self.doubled += 1
                    return NumberCheck.DOUBLED
                count.came.add(read.number, read.number)
                count.high = max(count.high, read.number)
                if read.number >= count.base:
                    count.known.add(read.number, read.number)
                return NumberCheck.NEW
            case ProducerWatermark():
                count.high = max(count.high, read.high)
                for low, high in read.void:
                    first, last = max(low, count.base), min(high, count.high)
                    if first <= last:
                        count.known.add(first, last)
                count.ended = count.ended or read.end
                return NumberCheck.MARK
            case _:
                assert_never(read)

    def check(self, now: float) -> list[Hole]:
        """Returns holes that are open GRACE (30) seconds after the first call that saw them, each once; if there are
        too many to remember, the lowest ones at once. Adds their numbers to `lost`.
        """
        lost = []
        most = min(_MAX_HOLES_OF_ONE, max(1, _MAX_HOLES // max(1, len(self._counts))))
        for key, count in list(self._counts.items()):
            holes = list(count.holes())
            if excess := holes[:-most]:
                lost += [Hole(*key, *hole) for hole in excess]
                count.known.add(excess[0][0], excess[-1][1])
            count.came.keep(most)
            open_now = dict(holes[-most:])
            count.open_since = {first: count.open_since.get(first, now) for first in open_now}
            for first, began in count.open_since.items():
                if now - began >= GRACE:
                    lost.append(Hole(*key, first, open_now[first]))
                    count.known.add(first, open_now[first])  # reported, and closed
            if count.ended and not any(count.holes()):
                self._remember(self._over, key, self._counts.pop(key))
        self.lost += sum(hole.size for hole in lost)
        return lost

    def restart(self, since: int) -> None:
        """Forgets all numbers, because messages are redelivered, and another reader may have got some; the totals stay.
        `since`: ms since the epoch from which on this reader is the only one again.
        """
        self._since = since
        self._counts.clear()
        self._over.clear()

    def _count(self, read: Number | ProducerWatermark) -> _Count:
        key = (read.run, read.partition)
        count = self._counts.get(key)
        if count is None:
            count = self._over.pop(key, None)
            if count is None:
                at = read.number if isinstance(read, Number) else read.high + 1
                count = _Count(1 if run_start(read.run) > self._since + _SKEW else at, at - 1)
            self._remember(self._counts, key, count)
        return count

    def _remember(self, counts: dict[tuple[str, int], _Count], key: tuple[str, int], count: _Count) -> None:
        """Adds the count of a run to `counts`, in place of the oldest one if there are too many: it is not known any
        more which numbers of that run came.
        """
        if len(counts) >= _MAX_RUNS:
            oldest = next(iter(counts))
            del counts[oldest]
            self._since = max(self._since, run_start(oldest[0]))
        counts[key] = count
