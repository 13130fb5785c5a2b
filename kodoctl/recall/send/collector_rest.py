"""Rest of Python's garbage collector while letters are sent."""

from __future__ import annotations

import gc
import threading
from typing import Final


class CollectorRest:
    """Keeps the garbage collector from running, for as long as any sender of this process asks for it: it went through a
    segment's letters again and again, for a third of the time that a letter takes, and reference counts free all of
    them. Not beside an edit: a validator leaves cycles. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._senders = 0
        self._enabled = False  # before the first of them

    def __enter__(self) -> None:
        with self._lock:
            if not self._senders:
                self._enabled = gc.isenabled()
                gc.disable()
            self._senders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._senders -= 1
            if not self._senders and self._enabled:
                gc.enable()


COLLECTOR_REST: Final = CollectorRest()
"""Of this process."""
