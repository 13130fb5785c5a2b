"""Creation order of rows: the rows of a key are sent in the order in which they were written, whatever their ids are.

Rows sort by the millisecond of their creation, then by id. Ids that are made here ascend within a process; those of
callers, such as `order-9` and `order-10`, need not. So a row with such an id, and the next one of its key, have a
millisecond each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_APART: Final = 0.002  # seconds, of which one millisecond begins for certain
_MOST: Final = 1_000  # keys that are remembered, before those are forgotten that no longer matter


class CreationOrder:
    """Times of the last rows of this process, by topic and key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], tuple[float, bool]] = {}

    @contextmanager
    def writing(self, topic: str, key: str, *, own_id: bool) -> Iterator[None]:
        """Around the writing of a row: waits until the millisecond of the row before is over, where their ids may not
        ascend.
        """
        if not key:
            yield
            return
        place = topic, key
        with self._lock:
            at, before_had_own = self._last.get(place, (float("-inf"), False))
        left = at + _APART - time.monotonic()
        if left > 0 and (own_id or before_had_own):
            time.sleep(left)
        yield
        with self._lock:
            now = time.monotonic()
            if len(self._last) >= _MOST:
                self._last = {one: last for one, last in self._last.items() if last[0] + _APART > now}
            self._last[place] = now, own_id
