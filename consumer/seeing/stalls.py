"""Handlers that keep the interpreter to themselves: how late other threads, and the event loop, get their turn."""

from __future__ import annotations

from collections import deque
from typing import Final

from consumer.effects import Alarm

TOO_LATE: Final = 0.05  # seconds
_MANY: Final = 3  # of them
_SOON: Final = 5.0  # within so many seconds are no accident
_OURS: Final = 0.1  # of a core used meanwhile; a process that did less was itself kept waiting, by a busy machine
_WORST_OF: Final = 60.0  # seconds


class Stalls:
    """Judges delays of one loop: `threads` (the receiving and all others) or `handlers` (the event loop of async ones)."""

    def __init__(self, loop: str) -> None:
        self.loop = loop
        self.count = 0
        self._late: deque[tuple[float, float]] = deque()  # (when, seconds), a minute's
        self._ours: deque[float] = deque(maxlen=_MANY)  # when this process was the cause

    def add(self, seconds: float, now: float, cpu_share: float) -> Alarm | None:
        """One delay and the share of a core that this process used meanwhile. An alarm when it goes on."""
        self._forget(now)
        if seconds <= TOO_LATE:
            return None
        self.count += 1
        self._late.append((now, seconds))
        if cpu_share < _OURS:
            return None
        self._ours.append(now)
        if len(self._ours) < _MANY or now - self._ours[0] > _SOON:
            return None
        self._ours.clear()
        worst = f"up to {1000 * self.worst(now):.0f} ms"
        if self.loop == "handlers":
            text = f"async handlers hold up their event loop for {worst}: await what takes time, or use process=True"
        else:
            text = f"handlers keep the interpreter, threads wait for {worst}: CPU-bound work belongs into process=True"
        return Alarm("stall", text)

    def worst(self, now: float) -> float:
        """The longest of the last minute, in seconds; 0 when none was too long."""
        self._forget(now)
        return max((seconds for _, seconds in self._late), default=0.0)

    def _forget(self, now: float) -> None:
        while self._late and self._late[0][0] < now - _WORST_OF:
            self._late.popleft()
