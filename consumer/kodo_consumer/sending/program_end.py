"""End of a program that has not closed its producers: waits for their receipts, 10 s at most in all, and logs messages
that are not stored.

Without it the last messages would be lost with the program's threads, unnoticed: the exit code is 0, and no mark has
the last number. A signal that ends the process at once (SIGKILL, SIGTERM without a handler) skips this.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from typing import Final, Protocol

log = logging.getLogger("kodo.producer")
PATIENCE: Final = 10.0  # seconds for all producers together


class Unfinished(Protocol):
    """Object with messages of the program that have no receipt, or with failed messages that have not been reported."""

    def end(self, seconds: float) -> str:
        """Waits at most `seconds` for receipts. Returns a text about the loss to report, "" if there is none. Called
        once.
        """


_unfinished: dict[Unfinished, None] = {}


def register(one: Unfinished) -> None:
    """Adds an object whose `end` is called when the program ends before `unregister`."""
    _unfinished[one] = None


def unregister(one: Unfinished) -> None:
    """Removes an object that was closed, or that has reported its failed messages, from the unfinished ones."""
    _unfinished.pop(one, None)


def forget_all() -> None:
    """Removes all objects in a forked process, which lacks the threads that could end them."""
    _unfinished.clear()


def _end() -> None:
    deadline = time.monotonic() + PATIENCE
    while _unfinished:  # a message that one gives up is reported by another
        for one in list(_unfinished):
            unregister(one)
            try:
                loss = one.end(max(0.0, deadline - time.monotonic()))
            except Exception as problem:  # noqa: BLE001  # whatever it is: the others have their turn
                loss = f"{type(problem).__name__}: {problem}"
            if loss:
                log.error("the program ends without `close` of its producer: %s", loss)


atexit.register(_end)
os.register_at_fork(after_in_child=forget_all)
