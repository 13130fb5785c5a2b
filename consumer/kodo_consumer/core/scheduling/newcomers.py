"""Newcomers at work: how many handlers may run for tenants of whom a lane does not know whether they are slow. No I/O,
the clock is passed in.

Newcomers may use all slots beside the head-room. Of the head-room they may use as many slots as their own load needs,
measured by those that ended quickly, except for the last slot if there are eight or more; one newcomer at a time may
use even that, because it has to be tried. In a lane whose last newcomer was slow only one is tried at a time, and never
in the head-room. In a lane where no newcomer has ended yet they may use half of the free slots.
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
    """Handlers of newcomers (tenants of whom a lane knows neither that they are slow nor that they are quick) in one
    worker, and their load. `running`: messages whose handlers count as newcomers'.
    """

    __slots__ = ("_load", "_most", "_wanted", "running")

    def __init__(self) -> None:
        self.running: set[InFlight] = set()
        self._load = QuickLoad()
        self._most = 1  # that may run where they use the head-room
        self._wanted = float("-inf")  # when one came last to a lane where they are quick

    def measure(self, now: float, total: int) -> None:
        """Updates the load of newcomers if its window is over at `now` (seconds), and their slots of `total`."""
        self._load.measure(now)
        self.resize(total)

    def resize(self, total: int) -> None:
        """Updates the number of slots that newcomers may use if they use the head-room (slots that slow tenants leave
        free). `total`: number of all slots.
        """
        self._most = self._load.slots_needed(total + (total < _PROBE_FROM))

    def add(self, in_flight: InFlight) -> None:
        """Counts a handler that starts as a newcomer's, here and in its lane."""
        self.running.add(in_flight)
        in_flight.lane.ring.new_running += 1

    def remove(self, in_flight: InFlight) -> bool:
        """No longer counts a handler as a newcomer's: it ended or is slow. Returns False if it was not counted."""
        if in_flight not in self.running:
            return False
        self.running.discard(in_flight)
        in_flight.lane.ring.new_running -= 1
        return True

    def on_quick_end(self, lasted: float) -> None:
        """Adds a newcomer's handler that ended after `lasted` seconds, quickly, to the load of newcomers."""
        self._load.on_end(lasted)

    def slots_left(self, total: int, now: float) -> int:
        """Slots of `total` that slow tenants may use: one less, if there are 8 or more, within 10 s after a newcomer
        that may be quick.
        """
        return total - (total >= _PROBE_FROM and now - self._wanted < _PROBE_FOR)

    def may_start(
        self, ring: DeficitRoundRobin[InFlight], now: float, *, total: int, slow: int, headroom: int, free: int
    ) -> bool:
        """True if a newcomer of the lane may start. `slow`: slots in use by slow tenants; `headroom`: slots kept for
        quick messages; `free`: slots in use by nobody. Notes `now` if newcomers of the lane are not slow, for
        `slots_left`.
        """
        used = slow + len(self.running)
        may = used < total - headroom
        if ring.newcomers_slow:
            return may and not ring.new_running
        self._wanted = now
        if may and ring.newcomers_slow is None and total > 1:
            return ring.new_running < (free + ring.new_running + 1) // 2
        left = total - (total >= _PROBE_FROM)
        return may or not self.running or (len(self.running) < self._most and used < left)
