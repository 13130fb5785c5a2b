"""Bounds of time: the first and the last moment at which a landed message can have been stored. Pure.

They come from the creation of partitions and from the readings, by the cluster's clock. A publish time is chosen by its
sender: one in the year 9999 would stretch a chart over eight thousand years, and its window would be the newest.
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
        """Bounds from two sets of times in ms since the epoch. `created`: of partitions, if the broker tells; `read`:
        of readings and of landings.
        """
        until = max(read, default=0) + CLOCKS
        return cls(max(min(created, default=0) - CLOCKS, until - LONGEST, 0), until)

    def span(self, first: int, last: int) -> int:
        """Returns the length (ms) of the time from `first` to `last` that is within the bounds; 0 if none is."""
        return max(0, min(last, self.until) - max(first, self.since))

    def windows(self, width: int) -> tuple[int, int]:
        """First and last moment at which a window of `width` ms that touches this time can begin."""
        return self.since - self.since % width, self.until
