"""Time as a port: a span is measured on the monotonic clock, a due time on the wall clock. Tests pass a clock of
their own.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time."""

    def now(self) -> float:
        """Seconds that never jump, from an arbitrary start."""

    def wall(self) -> int:
        """Milliseconds since the epoch; may jump."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds of the system's monotonic clock."""
        return time.monotonic()

    def wall(self) -> int:
        """Milliseconds since the epoch by the system's clock."""
        return time.time_ns() // 1_000_000
