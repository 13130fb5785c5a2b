"""Number of live workers that share a limit: the maximum of the last 30 s. No I/O, the clock is passed in."""

from __future__ import annotations

from collections import deque
from typing import Final

_KEPT: Final = 30.0  # seconds


class LiveWorkerCount:
    """The most workers of the last half minute: a worker that was seen counts for a while.

    More workers count at once, so that a limit is soon shared by all; fewer count late, for a worker that is not seen
    may only be connecting again. The expected ones count as seen at the start: workers that start together would
    otherwise each begin alone. When nothing can be read, what was seen last goes on, and at least the expected ones
    count.
    """

    def __init__(self, expected: int, now: float) -> None:
        self._expected = expected
        self._last = expected
        self._seen: deque[tuple[float, int]] = deque([(now, expected)])  # falling counts

    def count(self, live: int | None, now: float) -> int:
        """Workers to divide by, after a reading; None: it could not be read."""
        if not live:
            live = max(self._last, self._expected)
        self._last = live
        while self._seen and self._seen[-1][1] <= live:
            self._seen.pop()
        self._seen.append((now, live))
        while now - self._seen[0][0] > _KEPT:
            self._seen.popleft()
        return self._seen[0][1]
