"""CPU pressure by the operating system: how long a thread waited for a core, and the load for each core.

Times are seconds. Where the system has no figure, that of a thread is None, and the load is 0.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import NamedTuple


class ThreadTimes(NamedTuple):
    """Seconds a thread has computed, and stood in line for a core, since it began."""

    computed: float = 0.0
    queued: float = 0.0


class ThreadClock:
    """Times of threads of this process. Keeps the system's file of each open, as it is read many times a second.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._lock = Lock()

    def spent(self, thread: int) -> ThreadTimes | None:
        """Seconds that a thread computed and waited for a core; `thread` is its native id. None if the thread has
        ended, or if the system does not count them (only Linux does).
        """
        with self._lock:
            try:
                file = self._files.get(thread)
                if file is None:
                    file = self._files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
                computed, queued, *_ = os.pread(file, 256, 0).split()
                return ThreadTimes(int(computed) / 1e9, int(queued) / 1e9)
            except (OSError, ValueError):
                if (file := self._files.pop(thread, None)) is not None:
                    os.close(file)
                return None

    def close(self) -> None:
        """Closes the files."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])


def load() -> float:
    """Load average of the last minute for each core; 0 where the system has none."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0
