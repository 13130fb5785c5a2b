"""Channel to one process, on the worker's side: sends messages, reads results, and finds the messages that a dead
process leaves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.exceptions import Unavailable
from kodo_consumer.core.values.outcomes import DONE, Outcome
from kodo_consumer.message import Check, Message, parts_of
from kodo_consumer.runtime.process_pool.wire_format import Frames, pack_frame, pack_message, unpack_outcome
from kodo_consumer.runtime.process_pool.worker_process import (
    BEGAN,
    CELLS,
    FINISHED,
    RECALLED,
    SPENT,
    STARTED,
    ProcessTask,
    main,
)
from kodoctl.host.end_signals import signal_name
from kodoctl.host.programs import imports_nothing_here

CONTEXT: Final = multiprocessing.get_context("spawn")  # the client library does not survive a fork
_AHEAD: Final = 0.004  # seconds of work sent before it is asked for
_MOST_AHEAD: Final = 64  # messages
_SLOW: Final = 0.002  # seconds: of handlers that take longer, no message waits behind another
_AHEAD_BYTES: Final = 1 << 18
_LOCK_WAIT: Final = 0.2  # seconds; the other end holds it for a microsecond, unless it was stopped just then
_READ: Final = 1 << 18


class Spans(Protocol):
    """Listener to messages that go to handler processes, for tracing. Implementations:
    kodo_consumer.adapters.tracing.handler_spans.HandlerSpans, and HandlerCalls, where the worker's threads have the
    spans.
    """

    def began(self, message: Message) -> dict[str, str]:
        """Starts the span of a message that goes to a process, unless a thread has, and returns the properties that
        carry the span's context there; empty if there is none.
        """

    def on_outcome(self, message: Message, outcome: Outcome) -> None:
        """Called when the run of a message ended with this outcome, also by a time-out, before the worker gets it."""

    def vain(self, message: Message, why: str) -> None:
        """Called when a message that went to a process has no result, for the reason `why`: the process died before or
        while it handled the message, which goes to another process or, if the worker ends, to another worker.
        """


@dataclass(slots=True)
class ChannelResults:
    """Results of a process. `outcomes`: messages with their outcomes. `traces`: entries for the log (text, traceback or
    "", name of the error's class), each with its message and outcome, or with None if the process no longer has the
    message. `warnings`: texts for the log.
    """

    outcomes: list[tuple[Message, Outcome]] = field(default_factory=list)
    traces: list[tuple[tuple[str, str, str], tuple[Message, Outcome] | None]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CrashRemainder:
    """Messages of a dead process that have no result. `culprit`: the message that it was handling, None if there was
    none; `unstarted`: all others, oldest first.
    """

    culprit: Message | None
    unstarted: list[Message]


@dataclass(slots=True)
class HandlerPace:
    """Seconds that the handler takes for a message: an average over the last measurements, of which the newest counts
    half, but the first one, also after `forget`, all; 0: unknown.
    """

    seconds: float = 0.0
    _finished: int = 0  # messages, and ns that were spent on them, when it was measured
    _spent: int = 0

    def measure(self, finished: int, spent: int) -> bool:
        """Updates the pace from the totals of the process: `finished`, its number of finished messages, and `spent`,
        its nanoseconds in the handler. Returns false, without effect, if no message has finished since the last
        measurement.
        """
        count = finished - self._finished
        if count <= 0:
            return False
        pace = max(1e-7, (spent - self._spent) / count / 1e9)
        self.seconds = (self.seconds + pace) / 2 if self.seconds else pace
        self._finished, self._spent = finished, spent
        return True

    def forget(self) -> None:
        """Makes the pace unknown until the next measurement, because the handler has become slower."""
        self.seconds = 0.0


class SchemaNews:
    """Avro schema versions that one process needs and has not got yet. The worker reads them, because a process has no
    access to the cluster.
    """

    def __init__(self, check: Check | None) -> None:
        self._check = check
        self._sent: set[str] = set()

    def of(self, messages: list[Message]) -> dict[str, Any]:
        """Definitions by version, for those Avro schema versions of these messages that the process does not have;
        None: there is no such version, and the declared schema applies. A version with a definition counts as sent, and
        is not returned again. May block. If the cluster does not answer, leaves a version out: a handler that reads the
        payload of its message gets Unavailable.
        """
        news: dict[str, Any] = {}
        if isinstance(self._check, Payloads) and self._check.kind == "avro":
            versions = {parts_of(message)[0].schema for message in messages} - self._sent
            for version in versions - {""}:
                with suppress(Unavailable):  # it is asked for again with the next message; this one waits
                    news[version] = self._check.definition(version)
            self._sent |= {version for version, definition in news.items() if definition is not None}
        return news


class ProcessChannel:
    """One process with its pipe and shared counters; the constructor starts the process. Not thread-safe: one thread at
    a time calls it. `ready`: the process takes messages; `broken`: why it cannot begin; both as `read` has learnt. The
    caller sets `alone`, by which `room` is 0 until a message has finished, and `timed_out`. With `traces` the process
    has one message at a time.
    """

    def __init__(self, job: ProcessTask, traces: Spans | None = None) -> None:
        self._traces = traces
        self.ready = False
        self.broken: str | None = None  # why the handler cannot be imported
        self.alone = False  # the message at work is suspected of killing its process: none is sent after it
        self.timed_out = False
        line, other = socket.socketpair()
        with imports_nothing_here():  # the lock starts a process, too
            self._cells = CONTEXT.RawArray("Q", CELLS)
            self._lock = CONTEXT.Lock()
            self.process = CONTEXT.Process(
                target=main, args=(job, other, self._cells, self._lock), name="kodo-handler", daemon=True
            )
            self.process.start()
        other.close()
        self._pipe = FramePipe(line)
        self._news = SchemaNews(job.check)
        self._in_flight: deque[tuple[int, Message]] = deque()  # oldest first, with their numbers
        self._bytes = 0
        self._next = self._bundle = 0
        self._pace = HandlerPace()

    def fileno(self) -> int:
        """File descriptor of the pipe, for selectors."""
        return self._pipe.fileno()

    @property
    def busy(self) -> int:
        """Number of messages that were sent, were not taken back, and of which `read` has no result yet."""
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """Number of messages that may be sent now."""
        if not self.ready or self.alone or self._pipe.unsent:
            return 0
        if not self._in_flight:
            return self._depth
        return max(0, self._depth - len(self._in_flight)) if self._bytes < _AHEAD_BYTES else 0

    @property
    def _depth(self) -> int:
        """Number of messages that the process may have at a time, at most 4 ms of work; 1 for slow handlers, an unknown
        pace or traces.
        """
        pace = self._pace.seconds
        if not pace or pace > _SLOW or self._traces is not None:
            return 1
        return min(_MOST_AHEAD, int(_AHEAD / pace))

    @property
    def unsent(self) -> bool:
        """True if bytes wait for the pipe."""
        return self._pipe.unsent

    # ---- out

    def send(self, messages: list[Message]) -> None:
        """Sends messages, at most `room`, in one bundle, which the process handles one after the other. First reads
        their new schema versions from the cluster, which may block. Does not wait for the pipe: `flush` writes the rest
        of the bytes later. If the process has died, `bury` returns the messages.
        """
        self._bundle += 1
        carriers = None if self._traces is None else [self._traces.began(message) for message in messages]
        values = [pack_message(message) for message in messages]
        self._pipe.send((self._bundle, self._next, values, self._news.of(messages), carriers))
        for message in messages:
            self._in_flight.append((self._next, message))
            self._next += 1
            self._bytes += len(parts_of(message)[0].payload or b"")

    def flush(self) -> None:
        """Writes as many of the waiting bytes as the pipe takes now; drops them all if the process has died."""
        self._pipe.flush()

    def take_back(self) -> list[Message]:
        """Takes back and returns the messages that the process has not started, in the order of sending. A shared lock
        makes both ends agree on them. Makes the pace unknown, so that the process gets one message at a time for now.
        Returns an empty list, without effect, if fewer than two messages are in flight, bytes wait for the pipe, or the
        lock is not free within 0.2 s.
        """
        if len(self._in_flight) < 2 or self._pipe.unsent:
            return []
        if not self._lock.acquire(timeout=_LOCK_WAIT):
            return []
        try:
            self._cells[RECALLED] = self._bundle
            started = self._cells[STARTED]
        finally:
            self._lock.release()
        taken = []
        while self._in_flight and self._in_flight[-1][0] >= started:
            taken.append(self._in_flight.pop()[1])
        self._count_bytes()
        self._pace.forget()
        return taken[::-1]

    # ---- back

    def read(self, ended: ChannelResults) -> None:
        """Adds the outcomes, traces and warnings that have come since the last call to `ended`, without waiting, and
        updates `ready` and `broken`. Sets `alone` to False if the counter of finished messages has grown.

        The process sends an outcome through the pipe only if it is not DONE; a finished message without one is DONE.
        The counter is read before the pipe, so that the outcomes of all messages that it counts have arrived.
        """
        finished = self._cells[FINISHED]
        for frame in self._pipe.read_values():
            match frame:
                case ("ready",):
                    self.ready = True
                case ("broken", text):
                    self.broken = text
                case ("warning", text):
                    ended.warnings.append(text)
                case ("outcome", sequence, values, trace):
                    self._done_before(sequence, ended)
                    run = None
                    if self._in_flight and self._in_flight[0][0] == sequence:
                        run = (self._in_flight.popleft()[1], unpack_outcome(values))
                        ended.outcomes.append(run)
                    if trace:
                        ended.traces.append((trace, run))
        self._done_before(finished, ended)
        if self._pace.measure(finished, self._cells[SPENT]):
            self.alone = False
            self._count_bytes()

    def _done_before(self, sequence: int, ended: ChannelResults) -> None:
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] < sequence:
            ended.outcomes.append((in_flight.popleft()[1], DONE))

    def _count_bytes(self) -> None:
        self._bytes = sum(len(parts_of(message)[0].payload or b"") for _, message in self._in_flight)

    # ---- time and death

    @property
    def at_work_since(self) -> float | None:
        """Time (monotonic seconds) at which the process began with the message that it handles now, or handled when it
        died; None if there is none.
        """
        if self._cells[STARTED] > self._cells[FINISHED]:
            began: int = self._cells[BEGAN]
            return began / 1e9
        return None

    @property
    def at_work(self) -> Message | None:
        """The message that the process handles now, or handled when it died; None if there is none, or if `read` has
        its result.
        """
        started = self._cells[STARTED]
        if started <= self._cells[FINISHED]:
            return None
        return next((message for sequence, message in self._in_flight if sequence == started - 1), None)

    def kill(self) -> None:
        """Kills the process, and does not wait for its end. A process that has ended is no error."""
        with suppress(ProcessLookupError):
            if self.process.pid is not None and self.process.exitcode is None:
                os.kill(self.process.pid, signal.SIGKILL)

    def bury(self, ended: ChannelResults) -> CrashRemainder:
        """Waits, without limit, for the end of a killed or dead process, adds its last results to `ended`, closes the
        pipe, and returns the messages without a result.
        """
        self.process.join()
        self.read(ended)
        culprit = self.at_work
        unstarted = [message for _, message in self._in_flight if message is not culprit]
        self._in_flight.clear()
        self._pipe.close()
        return CrashRemainder(culprit, unstarted)

    @property
    def end(self) -> str:
        """Text for people about the end of the process, which has ended: the name of a signal or an exit code."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return signal_name(-code)
        return f"exit {code}"

    def close(self) -> None:
        """Closes the pipe in both directions. The process handles no more messages at the latest when it next reports
        to the worker; results that were not read are lost.
        """
        self._pipe.shut_down()


class FramePipe:
    """Worker's end of the socket to one process of a pool. It never blocks: bytes that the socket does not take now
    wait for `flush`.
    """

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line = line
        self._frames = Frames()
        self._out = bytearray()

    def fileno(self) -> int:
        """File descriptor of the socket, for selectors."""
        return self._line.fileno()

    @property
    def unsent(self) -> bool:
        """True if bytes wait for `flush`."""
        return bool(self._out)

    def send(self, value: tuple[Any, ...]) -> None:
        """Sends a value of plain types; bytes that the socket does not take now wait for `flush`, and if the process
        has died, all are dropped. Raises ValueError as `pack_frame` does.
        """
        self._out += pack_frame(value)
        self.flush()

    def flush(self) -> None:
        """Writes as many of the waiting bytes as the socket takes now; drops all if the process has died."""
        try:
            while self._out:
                del self._out[: self._line.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:  # it died: its sentinel shows it
            self._out.clear()

    def read_values(self) -> Iterator[Any]:
        """Yields the values that have arrived, without waiting. Iterate to the end: values may come again otherwise."""
        while True:
            try:
                data = self._line.recv(_READ)
            except (BlockingIOError, OSError):
                return
            if not data:
                return
            yield from self._frames.feed(data)

    def shut_down(self) -> None:
        """Shuts the socket down in both directions and closes it, so that the process reads the end of its stream after
        the bytes that were written; bytes that wait are dropped.
        """
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()

    def close(self) -> None:
        """Closes the socket, after the other end has died."""
        self._line.close()
