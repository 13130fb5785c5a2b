"""Deadline of the runs of a service: if a run makes no progress, its Spark jobs are cancelled; if it does not end then,
the process cannot continue. Needed because a Spark query can hang for ever, and the thread that waits for it cannot
check the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RunDeadline:
    """Deadline of one run. `limit`: seconds without progress after which `cancel` is called, in a thread of its own;
    `grace`: seconds after that, when `give_up` is called with the name of the last progress, in another thread than the
    run's, if the run has not ended. `exceeded`: name of the last progress of a run that was cancelled, None: it was
    not.
    """

    def __init__(self, limit: float, grace: float, cancel: Callable[[], None], give_up: Callable[[str], None]) -> None:
        self.exceeded: str | None = None
        self._limit, self._grace, self._cancel, self._give_up = limit, grace, cancel, give_up
        self._progress = "its beginning", time.monotonic()

    def progress(self, what: str) -> None:
        """Reports progress, which restarts the time, in any thread. `what`: name of the progress, for an error."""
        self._progress = what, time.monotonic()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Context of the run: the deadline is checked within the block. Its end waits for a cancellation under way, lest
        that hit the next run, but at most `grace` seconds.
        """
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(ended,), name="kodo-deadline", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()

    def _watch(self, ended: threading.Event) -> None:
        while True:
            what, at = self._progress
            left = at + self._limit - time.monotonic()
            if left <= 0:
                break
            if ended.wait(left):
                return
        self.exceeded = what
        cancelling = threading.Thread(target=self._cancel, name="kodo-cancel", daemon=True)
        cancelling.start()
        if not ended.wait(self._grace):
            self._give_up(what)
        cancelling.join(self._grace)
