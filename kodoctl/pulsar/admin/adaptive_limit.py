"""Adaptive limit of concurrent requests (AIMD): halved when a broker is busy, then slowly raised."""

from __future__ import annotations

import threading
from types import TracebackType


class AdaptiveConcurrencyLimit:
    """Limit of concurrent requests, `most` at first. Use it as a context manager around one request: it blocks until
    the limit permits one more. Then report the result by `throttled` or `succeeded`. Safe to use from several threads.

    A thread that has entered may enter again, for requests that prepare its own one. Such a request is not counted and
    does not wait, because the thread would wait for itself.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._under_way = 0
        self._waiting = 0
        self._since = 0  # requests that began and ended since the limit was halved; below 0: others have not ended yet
        self._changed = threading.Condition()
        self._here = threading.local()

    @property
    def limit(self) -> int:
        """Number of requests that may run at the same time now; a request within another one does not count."""
        return int(self._limit)

    @property
    def waiting(self) -> int:
        """Number of requests that wait now because the limit is reached."""
        return self._waiting

    def __enter__(self) -> None:
        depth = getattr(self._here, "depth", 0)
        if not depth:
            self._wait()
        self._here.depth = depth + 1

    def _wait(self) -> None:
        """Waits until the limit permits one more request, and counts it. An interrupted wait changes nothing."""
        with self._changed:
            self._waiting += 1
            try:
                while self._under_way >= int(self._limit):
                    self._changed.wait()
            finally:
                self._waiting -= 1
            self._under_way += 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._here.depth -= 1
        if self._here.depth:
            return
        with self._changed:
            self._under_way -= 1
            self._since += 1
            self._changed.notify()

    def throttled(self) -> None:
        """Reports that a broker was too busy for a request, and halves the limit (to 1 at least). Requests that ran at
        the same time halve it only once: it is halved again if all of them, and then as many as the limit is high, have
        ended.
        """
        with self._changed:
            if self._since >= int(self._limit) or self._limit == self._most:
                self._limit = max(1.0, self._limit / 2)
                self._since = -self._under_way

    def succeeded(self) -> None:
        """Reports that a broker answered a request. After about as many reports as the limit is high, the limit rises
        by one, up to `most`.
        """
        if self._limit < self._most:
            with self._changed:
                self._limit = min(float(self._most), self._limit + 1 / self._limit)
                self._changed.notify()
