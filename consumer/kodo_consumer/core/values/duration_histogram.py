"""Histogram of durations. Adding a value costs a search and an addition; scrapes read it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
ATTEMPTS: Final = (1, 2, 3, 5, 8, 13, 21)


class Histogram:
    """Histogram of values. `counts`: values up to each bound and above the one before, last those above all bounds;
    `total`: sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one: beyond all bounds
        self.total = 0.0

    def add(self, value: float, weight: int = 1) -> None:
        """Adds a value; a sampled one stands for `weight` values."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def cumulative(self) -> list[tuple[str, float]]:
        """Pairs (bound as text, number of values at or below it), as Prometheus writes them; the last bound is `+Inf`."""
        bounds = [*(f"{float(bound)}" for bound in self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))
