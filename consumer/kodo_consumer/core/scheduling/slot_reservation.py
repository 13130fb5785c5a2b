"""Slot reservation for quiet tenants: bars other tenants from further slots. No I/O, the clock is passed in.

Turns share out the starts; they do not help a quiet message that comes when every slot is taken by handlers that take
their time. So slots are kept back, from slow handlers only: where they are quick, a slot comes free soon enough by
itself. Slow is what runs for longer than 25 ms for each slot there is: with all slots so busy, one comes free every
25 ms or less often. A tenant is slow while such a handler of it runs, and from the end of one until a quick one ends.

The law, for n tenants with slow handlers and C slots:
- while others wait, a tenant with 75 % of the slots gets no further one;
- it goes beyond, when nobody else waits, only after one of its handlers has ended quickly there;
- a slow tenant gets a further slot only while it has fewer than three times the slots that would stay free. So one
  alone comes to 3/4 of the slots, two to 3/7 each, n to 3/(3n + 1) each: C/(3n + 1) stay free for others, and the
  last free slot is only ever for a tenant that has none;
- none of it holds for a tenant that was alone for a minute: a reserve for nobody would be waste.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.in_flight import InFlight

_SHARE: Final = 0.75  # of the slots, for one tenant while others wait
_TIMES_FREE: Final = 3  # slots of a slow tenant for each that stays free: 3/4 of all when it is the only one
_SLOW: Final = 0.025  # seconds a handler may run for each slot there is
_REMEMBERED: Final = 4  # slow tenants for each slot
_ALONE: Final = 60.0  # seconds without another tenant
NOBODY_BARRED: Final[AbstractSet[str]] = frozenset()


class SlotReservation:
    """The slots of one worker. Times in seconds."""

    __slots__ = ("_cap", "_changed", "_counts", "_last", "_quick", "_running", "_slow", "_slow_ones", "_total", "full")

    def __init__(self, total: int) -> None:
        self._running: dict[InFlight, float] = {}  # oldest start first
        self._counts: dict[str, int] = {}  # of those who have any
        self.full: set[str] = set()  # tenants that have 75 %
        self._quick: set[str] = set()  # of these: a handler ended quickly since
        self._slow_ones: dict[str, None] = {}  # tenants whose last handler was slow, the latest last
        self._last: str | None = None
        self._changed = float("-inf")  # when a slot last went to another tenant than the one before
        self.resize(total)

    def resize(self, total: int) -> None:
        """So many slots from now on."""
        self._total = total
        self._cap = max(1, int(total * _SHARE))
        self._slow = _SLOW * total
        self.full = {tenant for tenant, count in self._counts.items() if count >= self._cap}

    def took(self, held: InFlight, now: float) -> None:
        """A message's handler starts."""
        tenant = held.tenant
        self._running[held] = now
        count = self._counts[tenant] = self._counts.get(tenant, 0) + 1
        if count >= self._cap:
            self.full.add(tenant)
        if tenant != self._last:
            self._last, self._changed = tenant, now

    def freed(self, held: InFlight, now: float) -> None:
        """It ended."""
        tenant = held.tenant
        quick = now - self._running.pop(held) < self._slow
        if not quick:
            self._slow_ones.pop(tenant, None)
            self._slow_ones[tenant] = None
            if len(self._slow_ones) > _REMEMBERED * self._total:
                del self._slow_ones[next(iter(self._slow_ones))]
        elif self._slow_ones:
            self._slow_ones.pop(tenant, None)
        count = self._counts.pop(tenant) - 1
        if count:
            self._counts[tenant] = count
        if tenant in self.full:
            if quick:
                self._quick.add(tenant)
            if count < self._cap:
                self.full.discard(tenant)
        if not count:
            self._quick.discard(tenant)

    def blocked_tenants(self, now: float) -> AbstractSet[str]:
        """Tenants that get no slot, even when no other tenant has work."""
        oldest = next(iter(self._running.values()), now)
        slow = now - oldest >= self._slow
        if not (slow or self.full or self._slow_ones) or now - self._changed > _ALONE:
            return NOBODY_BARRED
        barred = self.full - self._quick
        most = max(1, _TIMES_FREE * (self._total - len(self._running) - 1))
        return barred | {tenant for tenant in self._slow_tenants(now) if self._counts.get(tenant, 0) >= most}

    def _slow_tenants(self, now: float) -> set[str]:
        found = set(self._slow_ones)
        for held, started in self._running.items():
            if now - started < self._slow:
                break
            found.add(held.tenant)
        return found
