"""Executor of plain handlers: threads that take messages in turn, as many as handlers keep busy, up to the number of
slots.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import KodoctlError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.message import Message
    from kodo_consumer.runtime.handler_errors import Forecast

log = logging.getLogger("kodo.consumer")
BREATH: Final = 0.0005  # seconds: others get at the worker before a slot that found nothing looks again
_MOST_HANGING: Final = 8  # threads, where there are fewer slots
JOIN: Final = 2.0  # seconds a stopped thread is waited for
_POLL: Final = 0.001  # seconds between two polls, to see whether handlers are held up
_RARE_POLL: Final = 0.008  # the same when they are not
_QUICK: Final = 4  # handlers a thread gets through in _POLL when nothing holds them up
_CALM_POLLS: Final = 4  # in a row, with most threads not in their handlers, before some step back


def hanging(detail: str) -> KodoctlError:
    """Returns error K758 for handlers that hang, with `detail`. The caller fails the worker with it, because only a
    restart by the process manager helps.
    """
    return KodoctlError(error("K758", "handlers hang", f"{detail}; the worker ends, to be started anew"))


@dataclass(slots=True, eq=False)
class _Slot:
    """One thread. `message`: the one that it handles now. `replaced`: its handler hangs, and another thread has its
    place.
    """

    thread: threading.Thread | None = None
    message: Message | None = None
    replaced: bool = False


class ParkedThreads:
    """Threads that sleep until they are woken. Use `count` and `wake` only with the executor's lock held; a thread adds
    itself to `count`, then calls `sleep` without the lock.
    """

    def __init__(self) -> None:
        self.count = 0
        self._bells: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> bool:
        """Wakes one thread. Returns false if none sleeps."""
        if not self.count:
            return False
        self.count -= 1
        self._bells.put(None)
        return True

    def sleep(self) -> None:
        """Blocks until this thread is woken."""
        self._bells.get()


class ThreadExecutor:
    """Implementation of HandlerExecutor whose slots are threads, started when first needed. A thread whose handler
    hangs is replaced, and ends when the handler returns.

    A message that arrives wakes a thread, unless one is about to take messages anyway. A scaling thread wakes more
    while there are messages and all awake threads are held up in their handlers; it lets threads sleep that mostly wait
    for the worker. Handlers that take microseconds are quickest on one thread: more would only compete for the worker's
    lock and the interpreter.
    """

    def __init__(
        self,
        handler: Callable[[Message], None],
        slots: int,
        texts: ErrorTextReader | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._handler, self._most = handler, slots
        self._complaints = ExceptionReporter(texts, forecast=forecast)
        self._lock = threading.Lock()
        self._source: WorkSource | None = None
        self._slots: set[_Slot] = set()
        self._parked = ParkedThreads()
        self._stopping = False
        self.hanging = 0  # threads whose handler was given up and has not come back
        self._started = 0  # turns that brought a message, more or less: threads do not wait for one another to count
        self._empty_at_version = -1  # the source's version when nothing was left to take
        self._work = threading.Event()
        self._scaler: threading.Thread | None = None
        self._scaling = False
        self._surplus = 0  # threads that are to step back

    def start(self, source: WorkSource) -> None:
        """Starts the scaling thread; handlers' threads start with the first messages of `source`."""
        self._source = source
        self._scaler = begin(partial(self._scale_loop, source), "kodo-scout", source.fail, over=lambda: self._stopping)

    def wake(self) -> None:
        """Wakes or starts a thread because there may be a message to take, unless one looks for messages anyway, or all
        slots are in use. Thread-safe; returns at once.
        """
        with self._lock:
            if sum(self._in_handlers()) >= len(self._slots) - self._parked.count:
                self._wake_one()

    def _wake_one(self) -> None:
        if not self._parked.wake() and len(self._slots) < self._most:
            self._add_slot()

    def _in_handlers(self) -> list[bool]:
        return [slot.message is not None for slot in self._slots]

    def time_out(self, message: Message) -> None:
        """Replaces the thread of a message whose handler took too long. If more threads hang than there are slots (at
        least 8), the worker fails.
        """
        with self._lock:
            for slot in [slot for slot in self._slots if slot.message is message]:
                log.error("a handler hangs: its thread is replaced")
                slot.replaced = True
                self._slots.discard(slot)
                self.hanging += 1
                self._add_slot()
            too_many = self.hanging > max(self._most, _MOST_HANGING)
        if too_many and self._source is not None:
            self._source.fail(
                hanging(
                    f"{many(self.hanging, 'thread')} of {many(self._most, 'slot')} hang, and threads cannot be ended"
                )
            )

    def stop(self) -> None:
        """Ends the threads. Waits 2 s at most for each that is not in a handler; threads in handlers end by themselves."""
        with self._lock:
            self._stopping = True
            waiting = [self._scaler, *(slot.thread for slot in self._slots if slot.message is None)]
            while self._parked.wake():
                pass
        self._work.set()
        for thread in waiting:
            if thread is not None:
                thread.join(JOIN)

    def _add_slot(self) -> None:
        source = self._source
        if self._stopping or source is None:
            return
        slot = _Slot()
        self._slots.add(slot)
        slot.thread = begin(partial(self._live, source, slot), "kodo-handler", source.fail)

    def _live(self, source: WorkSource, slot: _Slot) -> None:
        try:
            self._turns(source, slot)
        finally:
            if slot.replaced:
                with self._lock:
                    self.hanging -= 1

    def _turns(self, source: WorkSource, slot: _Slot) -> None:
        outcome: Outcome | None = None
        finished: Message | None = None
        while not slot.replaced:
            seen = source.version
            finished = source.next(finished, outcome)
            if finished is None:
                if self._park(seen, source):
                    continue
                return
            self._started += 1
            if not self._scaling:
                self._scaling = True
                self._work.set()
            slot.message = finished
            outcome = self._run(source, finished)
            slot.message = None
            if outcome is None:
                finished = None
            if self._surplus and self._step_back(source, slot, finished, outcome):
                finished = outcome = None

    def _run(self, source: WorkSource, message: Message) -> Outcome | None:
        """Runs the handler. Returns the outcome; None: the message is deferred."""
        try:
            copy_context().run(self._handler, message)  # what it leaves there is not for the next message
        except BaseException as problem:  # noqa: BLE001  # a handler that calls sys.exit has failed as well
            return self._complaints.outcome(problem, message)
        return self._complaints.outcome_of_return(source, message)

    def _park(self, seen: int, source: WorkSource) -> bool:
        """Sleeps until woken, unless there is more to take by now. Returns false if the executor was stopped."""
        with self._lock:
            if self._stopping:
                return False
            sleeps = source.version == seen
            self._parked.count += sleeps
            self._empty_at_version = seen
        if sleeps:
            self._parked.sleep()
        else:
            time.sleep(BREATH)
        return not self._stopping

    def _step_back(self, source: WorkSource, slot: _Slot, finished: Message | None, outcome: Outcome | None) -> bool:
        """Hands the message (None: none) back and sleeps until woken, if more threads are awake than useful. Returns
        false if it did neither.
        """
        with self._lock:
            if slot.replaced:  # it is counted no more
                return False
            if not self._surplus or self._stopping or len(self._slots) - self._parked.count < 2:
                self._surplus = 0
                return False
            self._surplus -= 1
            self._parked.count += 1  # from here on each wake-up reaches a thread
        ended = [(finished, outcome)] if finished is not None and outcome is not None else []
        source.next_batch(ended, 0)
        self._work.set()  # what the message held up may start now, and the others may have gone to sleep before
        self._parked.sleep()
        return True

    def _scale_loop(self, source: WorkSource) -> None:
        while not self._stopping:
            self._work.wait()
            self._work.clear()
            self._scale(source)
            self._scaling = False
            if source.version != self._empty_at_version:  # it may have been counted on in between
                self._work.set()

    def _scale(self, source: WorkSource) -> None:
        """Adapts the number of awake threads while there are messages: as many as handlers keep busy, and one more."""
        pause, calm = _POLL, 0
        busy, awake = self._count_busy()
        while not self._stopping and source.version != self._empty_at_version:
            started, were_busy = self._started, busy >= awake
            time.sleep(pause)
            busy, awake = self._count_busy()
            quick = self._started - started > _QUICK * awake * pause / _POLL
            if were_busy and busy >= awake and not quick:
                with self._lock:
                    for _ in range(max(1, awake)):
                        self._wake_one()
                pause, calm = _POLL, 0
                continue
            pause = _RARE_POLL if quick else _POLL
            calm = calm + 1 if 2 * busy < awake - 1 else 0
            if calm == _CALM_POLLS:
                calm = 0
                self._surplus = (awake - 1) // 2

    def _count_busy(self) -> tuple[int, int]:
        """(threads in their handlers, threads that do not sleep)."""
        with self._lock:
            return sum(self._in_handlers()), len(self._slots) - self._parked.count
