"""Threads: all threads are started here, so that none ends without a report.

If a thread raises, or returns too early, the worker looks healthy and does nothing. So each is started with a callback
for its end: the worker then ends, its health reports the error, and a process manager restarts it.
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
    """A thread returned although it was to run on; the text names it."""


def begin(
    work: Callable[[], object], name: str, broke: Broke, *, over: Callable[[], bool] | None = None, daemon: bool = True
) -> threading.Thread:
    """Starts a thread that calls `work`, and returns the thread.

    Args:
        name: name of the thread.
        broke: called on the thread with an exception that `work` raises, or with EndedError if `work` returns too
            early.
        over: returns True once `work` may return; None: `work` may return at any time.
        daemon: the process does not wait for the thread when it ends.
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
    """Logs the exception that ended the calling thread: the `broke` of threads that a worker can do without."""
    log.error("the thread %s has ended: %r", threading.current_thread().name, problem, exc_info=problem)


def leave(works: Mapping[str, Callable[[], object]], within: float) -> list[str]:
    """Calls all `works`, by name, each on a thread, and waits at most `within` seconds in all. Returns the names of
    those that have not returned; their threads run on. An exception of a work is logged. Calls into the client library
    may never return, and a process has to end.
    """
    threads = {name: begin(work, f"kodo-leaving-{name}", log_end) for name, work in works.items()}
    latest = time.monotonic() + within
    for thread in threads.values():
        thread.join(max(0.0, latest - time.monotonic()))
    late = {name: thread for name, thread in threads.items() if thread.is_alive()}
    _left_behind.extend(late.values())
    return list(late)


def any_left_behind() -> bool:
    """True if a call for which `leave` did not wait is still running. If the interpreter ends now, such a thread is
    terminated within the client library, which ends the process by SIGABRT.
    """
    return any(thread.is_alive() for thread in _left_behind)
