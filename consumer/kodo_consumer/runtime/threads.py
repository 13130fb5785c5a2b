"""Threads: each one is started here, so that none ends without a report.

A thread that raises, or returns before it should, leaves a worker that looks well and does nothing. So each
is started with a callback for its end: a worker ends then, its health says so, and a process manager starts it anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

log = logging.getLogger("kodo.consumer")
_left_behind: list[threading.Thread] = []
Broke = Callable[[BaseException], object]
"""Called with the exception that ended a thread. Returns soon and never raises."""


class EndedError(Exception):
    """A thread that was to go on has returned; the text names it."""


def begin(
    work: Callable[[], object], name: str, broke: Broke, *, over: Callable[[], bool] | None = None, daemon: bool = True
) -> threading.Thread:
    """Starts a thread. `broke` is called with what `work` raises, and with EndedError when it returns although `over` says
    that it should go on; without `over` it may return at any time.
    """

    def run() -> None:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001  # SystemExit as well: no thread ends without a word
            broke(problem)
            return
        if over is not None and not over():
            broke(EndedError(f"the thread {name} has ended, and nobody asked it to"))

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def log_end(problem: BaseException) -> None:
    """Logs the end: for threads without which a worker goes on."""
    log.error("the thread %s has ended: %r", threading.current_thread().name, problem, exc_info=problem)


def leave(works: Mapping[str, Callable[[], object]], within: float) -> list[str]:
    """Closes everything at the same time, for `within` seconds in all: answers what did not end by then, which is left behind.
    Calls into the client library may never return, and a process that is asked to end has to.
    """
    threads = {name: begin(work, f"kodo-leaving-{name}", log_end) for name, work in works.items()}
    latest = time.monotonic() + within
    for thread in threads.values():
        thread.join(max(0.0, latest - time.monotonic()))
    late = {name: thread for name, thread in threads.items() if thread.is_alive()}
    _left_behind.extend(late.values())
    return list(late)


def any_left_behind() -> bool:
    """True if anything that `leave` did not wait for is still at work. An interpreter that ends then ends those
    threads in the midst of the client library, and that the process, by SIGABRT.
    """
    return any(thread.is_alive() for thread in _left_behind)
