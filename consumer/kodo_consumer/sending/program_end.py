"""End of a program that has not closed its producers: waits for their receipts, 10 s at most in all. Then callbacks get
the failures, and failures without a callback are logged.

Without it the last messages would be lost with the program's threads, unnoticed: the exit code is 0, and no mark has
the last number. A process that ends at once (SIGKILL, SIGTERM without a handler, os._exit) skips this.
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
    """Object that may have messages without a receipt, or failures that nobody was told, when the program ends."""

    def end(self, seconds: float) -> str:
        """Waits at most `seconds` for receipts, if some are missing. Returns a text about failures of which nobody else
        is told, "" for none. The caller logs the text, or an exception that this raises. Called at the end of the
        program, and again if the object was registered meanwhile.
        """


_unfinished: dict[Unfinished, None] = {}


def register(one: Unfinished) -> None:
    """Adds an object, unless it is there already. Its `end` is called when the program ends, if `unregister` has not
    removed the object before.
    """
    _unfinished[one] = None


def unregister(one: Unfinished) -> None:
    """Removes an object, because it was closed or has reported its failures; does nothing if it is not there."""
    _unfinished.pop(one, None)


def forget_all() -> None:
    """Removes all objects without calling `end`. It runs first in each forked process, because that process lacks the
    threads that take receipts.
    """
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
