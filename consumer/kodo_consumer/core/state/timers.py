"""Timers: a heap of callback targets by their due times, in seconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

S = TypeVar("S")


class TimerQueue(Generic[S]):
    """Heap of callback targets by due time (monotonic seconds). A timer cannot be removed: whoever takes a due one has
    to see whether it still counts, such as by its number. `first`: due time of the next timer, infinite if there is
    none. It iterates over (number, target) in no order.
    """

    __slots__ = ("_count", "_heap", "first")

    def __init__(self) -> None:
        self.first = float("inf")  # when the next timer is due; infinite without any
        self._heap: list[tuple[float, int, S]] = []
        self._count = 0

    def __iter__(self) -> Iterator[tuple[int, S]]:
        for _, number, target in self._heap:
            yield number, target

    def set(self, at: float, target: S) -> int:
        """Sets a timer for the target at the time `at` (monotonic seconds), and returns the number of the timer."""
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, target))
        self.first = self._heap[0][0]
        return self._count

    def pop_due(self, now: float) -> Iterator[tuple[int, S]]:
        """Removes timers that are due at `now` one by one, the earliest first, and yields (number, target), also of
        timers that are set while the caller iterates.
        """
        while self._heap and self._heap[0][0] <= now:
            _, number, target = heapq.heappop(self._heap)
            self.first = self._heap[0][0] if self._heap else float("inf")
            yield number, target
