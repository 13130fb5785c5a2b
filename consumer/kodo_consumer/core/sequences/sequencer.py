"""Sequencer of a producer: the partition of a message, its next sequence number, and marks, which tell readers the
numbers to expect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from kodo_consumer.core.sequences.intervals import Intervals
from kodoctl.protocol.sequence_numbers import MAX_RANGES, Number, ProducerWatermark

_TURN: Final = 0.01  # seconds that messages without a key stay with a partition: batches form
_IN_A_ROW: Final = 100  # and how many, at most


class Router:
    """Chooses the partition of a message: by its key as Pulsar's Java clients do by default, else in turns. Not
    thread-safe. `partitions`: their number, at least 1; the caller may set a higher one.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._at, self._since, self._row = 0, 0.0, 0

    def choose(self, key: str, now: float) -> int:
        """Returns the number of a partition, from 0 on. A key has the same partition each time while `partitions`
        stays; messages without a key ("") go to one partition for 10 ms or 100 messages, whichever ends first, then to
        the next one. `now`: monotonic seconds.
        """
        if self.partitions == 1:
            return 0
        if key:
            return key_hash(key) % self.partitions
        if self._row >= _IN_A_ROW or now - self._since >= _TURN:
            self._at, self._since, self._row = (self._at + 1) % self.partitions, now, 0
        self._row += 1
        return self._at


@lru_cache(maxsize=10_000)
def key_hash(key: str) -> int:
    """Hash of a key by which Pulsar's Java clients choose its partition by default: Java's `hashCode` without its sign
    bit. So a key has the same partition whether a Java client or this one sends it. (The C++ and Python clients use
    another hash by default, which depends on the library they were built with.)
    """
    units = key.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


@dataclass(slots=True)
class _Count:
    high: int = 0
    marked: int = 0  # what the last mark said that was stored
    void: Intervals = field(default_factory=Intervals)  # given up, and not yet in a stored mark


class Sequencer:
    """Assigns the sequence numbers of one producer run, in each partition from 1 on, and makes its marks: messages
    without content that tell readers the numbers to expect. Not thread-safe.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self._counts: dict[int, _Count] = {}

    def next(self, partition: int) -> Number:
        """Assigns the next number of a partition; its first one is 1."""
        count = self._counts.setdefault(partition, _Count())
        count.high += 1
        return Number(self.run, partition, count.high)

    def give_up(self, number: Number) -> None:
        """Makes a number that `next` returned void, because its message may never be stored: `marks` names it until a
        mark with it is stored.
        """
        self._counts[number.partition].void.add(number.number, number.number)

    def marks(self, *, end: bool = False) -> list[ProducerWatermark]:
        """Returns the marks to publish: for each partition with numbers, or void numbers, that no stored mark has named
        yet; several for a partition with more than 500 ranges of void numbers. `end`: for every partition, whether it
        has such numbers or not, and its last mark ends the run. The caller passes each mark that is stored to
        `marked_sent`.
        """
        found = []
        for partition, count in self._counts.items():
            if end or count.void or count.high > count.marked:
                ranges = list(count.void)
                parts = [ranges[at : at + MAX_RANGES] for at in range(0, len(ranges), MAX_RANGES)] or [[]]
                found += [
                    ProducerWatermark(self.run, partition, count.high, tuple(part), end and place == len(parts) - 1)
                    for place, part in enumerate(parts)
                ]
        return found

    def mark_again(self, partition: int) -> ProducerWatermark:
        """Mark with the highest number that a stored mark of a partition has, 0 if none is stored: it names no new
        message.
        """
        return ProducerWatermark(self.run, partition, self._counts.setdefault(partition, _Count()).marked)

    def marked_sent(self, mark: ProducerWatermark) -> None:
        """Notes that a mark of this sequencer is stored: `marks` does not name its numbers again, except the highest
        one with `end`.
        """
        count = self._counts[mark.partition]
        count.marked = max(count.marked, mark.high)
        for first, last in mark.void:
            count.void.take(first, last)
