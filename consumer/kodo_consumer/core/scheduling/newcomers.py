"""Newcomers at work: how many handlers of tenants of whom nothing is known may run. No I/O, the clock is passed in.

What they may have beside the head-room is theirs; of the head-room they may use what their own load needs, as it is
measured by those that ended quickly, but for the last slot where there are eight; one at a time may use even that, as
it has to be tried. In a lane whose last newcomer was
slow only one is tried at a time, and never in the head-room; a lane that has not shown a newcomer yet gives them half
of the free slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.scheduling.quick_load import QuickLoad

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.state.tenant_ring import DeficitRoundRobin

_PROBE_FROM: Final = 8  # slots, from which one is for newcomers, and one for those who are known
_PROBE_FOR: Final = 10.0  # seconds after one came


class Newcomers:
    """Handlers of newcomers in one worker. `running`: messages whose handlers count as newcomers'."""

    __slots__ = ("_load", "_most", "_wanted", "running")

    def __init__(self) -> None:
        self.running: set[InFlight] = set()
        self._load = QuickLoad()
        self._most = 1  # that may run where they use the head-room
        self._wanted = float("-inf")  # when one came last to a lane where they are quick

    def measure(self, now: float, total: int) -> None:
        """A window of the load may be over; there are so many slots."""
        self._load.measure(now)
        self.resize(total)

    def resize(self, total: int) -> None:
        """So many slots from now on."""
        self._most = self._load.slots_needed(total + (total < _PROBE_FROM))

    def add(self, in_flight: InFlight) -> None:
        """One starts as a newcomer."""
        self.running.add(in_flight)
        in_flight.lane.ring.new_running += 1

    def remove(self, in_flight: InFlight) -> bool:
        """It ended, or is slow. False: it was none."""
        if in_flight not in self.running:
            return False
        self.running.discard(in_flight)
        in_flight.lane.ring.new_running -= 1
        return True

    def on_quick_end(self, lasted: float) -> None:
        """The first handler of a tenant that ends did so quickly."""
        self._load.on_end(lasted)

    def slots_left(self, total: int, now: float) -> int:
        """Slots of so many that slow tenants do not leave to newcomers."""
        return total - (total >= _PROBE_FROM and now - self._wanted < _PROBE_FOR)

    def may_start(
        self, ring: DeficitRoundRobin[InFlight], now: float, *, total: int, slow: int, headroom: int, free: int
    ) -> bool:
        """True if one of a lane may start, with `slow` slots in use by slow tenants and `free` by nobody."""
        used = slow + len(self.running)
        may = used < total - headroom
        if ring.newcomers_slow:
            return may and not ring.new_running
        self._wanted = now
        if may and ring.newcomers_slow is None and total > 1:
            return ring.new_running < (free + ring.new_running + 1) // 2
        left = total - (total >= _PROBE_FROM)
        return may or not self.running or (len(self.running) < self._most and used < left)
