"""Stall probe: a thread that wakes ten times a second while its worker is busy, else once a second, and measures how
late it wakes. Once a second it also checks the rest reasons and the tenants.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from threading import Event, Lock, get_native_id
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_consumer.adapters.metrics.stall_detector import TOO_LATE, Late, Stalls

if TYPE_CHECKING:
    from kodo_consumer.adapters.metrics.rest_reasons import RestWatch
    from kodo_consumer.adapters.metrics.tenant_fairness import TenantWatch
    from kodo_consumer.runtime.worker import Worker

_BEAT: Final = 0.1  # seconds
_IDLE_BEAT: Final = 1.0  # seconds, of a worker that runs nothing and received nothing: each wake costs it the most
_SILENT: Final = 1.0


class StallProbe:
    """Stall probe of one worker. `threads`, `handlers`: late turns of this thread and of the event loop; while the loop
    hangs, each second or two is a late turn. `loop`: the event loop of async handlers; None without any. `tenants`:
    None without metrics.
    """

    def __init__(
        self,
        worker: Worker,
        loop: asyncio.AbstractEventLoop | None,
        tenants: TenantWatch | None,
        rest_watch: RestWatch,
    ) -> None:
        self.threads, self.handlers = Stalls("threads"), Stalls("handlers")
        self._worker, self._loop, self._tenants, self._rest_watch = worker, loop, tenants, rest_watch
        self._asked: _Moment | None = None
        self._silent_since = 0.0  # time of the open question; `_asked` moves on each second
        self._answered: _Moment | None = None
        self._thread = 0  # the loop's, once it has answered
        self._clock = ThreadClock()
        self._received = -1

    def run(self, over: Event) -> None:
        """Body of the thread, until `over` is set. Measures how late this thread and the event loop run, and writes
        alarms about that; about once a second checks the rest reasons, which writes alarms, too, and the tenants.
        """
        look_at = 0.0
        try:
            while True:
                beat = self._beat()
                before = self._moment(get_native_id())
                if over.wait(beat):
                    return
                after = self._moment(get_native_id())
                late = before.late(after, after.at - before.at - beat)
                self._judge(self.threads, late, after.at)
                self._ask_loop(after.at)
                due = after.at >= look_at
                if due:
                    look_at = after.at + 1.0
                    self._rest_watch.check(after.at)
                if self._tenants is not None and (due or self._tenants.under_way):
                    running = Counter(message.tenant for message in list(self._worker.engine.runs.running))
                    self._tenants.step(running)
        finally:
            self._clock.close()

    def _beat(self) -> float:
        """Seconds until the next turn: fewer while handlers run or messages have come since the last call."""
        engine = self._worker.engine
        received, before = engine.counts.received, self._received
        self._received = received
        return _BEAT if received != before or engine.runs.running else _IDLE_BEAT

    def _moment(self, thread: int) -> _Moment:
        return _Moment(time.monotonic(), time.process_time(), thread, self._clock.times(thread) if thread else None)

    def _ask_loop(self, now: float) -> None:
        """Asks the event loop for a sign of life, one question at a time. Judges the delay of each answer and, once a
        second, the delay of an answer that has not come yet.
        """
        if self._loop is None:
            return
        asked, answered = self._asked, self._answered
        if asked is not None and answered is not None:
            self._judge_loop(asked, answered, now)
            self._asked = None
        if self._asked is None:
            self._asked, self._answered = self._moment(self._thread), None
            self._silent_since = self._asked.at
            with suppress(RuntimeError):  # closed at the end
                self._loop.call_soon_threadsafe(self._answer)
        elif now - self._asked.at > _SILENT:
            self._judge_loop(self._asked, self._moment(self._thread)._replace(at=now), now)
            self._asked = self._moment(self._thread)

    def _answer(self) -> None:
        """Notes when the event loop answered; called on its thread."""
        self._thread = get_native_id()
        self._answered = self._moment(self._thread)

    def _judge_loop(self, asked: _Moment, then: _Moment, now: float) -> None:
        """Judges the delay of the event loop from `asked` to `then`, which is the last part of a longer one while it
        hangs.
        """
        late = asked.late(then, then.at - asked.at, own=True)
        self._judge(self.handlers, replace(late, hang=then.at - self._silent_since), now)

    def _judge(self, stalls: Stalls, late: Late, now: float) -> None:
        if (alarm := stalls.add(late, now)) is not None:
            self._worker.alarms.write(alarm)


class _Moment(NamedTuple):
    """Clocks at one moment, in seconds. `at`: time.monotonic(). `cpu`: CPU time of this process. `thread`: native id of
    a thread, 0 while unknown. `spent`: times of this thread; None if unknown.
    """

    at: float
    cpu: float
    thread: int
    spent: ThreadTimes | None

    def late(self, then: _Moment, seconds: float, *, own: bool = False) -> Late:
        """Measurements of a turn from this moment to `then`, which came `seconds` too late. `own`: the thread is the
        one that runs handlers.
        """
        computed, queued = None, 0.0
        if self.spent is not None and then.spent is not None and self.thread == then.thread:
            computed, queued = then.spent.computed - self.spent.computed, then.spent.queued - self.spent.queued
        busy = load() if seconds > TOO_LATE else 0.0
        wall, cpu = then.at - self.at, then.cpu - self.cpu
        return Late(seconds, wall, cpu, queued, (computed or 0.0) if own else None, busy)


class ThreadTimes(NamedTuple):
    """Seconds that a thread has computed, and has waited for a core while it could run, since the thread began."""

    computed: float = 0.0
    queued: float = 0.0


class ThreadClock:
    """Clock of the CPU time and the waiting time of threads of this process. It keeps the system's file of each thread
    open until `close`, or until `times` finds that the thread has ended, because callers read many times a second.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._lock = Lock()

    def times(self, thread: int) -> ThreadTimes | None:
        """Seconds that a thread has computed and has waited for a core, since it began; `thread` is its native id. None
        if they cannot be read: the thread has ended, or the system does not count them (only Linux does).
        """
        with self._lock:
            try:
                file = self._files.get(thread)
                if file is None:
                    file = self._files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
                computed, queued, *_ = os.pread(file, 256, 0).split()
                return ThreadTimes(int(computed) / 1e9, int(queued) / 1e9)
            except (OSError, ValueError):
                if (file := self._files.pop(thread, None)) is not None:
                    os.close(file)
                return None

    def close(self) -> None:
        """Closes the files."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])


def load() -> float:
    """Load average of the machine in the last minute divided by the number of its cores; 0 if the system does not count
    it.
    """
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0
