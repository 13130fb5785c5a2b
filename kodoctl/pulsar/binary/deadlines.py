"""Limits of waits on the binary port: for receipts, and for calls into the client library, which may never return.

The client library has time-outs of its own, and they do not fire in every state: a producer of a topic that cannot
store waits for ever (pulsar-client 3.13, a dead bookie). So kodoctl enforces each limit; a call that does not return is
abandoned in its thread.
"""

from __future__ import annotations

import contextlib
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
    """A wait ended without an answer after `seconds`, by its limit or an interruption. The awaited event may still
    happen.
    """

    def __init__(self, what: str, seconds: float, *, interrupted: bool = False) -> None:
        self.seconds, self.interrupted = seconds, interrupted
        why = f"interrupted after {seconds:.0f} s" if interrupted else f"no answer within {seconds:.0f} s"
        super().__init__(error("K518", "the broker's binary port does not answer", f"{what}: {why}"))


class Patience:
    """Limits the waits of one command. Each wait has its own limit; all end AFTER_STOP_S seconds after an interruption
    sets the event `stop`. Long waits are reported to the monitor. Safe to use from several threads.
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
        """Waits until `done` returns true, and returns the seconds that it waited. The caller must have acquired
        `changed`, which is released while waiting. `what`: name of the awaited thing, for messages. Raises
        UnansweredError after `limit` seconds, or AFTER_STOP_S seconds after an interruption.
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
        """Runs `work` in a thread of its own, and returns its result or raises its exception. Raises UnansweredError
        after `limit` seconds, or AFTER_STOP_S seconds after an interruption; the call is then abandoned, and its thread
        passes a later result to `late`, whose errors are ignored.
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
                with contextlib.suppress(Exception):  # nobody waits: Python would print a traceback
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
    """True if an abandoned call has not returned yet. An interpreter that exits then ends such a thread inside the
    client library, which aborts the process by SIGABRT.
    """
    return any(thread.is_alive() for thread in _left_behind)
