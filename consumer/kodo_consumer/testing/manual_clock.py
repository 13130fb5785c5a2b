"""Clock that changes only when a test moves it."""

from __future__ import annotations

START_WALL = 1_800_000_000_000  # ms since the epoch: any moment will do, the same one in every run


class ManualClock:
    """Implementation of kodo_consumer.core.values.clock.Clock whose two readings, seconds since its start and ms since
    the epoch, are moved by hand, always together.
    """

    def __init__(self) -> None:
        self._elapsed = 0.0

    def now(self) -> float:
        """Seconds since the start."""
        return self._elapsed

    def wall(self) -> int:
        """Milliseconds since the epoch."""
        return START_WALL + round(self._elapsed * 1000)

    def advance(self, seconds: float) -> None:
        """Moves both readings on by so many seconds, which are not negative."""
        assert seconds >= 0
        self._elapsed += seconds
