"""CPU pressure by the operating system: how long a thread waited for a core, and the load for each core.

Times are seconds. Where the system has no figure, that of a thread is None, and the load is 0.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class ThreadTimes(NamedTuple):
    """Seconds a thread has computed, and stood in line for a core, since it began."""

    computed: float = 0.0
    queued: float = 0.0


def spent(thread: int) -> ThreadTimes | None:
    """Of a thread of this process, by its native id; None where the system does not say (anywhere but on Linux)."""
    try:
        computed, queued, *_ = Path(f"/proc/self/task/{thread}/schedstat").read_bytes().split()
        return ThreadTimes(int(computed) / 1e9, int(queued) / 1e9)
    except (OSError, ValueError):
        return None


def load() -> float:
    """Of the last minute, for each core; 0 where nobody counts it."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 0.0
