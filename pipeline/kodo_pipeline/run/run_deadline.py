"""Deadline of the runs of a service: the Spark jobs of a run without progress are cancelled; if that does not end the
run, the process cannot continue. A query of Spark's can hang for ever, and the thread that waits for it cannot look at
a clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RunDeadline:
    """Deadline of one run. `limit`: seconds without progress after which `cancel` is called, in a thread of its own;
    `grace`: seconds after that, when `give_up` is called with the last progress if the run has not ended. `exceeded`:
    the last progress of a run that was cancelled; None: it was not.
    """

    def __init__(self, limit: float, grace: float, cancel: Callable[[], None], give_up: Callable[[str], None]) -> None:
        self.exceeded: str | None = None
        self._limit, self._grace, self._cancel, self._give_up = limit, grace, cancel, give_up
        self._progress = "its beginning", time.monotonic()

    def progress(self, what: str) -> None:
        """Notes progress, which starts the time anew. `what`: name of the progress in an error."""
        self._progress = what, time.monotonic()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watches the deadline during the block, which is the run. Nothing is cancelled after the block."""
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
