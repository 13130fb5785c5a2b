"""End of a program that has not closed its producers: what they have is given a while, and what is not stored is told.

Without it the last messages end with the program's threads, and nobody hears of it: the exit code is 0, and there is
no mark that says how far the count had come. A signal that ends the process at once (SIGKILL, SIGTERM without a
handler) is no such end.
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
        """Awaits receipts for so long at most. Answers what is to be told, empty: all is stored. Never called twice."""


_unfinished: dict[Unfinished, None] = {}


def expect(one: Unfinished) -> None:
    """It is unfinished until `finished`."""
    _unfinished[one] = None


def finished(one: Unfinished) -> None:
    """Removes an object that was closed, or that has reported its failed messages, from the unfinished ones."""
    _unfinished.pop(one, None)


def forget_all() -> None:
    """They are another's: in a forked process the threads that could finish them are missing."""
    _unfinished.clear()


def _end() -> None:
    deadline = time.monotonic() + PATIENCE
    while _unfinished:  # what is given up here is told by another one
        for one in list(_unfinished):
            finished(one)
            try:
                loss = one.end(max(0.0, deadline - time.monotonic()))
            except Exception as problem:  # noqa: BLE001  # whatever it is: the others have their turn
                loss = f"{type(problem).__name__}: {problem}"
            if loss:
                log.error("the program ends without `close` of its producer: %s", loss)


atexit.register(_end)
os.register_at_fork(after_in_child=forget_all)
