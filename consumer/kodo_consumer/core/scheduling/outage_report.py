"""Outage report: says when slow handlers have most slots of a worker while more of their messages wait. No I/O.

The circuit breaker counts failures of most tenants; an outage of some of them is none, and the others go on. But those
on call have to know whose handlers hang, and in which lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.scheduling.slot_reservation import SlotReservation

_PERSISTS: Final = 10.0  # seconds until it is said, and until it is over
_AGAIN: Final = 60.0  # seconds between two times that it is said
_PART: Final = 0.5  # of the slots


class OutageReport:
    """Of one worker. To be asked each second. Times in seconds."""

    __slots__ = ("_calm_since", "_said", "_since", "_slots")

    def __init__(self, slots: SlotReservation) -> None:
        self._slots = slots
        self._since: float | None = None  # that slow handlers have so many slots
        self._calm_since: float | None = None  # after it was said
        self._said: float | None = None

    def look(self, now: float) -> Iterator[tuple[str, bool]]:
        """(what is to be said, True if it is that the outage is over)."""
        slots = self._slots
        if slots.any_waiting and sum(held.queue.slow is True for held in slots.slow_running) >= _PART * slots.total:
            self._calm_since = None
            self._since = now if self._since is None else self._since
            if now - self._since >= _PERSISTS and (self._said is None or now - self._said >= _AGAIN):
                self._said = now
                yield self._text(), False
            return
        self._since = None
        if self._said is not None:
            self._calm_since = now if self._calm_since is None else self._calm_since
            if now - self._calm_since >= _PERSISTS:
                self._said = self._calm_since = None
                yield "slow handlers no longer have most of the slots", True

    def _text(self) -> str:
        slots = self._slots
        lanes = Counter(held.lane.lane.name for held in slots.slow_running)
        tenants = len({held.tenant for held in slots.slow_running})
        where = ", ".join(f"{count} in {lane}" for lane, count in lanes.most_common())
        return (
            f"{many(len(slots.slow_running), 'handler')} of {many(tenants, 'tenant')} run for longer than"
            f" {slots.slow_after:g} s ({where}), and more of theirs wait. The others go on; kept for them:"
            f" {slots.headroom} of {slots.total} slots"
        )
