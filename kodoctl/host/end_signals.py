"""Signals that end a program, answered on a thread of their own.

A handler of `signal.signal` runs in the main thread alone, and only between two steps of Python: a signal that another
thread gets, or that comes just before the main thread begins to wait, would be answered when that wait ends, which may
be never. A handler that sets an event may also wait for itself, since the main thread may hold the event's lock.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kodoctl.errors import ExitCode

SAME_SIGNAL_S: Final = 0.5  # a signal this soon after the first is the same one
_entered: Final[list[socket.socket]] = []  # to which signals are written, by nested contexts


def signal_name(number: int) -> str:
    """Name of a signal, such as `SIGKILL`; `signal 35` for one of real time, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def signals_to(
    handler: Callable[[], object], numbers: Sequence[signal.Signals], *, at_signal: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Context in which the signals `numbers` call `handler`, one call at a time, on one thread for this context,
    whatever the main thread waits for. Signals of one number that come almost together may make one call. The main
    thread has to enter the context (ValueError elsewhere) and to leave it.

    A call that raises an Exception is reported as an error of that thread, and the next signal calls `handler` again.
    The end of the context restores the earlier handlers, and waits for calls of signals that came. Contexts may be
    nested if the inner one has all signals of the outer one; the outer one's functions are not called meanwhile.
    `at_signal`: is called for the same signals, in the main thread before its next step of Python, so it must not wait
    or raise; in a child process made by `fork` a signal calls only `at_signal`.
    """
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.setblocking(False)  # as `set_wakeup_fd` requires
        watching = threading.Thread(target=_watch, args=(reading, handler, numbers), name="kodo-signals", daemon=True)
        before: dict[int, Any] = {}
        outer = signal.set_wakeup_fd(
            writing.fileno(), warn_on_full_buffer=False
        )  # first: the handler alone would lose one
        _entered.append(writing)
        try:
            for number in numbers:
                before[number] = signal.signal(number, lambda *_: at_signal())  # else the system would act itself
            watching.start()
            yield
        finally:
            _entered.remove(writing)
            signal.set_wakeup_fd(outer)
            for changed, old in before.items():
                signal.signal(changed, old)
            writing.shutdown(socket.SHUT_WR)
            if watching.ident is not None:
                watching.join()


@contextmanager
def ending_on_signals(*, at_once: bool = True) -> Iterator[threading.Event]:
    """Context with an event that SIGTERM and SIGINT set, so that the program can end in order; the event cannot be
    cleared. A second signal ends the process at once (exit code 130, nothing is cleaned up), unless `at_once` is false.
    Has the conditions of `signals_to`: the main thread has to enter and leave it; an outer such context gets no signal.

    Signals within half a second of the first count as the same request, because `timeout` and terminals signal both a
    process and its group.
    """
    request = _EndRequest()
    first: list[float] = []  # when the first signal came

    def end() -> None:
        if at_once and first and time.monotonic() - first[0] > SAME_SIGNAL_S:
            os._exit(ExitCode.INTERRUPTED)
        first[:] = first or [time.monotonic()]
        request.set()

    with signals_to(end, (signal.SIGTERM, signal.SIGINT), at_signal=request.note):
        yield request


class _EndRequest(threading.Event):
    """Event that a signal sets. For the main thread it is set from the signal on, although the thread that answers
    signals may not have run yet: a failure that the same signal caused (in a child process, say) must not be reported.
    """

    _is_noted = False

    def note(self) -> None:
        self._is_noted = True

    def is_set(self) -> bool:
        return self._is_noted or super().is_set()


def _watch(reading: socket.socket, handler: Callable[[], object], numbers: Sequence[int]) -> None:
    while got := reading.recv(1):
        if got[0] in numbers:
            try:
                handler()
            except Exception:  # noqa: BLE001 - the next signal has to be answered all the same
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def _part_from_parent() -> None:
    """Ends the writing to the socket in a child by `fork`: its parent would answer a signal to the child alone."""
    if _entered:
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_part_from_parent)
