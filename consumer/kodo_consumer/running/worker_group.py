"""Worker group: several worker processes of one command, which start, drain and end together.

Each process is a worker by itself, with its own name, connections and part of shared limits. The parent starts the
processes, forwards signals, and restarts a process that ended without being asked. It reads no message, so no message
waits for it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.errors import ExitCode
from kodoctl.host.end_signals import SAME_SIGNAL_S, signal_name
from kodoctl.host.programs import imports_as_before, imports_nothing_here

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

log = logging.getLogger("kodo.consumer")
_CONTEXT: Final = multiprocessing.get_context("spawn")  # the client library does not survive a fork
_POLL: Final = 0.5  # seconds: Python runs signal handlers between two waits
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before a worker that ended starts again
_MOST_DOUBLED: Final = 16
_SIGNALLED: Final = 128  # exit codes beyond it are those of a signal, such as the system's for want of memory
_LONG_LIFE: Final = 60.0  # seconds: who worked for so long starts again after the first pause


def pause_before(number: int) -> float:
    """Returns the seconds before a worker starts again after `number` (from 1 on) ends in sequence: 1, doubled with
    each end, 30 at most. The caller begins a new sequence after a life of a minute or more.
    """
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(number - 1, _MOST_DOUBLED))


class GroupMember:
    """Member of a worker group, in its own process: `number` counts from 0, `size` is the number of members."""

    def __init__(self, number: int, size: int, parent: Connection) -> None:
        self.number, self.size, self._parent = number, size, parent

    def report_ready(self) -> None:
        """Reports to the parent process that the worker of this process has started. Raises OSError if the parent is
        gone.
        """
        self._parent.send_bytes(b"ready")


Work = Callable[[GroupMember], object]
"""Work of one process, called in its main thread, until SIGTERM. It has to be picklable; an exception that it raises,
such as SystemExit, determines the exit code.
"""


class _Slot:
    """Place of one worker in the group, for all its processes in sequence. `starts_at`: when the next process starts,
    by time.monotonic(). `ends`: ends in sequence. `ready_at`: when the present process was ready; None: not yet.
    `restarts`: the present process was asked to end, for another one to start.
    """

    def __init__(self, number: int) -> None:
        self.number, self.starts_at = number, float("inf")
        self.process: SpawnProcess | None = None
        self.child: Connection | None = None
        self.ready_at: float | None = None  # in this life
        self.was_ready, self.ends, self.restarts = False, 0, False

    def start(self, work: Work, size: int) -> None:
        self.child, end = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(
            target=_run_member, args=(work, GroupMember(self.number, size, end)), name=f"kodo-worker-{self.number + 1}"
        )
        with imports_nothing_here():
            self.process.start()
        end.close()
        self.starts_at, self.ready_at = float("inf"), None
        log.info("worker %d is process %d", self.number + 1, self.process.pid)

    def read(self, now: float) -> None:
        """Notes that the process reported that it is ready."""
        if self.child is not None and self.child.poll():
            try:
                self.child.recv_bytes()
                self.ready_at, self.was_ready = now, True
            except EOFError:
                self.child.close()
                self.child = None

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.exitcode is None and self.process.pid is not None:
            with suppress(ProcessLookupError):  # it ended this moment
                os.kill(self.process.pid, number)

    def bury(self, now: float) -> int | None:
        """Clears up after a process that ended and returns its exit code as a shell reports it; None while it lives or
        there is none.
        """
        if self.process is None or self.process.exitcode is None:
            return None
        code, process = self.process.exitcode, self.process
        self.read(now)
        if self.child is not None:
            self.child.close()
        self.ends = 1 if self.ready_at is not None and now - self.ready_at >= _LONG_LIFE else self.ends + 1
        self.process = self.child = None
        log.log(
            logging.INFO if code == 0 else logging.WARNING, "worker %d (process %d) %s", self.number + 1, process.pid,
            f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}",
        )  # fmt: skip
        process.close()
        return code if code >= 0 else _SIGNALLED - code


class WorkerGroup:
    """Runs `work` in `size` worker processes. For main threads; `run` is called once.

    The first worker starts alone until it is ready, so that a problem which prevents every start is reported once. If
    the first worker ends before it was ever ready, or another one does with an exit code (not by a signal), the whole
    group ends with that code, or with ExitCode.ERROR for 0. Any other worker that ends unasked is started again, after
    1 s at first and 30 s at most.

    `reloads`: `restart` will be called. A worker that ends before it is ready, at any of its starts, then waits for
    that call, and the group goes on.
    """

    def __init__(self, size: int, work: Work, *, reloads: bool = False) -> None:
        self._work, self._reloads = work, reloads
        self._restart_asked = threading.Event()
        self._slots = [_Slot(number) for number in range(size)]
        self._signals: list[float] = []  # when it was asked to end
        self._code: int | None = None  # of the end, once it is known that the group ends

    def run(self) -> int:
        """Runs the workers until SIGTERM or SIGINT, which makes them drain; a second signal, more than half a second
        later, kills them. SIGHUP is forwarded to the workers that are ready. Blocks until all have ended, also by
        themselves (see the class). Returns the exit code of the group: `ExitCode.INTERRUPTED` after a second signal,
        else that of the first worker that failed, 0 if none did; a worker that SIGTERM ended before it was ready has
        not failed. Kills all workers if it raises.
        """
        self._slots[0].starts_at = time.monotonic()
        with self._forwarding():
            try:
                while self._step(time.monotonic()):
                    pass
            finally:
                for slot in self._slots:
                    slot.send(signal.SIGKILL)
        assert self._code is not None
        return ExitCode.INTERRUPTED if len(self._signals) > 1 else self._code

    def restart(self) -> None:
        """Makes `run` ask all workers, within half a second, to drain and to start anew; workers without a process then
        start at once. Returns without waiting for that. Does nothing once the group ends. Thread-safe.
        """
        self._restart_asked.set()

    def _restart_all(self, now: float) -> None:
        for slot in self._slots:
            if slot.process is None:
                slot.starts_at = now
            elif not slot.restarts:  # a second signal would end one that has drained
                slot.restarts = True
                slot.send(signal.SIGTERM)

    def _step(self, now: float) -> bool:
        """Checks every worker, starts those that are due, and waits for the next event, 0.5 s at most. Returns false if
        the group ends and all workers have ended.
        """
        if self._restart_asked.is_set() and self._code is None:
            self._restart_asked.clear()
            self._restart_all(now)
        for slot in self._slots:
            slot.read(now)
            if (code := slot.bury(now)) is not None:
                self._on_exit(slot, code, now)
        if self._slots[0].was_ready:
            for slot in self._slots:
                if not slot.ends and slot.process is None:
                    slot.starts_at = min(slot.starts_at, now)
        for slot in self._slots:
            if slot.starts_at <= now and self._code is None:
                self._start(slot)
        living = [slot for slot in self._slots if slot.process is not None]
        if self._code is not None and not living:
            return False
        rest = max(0.0, min((slot.starts_at - now for slot in self._slots if self._code is None), default=_POLL))
        pause = min(_POLL, rest)  # a signal only ends it where it is over: Python goes on with what was interrupted
        wait([one for slot in living for one in _events(slot)], pause) if living else time.sleep(pause)
        return True

    def _start(self, slot: _Slot) -> None:
        slot.start(self._work, len(self._slots))
        if self._code is not None:  # the signal came meanwhile
            slot.send(signal.SIGTERM)

    def _on_exit(self, slot: _Slot, code: int, now: float) -> None:
        if self._code is not None:
            asked = code == _SIGNALLED + signal.SIGTERM and (slot.restarts or not slot.ready_at)
            self._code = self._code or (0 if asked else code)
        elif slot.restarts:
            slot.starts_at, slot.ends, slot.restarts = now, 0, False
        elif self._reloads and slot.ready_at is None:
            log.error("worker %d could not start: it waits for a change of the program", slot.number + 1)
        elif not slot.was_ready and (slot.number == 0 or code <= _SIGNALLED):
            log.error("worker %d could not start, so all end", slot.number + 1)
            self._end(code or ExitCode.ERROR)
        else:
            pause = pause_before(slot.ends)
            slot.starts_at = now + pause
            log.warning("worker %d starts again in %.0f s", slot.number + 1, pause)

    def _end(self, code: int) -> None:
        self._code = code
        for slot in self._slots:
            slot.send(signal.SIGTERM)

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        def end(_number: int, _frame: FrameType | None) -> None:
            now = time.monotonic()
            if not self._signals:
                self._signals.append(now)
                self._end(self._code or ExitCode.OK)
            elif now - self._signals[0] > SAME_SIGNAL_S:
                self._signals.append(now)
                for slot in self._slots:
                    slot.send(signal.SIGKILL)

        def reload(number: int, _frame: FrameType | None) -> None:
            for slot in self._slots:
                if slot.ready_at is not None:  # before, it would end by the signal
                    slot.send(signal.Signals(number))

        handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
        before: dict[int, Any] = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # who starts us may ignore it, and no end of a worker would be known
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _events(slot: _Slot) -> list[Connection | int]:
    assert slot.process is not None
    return [slot.process.sentinel, *([slot.child] if slot.child is not None else [])]


def _run_member(work: Work, member: GroupMember) -> None:
    """Body of a worker process. If the parent dies, the worker drains as after SIGTERM, because nobody else would end
    it.
    """
    imports_as_before()
    begin(_end_with_parent, "kodo-parent", log_end)
    work(member)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    log.warning("the parent process is gone: draining")
    os.kill(os.getpid(), signal.SIGTERM)
