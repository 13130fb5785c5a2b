"""Number of live workers that share a limit: the maximum of the last 30 s. No I/O, the clock is passed in."""

from __future__ import annotations

from collections import deque
from typing import Final

_KEPT: Final = 30.0  # seconds


class LiveWorkerCount:
    """Number of live workers that share limits: the largest reading of the last 30 s.

    A higher number counts at once, so that a limit is soon shared by all; a lower one counts late, because a missing
    worker may only be connecting again. The expected number counts as a reading at the start: workers that start
    together would otherwise each begin alone. A failed reading counts as the reading before it, or as the expected
    number if that is higher.
    """

    def __init__(self, expected: int, now: float) -> None:
        self._expected = expected
        self._last = expected
        self._seen: deque[tuple[float, int]] = deque([(now, expected)])  # falling counts

    def count(self, live: int | None, now: float) -> int:
        """Takes a reading of live workers at `now` (seconds); None or 0: it failed. Returns the number of workers to
        divide limits by.
        """
        if not live:
            live = max(self._last, self._expected)
        self._last = live
        while self._seen and self._seen[-1][1] <= live:
            self._seen.pop()
        self._seen.append((now, live))
        while now - self._seen[0][0] > _KEPT:
            self._seen.popleft()
        return self._seen[0][1]
