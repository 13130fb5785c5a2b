"""Bound on the pages of one kind that are made at a time: pages that wait for a broker must not stop the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kodoctl.errors import LockedError, error

_MOST: Final = 9
"""Pages of one kind: four kinds leave some of the 40 threads of the server free."""


class PageGate:
    """Bound on pages of one kind: nine are made at a time. `what`: words for these pages in the refusal of one too
    many.
    """

    def __init__(self, what: str) -> None:
        self._what, self._places = what, threading.Semaphore(_MOST)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Context in which one page is made. Raises LockedError (K037) at once if nine are being made."""
        if not self._places.acquire(blocking=False):
            detail = f"{_MOST} {self._what} are being read already: the cluster may be slow to answer"
            raise LockedError(error("K037", "the console is busy", detail))
        try:
            yield
        finally:
            self._places.release()
