"""Process pool: one thread that fetches messages, spreads them over processes, and replaces those that hang or die."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.outcomes import TOOK_TOO_LONG, DeadLettered
from kodo_consumer.core.values.poison import MAX_CRASHES, Crashes, PoisonState
from kodo_consumer.runtime.handler_errors import message_fields
from kodo_consumer.runtime.lifespans import LEAVING, log_slow_end
from kodo_consumer.runtime.process_pool.channel import ChannelResults, ProcessChannel, Spans
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import ClusterError, KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.message import Message
    from kodo_consumer.runtime.handler_errors import Forecast
    from kodo_consumer.runtime.process_pool.worker_process import ProcessTask

log = logging.getLogger("kodo.consumer")
_START_TIMEOUT: Final = 60.0  # seconds for the first process to import the handler
_STILL: Final = 0.02  # seconds without progress after which what waits behind a message is taken back
_POLL: Final = 1.0  # seconds between two polls of processes while they work, should the system tell nothing
_END_WITHIN: Final = 2.0  # seconds a process has to end by itself
_PATIENCE: Final = 5  # processes in a row that die before they are ready, before the worker gives up
_FIRST_PAUSE: Final = 0.1  # seconds before the next of them


@dataclass(slots=True)
class RestartPause:
    """Pause before a new process after some died before they were ready. `deaths`: how many since the last death of a
    process that had been ready, at which the pool sets 0; the pause doubles with each, from 0.1 s on. `not_before`: end
    of the pause, in monotonic seconds.
    """

    deaths: int = 0
    not_before: float = 0.0

    def on_death(self, now: float) -> bool:
        """Counts a death at `now` (monotonic seconds). Returns false from the fifth on: the pool is to give up."""
        self.deaths += 1
        self.not_before = now + _FIRST_PAUSE * 2 ** (self.deaths - 1)
        return self.deaths < _PATIENCE


class ResultLog:
    """Log of failures and warnings that processes report. `forecast`: returns the next step of a failed message as
    text. `redacts`: error texts are redacted, and tenants left out.
    """

    def __init__(self, forecast: Forecast | None, *, redacts: bool) -> None:
        self._forecast, self._redacts = forecast, redacts
        self._warned: set[str] = set()

    def write(self, ended: ChannelResults) -> None:
        """Logs each entry of `ended.traces`, and each different warning only once for all processes and calls. Both
        have the level warning.
        """
        for (text, trace, kind), run in ended.traces if log.isEnabledFor(logging.WARNING) else ():
            following = "" if run is None or self._forecast is None else self._forecast(*run)
            fields = {} if run is None else message_fields(run[0], following, redacts=self._redacts)
            shown = f"handler failed in a process{f' ({following})' if following else ''}: {text}"
            record = log.makeRecord(
                log.name, logging.WARNING, __file__, 0, shown, (), None, extra={"error": kind, **fields}
            )
            record.exc_text = trace or None  # of another process: there is no exception here
            log.handle(record)
        for text in dict.fromkeys(ended.warnings):
            if text not in self._warned:
                self._warned.add(text)
                log.warning("%s", text)


class ProcessRunner:
    """Implementation of kodo_consumer.core.values.handler_executor.HandlerExecutor by `size` processes, each of which
    handles one message at a time.

    The pool enforces `timeout` (seconds), not the worker, because it counts from the real begin of a message: it kills
    the process, and the message ends with TOOK_TOO_LONG. With `traces` a process gets its next message only after the
    last one is done, so that spans begin when handlers do.
    """

    def __init__(
        self,
        job: ProcessTask,
        size: int,
        timeout: float,
        traces: Spans | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._job, self._size, self._timeout, self._traces = job, size, timeout, traces
        self._lines: list[ProcessChannel] = []
        self._backlog: deque[Message] = deque()  # taken from the worker, started nowhere
        self._ended = ChannelResults()
        self._log = ResultLog(forecast, redacts=job.texts is not None and job.texts.redacts)
        self._crashes = Crashes()
        self._selector = selectors.DefaultSelector()
        self._waker = WakePipe()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._stopping = False
        self._source: WorkSource | None = None
        self._thread: threading.Thread | None = None
        self._restarts = RestartPause()

    def launch(self) -> None:
        """Starts the processes, and blocks until the first one is ready, 60 s at most. Raises KodoctlError (K751) if
        before that any of them cannot import the handler or enter its lifespans, or ends, or if none is ready in time;
        the pool is stopped then (see `stop`).
        """
        try:
            for _ in range(self._size):
                self._add()
            self._await_first(time.monotonic() + _START_TIMEOUT)
        except BaseException:
            self.stop()
            raise

    def start(self, source: WorkSource) -> None:
        """Starts the thread that takes messages from `source` and gives them to the processes; returns at once.

        Call it once, after `launch`, which starts the processes. If the pool breaks down, `source.fail` is called in
        that thread: with KodoctlError (K751) if processes keep ending before they are ready.
        """
        self._source = source
        self._thread = begin(partial(self._work, source), "kodo-pool", source.fail, over=lambda: self._stopping)

    def wake(self) -> None:
        """Wakes the pool's thread because there may be a message to take. Thread-safe; returns at once."""
        self._waker.wake()

    def time_out(self, message: Message) -> None:
        """Does nothing: the pool enforces time-outs by itself."""

    def stop(self) -> None:
        """Ends the thread and the processes, and blocks until both have ended; kills processes that still work two
        seconds (twelve with lifespans) after the thread's end, because nobody takes their results.
        """
        self._stopping = True
        self._waker.asleep = True
        self._waker.wake()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        for line in self._lines:
            line.close()
        deadline = time.monotonic() + _END_WITHIN + (LEAVING if self._job.lifespans else 0)
        for line in self._lines:
            line.process.join(max(0.0, deadline - time.monotonic()))
            if line.process.exitcode is None:
                if self._job.lifespans:
                    log_slow_end()
                line.kill()
                line.process.join()
            line.process.close()
        self._lines.clear()
        self._selector.close()
        self._waker.close()

    # ---- the thread

    def _work(self, source: WorkSource) -> None:
        while not self._stopping:
            seen = source.version
            more = self._exchange(source)
            self._spread()
            self._sleep(source, seen, more=more)

    def _exchange(self, source: WorkSource) -> bool:
        """Hands ended messages back to `source`, and takes as many as the processes have room for. Returns true if
        `source` had fewer than that.
        """
        ended, self._ended = self._ended, ChannelResults()
        self._log.write(ended)
        if self._crashes:  # identities cost something: they are asked for when there is a reason
            for message, _ in ended.outcomes:
                self._crashes.on_end(message.effect)
        if self._traces is not None:
            for message, outcome in ended.outcomes:
                self._traces.on_outcome(message, outcome)
        room = max(0, sum(line.room for line in self._lines) - len(self._backlog))
        if not room and not ended.outcomes:
            return False
        taken = source.next_batch(ended.outcomes, room)
        self._backlog.extend(taken)
        return len(taken) < room

    def _spread(self) -> None:
        """Spreads the backlog evenly over the processes, idle ones first. A suspect message gets an idle process to
        itself.
        """
        backlog = self._backlog
        for line in sorted((line for line in self._lines if line.room), key=_busy):
            if not backlog:
                return
            if self._is_suspect(backlog[0]):
                if not line.busy:
                    line.alone = True
                    line.send([backlog.popleft()])
                continue
            bundle = [backlog.popleft()]
            share = -(-len(backlog) // self._size)
            while backlog and len(bundle) < min(line.room, max(1, share)):
                if self._is_suspect(backlog[0]):
                    break
                bundle.append(backlog.popleft())
            line.send(bundle)

    def _sleep(self, source: WorkSource, seen: int, *, more: bool) -> None:
        self._waker.asleep = True
        wait = self._next_check()
        if (more and source.version != seen) or self._ended.outcomes or self._stopping:
            wait = 0.0
        for key, events in self._selector.select(wait):
            if key.data is None:
                self._waker.drain()
            elif events & selectors.EVENT_WRITE:
                key.data.flush()
        self._waker.asleep = False
        for line in list(self._lines):
            if line.busy or not line.ready:
                line.read(self._ended)
            if line.process.exitcode is not None or line.broken:
                self._on_exit(line)
            else:
                self._check_time(line)
                self._watch(line)
        if len(self._lines) < self._size and time.monotonic() >= self._restarts.not_before and not self._stopping:
            self._add()

    def _next_check(self) -> float | None:
        """Seconds until the processes have to be checked; None: not before an event."""
        now = time.monotonic()
        nearest = self._restarts.not_before - now if len(self._lines) < self._size else float("inf")
        for line in self._lines:
            if line.busy and not line.timed_out:
                began = line.at_work_since
                nearest = min(nearest, _POLL, _STILL if line.busy > 1 else _POLL)
                nearest = min(nearest, began + self._timeout - now if began is not None else _POLL)
        return None if nearest == float("inf") else max(0.0, nearest)

    def _check_time(self, line: ProcessChannel) -> None:
        """Kills the process of a message that exceeds the time-out. If a message takes more than 0.02 s, takes back
        those that wait in its process.
        """
        began = line.at_work_since
        if began is None or not line.busy or line.timed_out:
            return
        took = time.monotonic() - began
        if took > self._timeout:
            log.error("a handler hangs: its process is killed")
            line.timed_out = True
            line.kill()
        elif took > _STILL and line.busy > 1:
            self._backlog.extendleft(reversed(line.take_back()))

    def _on_exit(self, line: ProcessChannel) -> None:
        """Clears up after a dead process: its unstarted messages go to others, and only the one at work counts a crash
        or a time-out. Raises KodoctlError if processes keep dying before they are ready.
        """
        self._lines.remove(line)
        self._selector.unregister(line)
        self._selector.unregister(line.process.sentinel)
        line.kill()
        remains = line.bury(self._ended)
        culprit = remains.culprit
        self._backlog.extendleft(reversed(remains.unstarted))
        if self._traces is not None:
            for message in remains.unstarted:
                self._traces.vain(message, "process ended before it began")
        if self._stopping:
            return
        if not line.ready:
            self._on_early_death(line)
            return
        self._restarts.deaths = 0
        if culprit is None:
            log.error("a process of the pool ended by itself (%s): there is a new one", line.end)
        elif line.timed_out:
            self._ended.outcomes.append((culprit, TOOK_TOO_LONG))
        else:
            self._on_crash(culprit, line.end)

    def _on_crash(self, message: Message, end: str) -> None:
        judged = self._crashes.on_crash(message.effect)
        fields = message_fields(message, redacts=self._job.texts is not None and self._job.texts.redacts)
        text = ", ".join(f"{name} {fields[name]}" for name in ("lane", "tenant", "message_id") if name in fields)
        log.error(
            "a handler ended its process (%s), %d of %d times: %s", end, judged.crashes, MAX_CRASHES, text, extra=fields
        )
        if judged.standing is PoisonState.POISON:
            reason = f"its handler ended its process {judged.crashes} times, last by {end}"
            self._ended.outcomes.append((message, DeadLettered(reason)))
            return
        if self._traces is not None:
            self._traces.vain(message, "process ended")
        self._backlog.appendleft(message)

    def _is_suspect(self, message: Message) -> bool:
        """True if the message has crashed a process, so that no other message may share a process with it."""
        return bool(self._crashes) and self._crashes.standing(message.effect) is PoisonState.SUSPECT

    def _on_early_death(self, line: ProcessChannel) -> None:
        if line.broken:
            log.error("a process of the pool cannot start: %s", line.broken)
        if not self._restarts.on_death(time.monotonic()):
            raise _cannot_start(self._job, line)

    def _add(self) -> None:
        line = ProcessChannel(self._job, self._traces)
        self._lines.append(line)
        self._selector.register(line, selectors.EVENT_READ, line)
        self._selector.register(line.process.sentinel, selectors.EVENT_READ, line)

    def _watch(self, line: ProcessChannel) -> None:
        """Makes the selector wait for the pipe to be writable if bytes are left to send."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
        if self._selector.get_key(line).events != wanted:
            self._selector.modify(line, wanted, line)

    def _await_first(self, deadline: float) -> None:
        while not any(line.ready for line in self._lines):
            self._selector.select(max(0.0, deadline - time.monotonic()))
            for line in self._lines:
                line.read(self._ended)
                if line.broken or line.process.exitcode is not None:
                    line.process.join(_END_WITHIN)
                    raise _cannot_start(self._job, line)
            if time.monotonic() > deadline:
                detail = f"{self._job.module}:{self._job.function}: not imported within {_START_TIMEOUT:.0f} s"
                raise ClusterError(error("K751", "process of the pool does not start", detail))


def _busy(line: ProcessChannel) -> int:
    return line.busy


def _cannot_start(job: ProcessTask, line: ProcessChannel) -> KodoctlError:
    why = line.broken or f"it ended before it was ready ({line.end})"
    return UsageError(error("K751", "process of the pool does not start", f"{job.module}:{job.function}: {why}"))


def cores() -> int:
    """Number of cores that this process may use by its CPU affinity; a CPU quota, as of a container, does not count."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class WakePipe:
    """Pipe that wakes one thread from its selector. `asleep`: set by this thread while it has to be woken; `wake`
    clears it. Any thread may call `wake`.
    """

    def __init__(self) -> None:
        self.asleep = False
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)

    def fileno(self) -> int:
        """Descriptor for the selector."""
        return self._bell.fileno()

    def wake(self) -> None:
        """Wakes the thread if it has set `asleep` and no other call has woken it; never blocks or raises."""
        if self.asleep:
            self.asleep = False
            try:
                self._ring.send(b"!")
            except (BlockingIOError, OSError):  # rung enough, or over
                return

    def drain(self) -> None:
        """Empties the pipe, after the thread has woken."""
        try:
            self._bell.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Closes the pipe, after the thread has ended."""
        self._bell.close()
        self._ring.close()
