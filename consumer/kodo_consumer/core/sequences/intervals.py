"""Sets of whole numbers as ranges: a million numbers in a row take no more room than one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Intervals:
    """Set of numbers as ascending ranges (first, last) that do not touch. It iterates over the ranges, and its length
    is the number of ranges; `in` tests a number.
    """

    __slots__ = ("_first", "_last")

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._first, number) - 1
        return at >= 0 and number <= self._last[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._first, self._last, strict=True)

    def __len__(self) -> int:
        return len(self._first)

    def add(self, first: int, last: int) -> None:
        """Adds all numbers from `first` to `last`, both included; `last` must not be below `first`."""
        if self._last and first == self._last[-1] + 1:  # the next one, as mostly
            self._last[-1] = last
            return
        start = bisect_right(self._last, first - 2)  # the first range that touches the new one
        end = bisect_right(self._first, last + 1)
        if start < end:
            first, last = min(first, self._first[start]), max(last, self._last[end - 1])
        self._first[start:end], self._last[start:end] = [first], [last]

    def take(self, first: int, last: int) -> None:
        """Removes the numbers from `first` to `last`, both included, as far as the set has them. A range is split where
        needed. `last` must not be below `first`.
        """
        start, end = bisect_right(self._last, first - 1), bisect_right(self._first, last)
        if start >= end:
            return
        kept = [(self._first[start], first - 1), (last + 1, self._last[end - 1])]
        kept = [(low, high) for low, high in kept if low <= high]
        self._first[start:end], self._last[start:end] = [low for low, _ in kept], [high for _, high in kept]

    def keep(self, most: int) -> None:
        """Keeps the `most` highest ranges, and removes the others."""
        gone = max(0, len(self) - most)
        del self._first[:gone], self._last[:gone]

    def holes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges (first, last) of numbers from `first` to `last`, both included, that are missing here, in
        ascending order. The set must not change meanwhile.
        """
        at = first
        for low, high in self:
            if low > last:
                break
            if low > at:
                yield at, low - 1
            at = max(at, high + 1)
        if at <= last:
            yield at, last
