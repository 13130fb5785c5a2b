# pure: every branch is tested
"""Identities of outbox rows: they sort by creation, which is the order in which rows of a key are sent."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable


class Identities:
    """32 hex digits: ms since the epoch (12), a counter within that millisecond (8), randomness (12). Thread-safe.

    Ascending within a process also when its clock goes back; between processes by their clocks.
    """

    def __init__(self, wall: Callable[[], int]) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._last, self._count = 0, 0

    def next(self) -> str:
        """One that nobody else has."""
        with self._lock:
            now = self._wall()
            if now > self._last:
                self._last, self._count = now, 0
            else:
                self._count += 1
            return f"{self._last:012x}{self._count:08x}{secrets.token_hex(6)}"
