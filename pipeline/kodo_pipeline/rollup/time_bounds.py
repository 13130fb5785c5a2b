"""Bounds of time: the first and the last moment at which what landed can have been stored. Pure.

They are from the cluster and from the clock of who landed it. A publish time is what its sender wrote: one in the year
9999 would make a chart of eight thousand years, and the newest windows those of that one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

CLOCKS: Final = 3_600_000  # ms that the clocks of producers, workers, brokers and this machine may differ
LONGEST: Final = 600 * 7 * 86_400_000  # ms that a chart shows, at most


class TimeBounds(NamedTuple):
    """Time from `since` to `until`, both included, in ms since the epoch."""

    since: int
    until: int

    @classmethod
    def of(cls, created: Iterable[int], read: Iterable[int]) -> TimeBounds:
        """`created`: when partitions were made, as far as the broker tells; `read`: when they were read, and when it landed."""
        until = max(read, default=0) + CLOCKS
        return cls(max(min(created, default=0) - CLOCKS, until - LONGEST, 0), until)

    def span(self, first: int, last: int) -> int:
        """Returns the length (ms) of the time from `first` to `last` that is within the bounds; 0 if none is."""
        return max(0, min(last, self.until) - max(first, self.since))

    def windows(self, width: int) -> tuple[int, int]:
        """The first and the last moment at which a window of `width` ms begins that has any of this time."""
        return self.since - self.since % width, self.until
