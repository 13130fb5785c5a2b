"""Bounds of time: the first and the last time at which a landed message can have been stored. Pure.

They come from the creation of partitions and from the readings, by the cluster's clock. The sender of a message chooses
its publish time: one in the year 9999 would stretch a chart over eight thousand years, and its window would be the
newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

CLOCKS: Final = 3_600_000  # ms that the clocks of producers, workers, brokers and this machine may differ
LONGEST: Final = 600 * 7 * 86_400_000  # ms that a chart shows, at most


class TimeBounds(NamedTuple):
    """Time in which landed messages can have been stored: from `since` to `until`, both included, in ms since the
    epoch. Publish times beyond it, which senders choose, are not believed.
    """

    since: int
    until: int

    @classmethod
    def of(cls, created: Iterable[int], read: Iterable[int]) -> TimeBounds:
        """Bounds from `created`, the creation times of partitions (if the broker reports them), and `read`, the times
        of readings and landings; all in ms since the epoch. They are an hour wider than these times on both sides, for
        clocks that differ, and at most 600 weeks long (LONGEST).
        """
        until = max(read, default=0) + CLOCKS
        return cls(max(min(created, default=0) - CLOCKS, until - LONGEST, 0), until)

    def span(self, first: int, last: int) -> int:
        """Length (ms) of the part of the time from `first` to `last` that is within the bounds; 0 if there is none."""
        return max(0, min(last, self.until) - max(first, self.since))

    def windows(self, width: int) -> tuple[int, int]:
        """(first, last) time between which every window that overlaps the bounds begins. Windows begin at multiples of
        `width` ms. The last time is `until`, so it need not be the beginning of a window.
        """
        return self.since - self.since % width, self.until
