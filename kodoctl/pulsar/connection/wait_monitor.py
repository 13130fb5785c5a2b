"""Waits for a cluster that is busy, fails over or does not answer: limits, pauses between tries, and reports of long
waits.

One WaitMonitor belongs to a session. Code that may wait runs in a block `with monitor.during(what, limit) as wait`. A
wait of more than REPORT_AFTER_S seconds is reported, even during a blocking call, so that a command that makes no
progress shows the reason.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FAIL_OVER_S: Final = 60.0
"""Seconds to wait for a broker's fail-over at most: its ZooKeeper session ends after 30 s (the default), its bundles
then find new brokers within seconds, and a busy cluster needs about as long again.
"""
REPORT_AFTER_S: Final = 5.0
REPORT_EVERY_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 3.0

OnWait = Callable[[str, float, float], object]
"""Receives, in any thread, a report: name of the awaited thing, seconds waited so far, limit in seconds."""


class Wait:
    """One wait, of the thread that makes it. `what`: the awaited thing or the reason, for reports; `limit`: seconds,
    which `again` applies; `limit_now`: limit for the present reason, at most `limit`. A block that tries again
    calls `again`; a block that only blocks may set `what`.
    """

    def __init__(self, what: str, limit: float, clock: Callable[[], float], pause: Callable[[float], None]) -> None:
        self.what, self.limit, self.limit_now = what, limit, limit
        self._clock, self._pause = clock, pause
        self._since = clock()
        self._paused = 0.0
        self._tries = 1
        self.thread = threading.get_ident()

    @property
    def seconds(self) -> float:
        """Seconds since the wait began, or the sum of its pauses if that is more (a test may not really sleep)."""
        return max(self._clock() - self._since, self._paused)  # the pauses alone where a test does not wait

    def again(self, what: str, limit: float | None = None) -> bool:
        """Call it after a failed try: if the limit is not over, sleeps and returns True for another try, else returns
        False at once. The pause (up to 4.5 s) and the last try may end after the limit.

        The pause grows, and is random. `what`: why the last try failed; `limit`: a lower limit in seconds for this
        reason (a higher one than the wait's own has no effect), None: the wait's own. If the first try alone took
        longer than the limit, it is still repeated once, because a broker that hangs answers nothing until its bundles
        have moved. With a limit of 0 there is no second try.
        """
        self.what, self.limit_now = what, self.limit if limit is None else min(limit, self.limit)
        left = self.limit_now - self.seconds
        if left <= 0 and (self._tries > 1 or self.limit_now <= 0):
            return False
        gap = _gap(self._tries)
        self._tries += 1
        self._paused += gap
        self._pause(gap)
        return True


class WaitMonitor:
    """Registry of the present waits of a session, with a thread that reports long ones to `on_wait` (None: no reports).
    Safe to use from several threads. `limit`: seconds, for waits that give no limit of their own.
    """

    def __init__(
        self,
        on_wait: OnWait | None = None,
        *,
        limit: float = FAIL_OVER_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.limit = limit
        self.pause = pause
        self._on_wait, self._clock = on_wait, clock
        self._lock = threading.Lock()
        self._waits: dict[int, Wait] = {}
        self._reported = float("-inf")
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def during(self, what: str, limit: float | None = None) -> Iterator[Wait]:
        """Context that registers a wait. `limit`: seconds, None: the monitor's. The limit is applied by `Wait.again`;
        the block itself is not interrupted.
        """
        wait = Wait(what, self.limit if limit is None else limit, self._clock, self.pause)
        if self._on_wait is None:
            yield wait
            return
        with self._lock:
            self._waits[id(wait)] = wait
            self._begin()
        try:
            yield wait
        finally:
            with self._lock:
                del self._waits[id(wait)]

    def report(self) -> None:
        """Reports the longest wait to `on_wait`, by the name of the innermost wait of its thread, if it has lasted for
        5 s (REPORT_AFTER_S) and the last report, if there was one, is 5 s old (REPORT_EVERY_S). There is one report for
        all waits, so that many threads do not fill the screen. The monitor's thread calls this method every second.
        """
        with self._lock:
            now = self._clock()
            long = [wait for wait in self._waits.values() if wait.seconds >= REPORT_AFTER_S]
            if not long or now - self._reported < REPORT_EVERY_S or self._on_wait is None:
                return
            self._reported = now
            first = max(long, key=lambda wait: wait.seconds)
            inner = [wait for wait in self._waits.values() if wait.thread == first.thread][-1]
        self._on_wait(inner.what, first.seconds, first.limit_now)

    def close(self) -> None:
        """Ends the thread that reports long waits, without waiting for it; later waits are not reported. The limits of
        waits stay in force. Never raises.
        """
        self._closed.set()

    def _begin(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._watch, name="kodoctl-waits", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            self.report()


def _gap(tries: int) -> float:
    """Seconds to sleep before the next try, random around a growing value."""
    return float(min(0.1 * 2**tries, _LONGEST_PAUSE_S) * (0.5 + random.random()))  # noqa: S311  # spreads retries, no secret
