"""Waits on the binary port that end in time: receipts, and calls into the client library, which may never return.

The client library has time-outs of its own, and they do not fire in every state: a producer of a topic that cannot
store waits for ever (pulsar-client 3.13, a dead bookie). So each limit is kept on our side; a call that does not
return is left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

T = TypeVar("T")
AFTER_STOP_S: Final = 5.0  # of all waits together, after an interruption: enough for receipts that are on their way
_POLL_S: Final = 0.1
_left_behind: list[threading.Thread] = []


class UnansweredError(ClusterError):
    """A wait reached its limit, or was interrupted: the awaited event may still happen. `seconds`: length of
    the wait.
    """

    def __init__(self, what: str, seconds: float, *, interrupted: bool = False) -> None:
        self.seconds, self.interrupted = seconds, interrupted
        why = f"interrupted after {seconds:.0f} s" if interrupted else f"no answer within {seconds:.0f} s"
        super().__init__(error("K518", "the broker's binary port does not answer", f"{what}: {why}"))


class Patience:
    """Limit of the waits of one command, by the deadlines of its waits and by `stop`, which an interruption sets.
    Reports long waits to its monitor. Safe to use from several threads.
    """

    def __init__(
        self,
        waits: WaitMonitor,
        stop: threading.Event | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waits = waits
        self._stop, self._clock = stop, clock
        self._ends = float("inf")

    def until(self, changed: threading.Condition, done: Callable[[], object], what: str, limit: float) -> float:
        """Returns, with `changed` held as before, when `done` is true: how many seconds that took. Raises UnansweredError after
        `limit` seconds.
        """
        since = self._clock()
        with self.waits.during(what, limit):
            while not done():
                now = self._clock()
                left = min(since + limit, self._end()) - now
                if left <= 0:
                    raise UnansweredError(what, now - since, interrupted=self._ends <= now)
                changed.wait(min(left, _POLL_S))
        return self._clock() - since

    def call(self, work: Callable[[], T], what: str, limit: float, late: Callable[[T], object] = lambda _: None) -> T:
        """Runs `work` in a thread of its own, and returns its result or raises its exception. Raises
        UnansweredError after `limit` seconds; the call is then abandoned, and its later result is passed to
        `late`.
        """
        changed = threading.Condition()
        returned: list[T] = []
        raised: list[BaseException] = []
        abandoned = False

        def run() -> None:
            try:
                found = work()
            except BaseException as problem:  # noqa: BLE001  # it is raised where it is waited for
                with changed:
                    raised.append(problem)
                    changed.notify_all()
                return
            with changed:
                returned.append(found)
                changed.notify_all()
                too_late = abandoned
            if too_late:
                late(found)

        thread = threading.Thread(target=run, name="kodoctl-call", daemon=True)
        with changed:
            thread.start()
            try:
                self.until(changed, lambda: returned or raised, what, limit)
            except BaseException:  # KeyboardInterrupt as well
                abandoned = True
                _left_behind.append(thread)
                raise
        if raised:
            raise raised[0]
        return returned[0]

    def _end(self) -> float:
        """Time at which every wait ends; the first one that notices the interruption sets it."""
        if self._stop is not None and self._stop.is_set():
            self._ends = min(self._ends, self._clock() + AFTER_STOP_S)
        return self._ends


def any_left_behind() -> bool:
    """True if a call that was left behind has not returned. An interpreter that ends ends such threads in the midst
    of the client library, and that the process, by SIGABRT.
    """
    return any(thread.is_alive() for thread in _left_behind)
