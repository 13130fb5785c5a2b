"""Adaptive concurrency (AIMD): finds the number of handlers at once. No I/O, the clock is passed in.

It allows more as long as handlers get no slower, and fewer at once when they do or when they fail. Additive increase,
multiplicative decrease: after each round (as many ends as there may be handlers at once, at least 20, and a quarter
of a second) the limit grows by one if it was used; it shrinks by three tenths when the mean handler time is above
twice the best that was seen lately, or more than one in ten failed.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = 8
_LEAST: Final = 1
_ROUND: Final = 0.25  # seconds, at least
_ENDS: Final = 20  # and so many ends
_SLOWER: Final = 2.0  # times the best
_NOISE: Final = 0.002  # seconds that do not count as slower
_FAILURES: Final = 0.1
_SHRINK: Final = 0.7
_FORGET: Final = 1.001  # the best seen fades by this much a round, doubled in three minutes: it may not come back


class Adaptive:
    """Concurrency limit that adapts itself. `limit`: handlers that may run at once, at most `most`. Times in seconds."""

    __slots__ = ("_bad", "_began", "_best", "_ends", "_most", "_peak", "_total", "limit")

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(_FIRST, most)
        self._best = float("inf")
        self._ends = self._bad = self._peak = 0
        self._total = 0.0
        self._began = float("inf")

    def may_start(self, running: int) -> bool:
        """True if one more handler may start beside `running` ones."""
        return running < self.limit

    def on_end(self, took: float, running: int, now: float, *, bad: bool) -> bool:
        """Counts the end of a handler after `took` seconds; `running`: handlers at work, itself included; `bad`: it
        failed. Returns True if the limit has changed.
        """
        self._began = min(self._began, now)
        self._ends += 1
        self._total += took
        self._bad += bad
        self._peak = max(self._peak, running)
        if self._ends < max(self.limit, _ENDS) or now - self._began < _ROUND:
            return False
        before = self.limit
        self._judge()
        self._begin(now)
        return self.limit != before

    def _judge(self) -> None:
        mean = self._total / self._ends
        slower = mean > _SLOWER * self._best + _NOISE
        self._best = min(self._best * _FORGET, mean)
        if slower or self._bad > _FAILURES * self._ends:
            self.limit = max(_LEAST, int(self.limit * _SHRINK))
        elif self._peak >= self.limit:
            self.limit = min(self._most, self.limit + 1)

    def _begin(self, now: float) -> None:
        self._began = now
        self._ends = self._bad = self._peak = 0
        self._total = 0.0
