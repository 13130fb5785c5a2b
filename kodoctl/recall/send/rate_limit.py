"""A steady rate, without a burst after a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_TOO_SHORT: Final = 0.002  # seconds: a sleep below it costs more than it saves


class RateLimit:
    """Limiter of a sender to `per_second` starts of messages a second (above 0), without bursts after a pause; a start
    may be 2 ms early. `clock`: returns seconds; `a_second`: the limit rounded down, at least 1. Only for one thread.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap, self._clock = 1 / per_second, clock
        self.a_second = max(1, int(per_second))
        self._next = 0.0

    @property
    def free(self) -> bool:
        """True if the next message may start now, without a pause. Unlike `wait`, does not count it as started."""
        return self._next - self._clock() <= _TOO_SHORT

    def wait(self, stop: threading.Event) -> bool:
        """Waits until the next message may start or `stop` is set. Returns True, and counts the message as started;
        False if `stop` is set: the message must not start then.
        """
        now = self._clock()
        ahead = self._next - now
        if ahead > _TOO_SHORT and stop.wait(ahead):
            return False
        self._next = max(self._next, now) + self._gap
        return not stop.is_set()
