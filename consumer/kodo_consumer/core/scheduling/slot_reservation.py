"""Slot reservation: keeps handler slots free for those whose handlers are quick. No I/O, the clock is passed in.

Turns share out slot time; they do not help a quick message that comes when every slot is taken by long handlers, as no
handler can be interrupted. So slow tenants, together, never get all slots:
- *Slow* is a tenant in a lane (without `fair_by`: a lane) whose handler runs for longer than 25 ms for each slot there
  is, 0.4 s at most. It is slow from that moment, and quick again after four handlers that ended quickly; after 8, 16, …
  64 when it has gone back and forth.
- *Head-room* is the number of slots that quick messages need: the least with which one in a hundred of them waits for
  longer than 50 ms (Erlang's formula for their measured load), at least one if there are two. Load of a tenant counts
  no more once it is slow: else slots would be kept from it for its own former load.
- Slow tenants start while they have fewer slots than all but the head-room, at least one. If quick messages have waited
  without a break for 0.1 s, and so would use every slot as well, slow ones start only up to their fair share: by the
  weights of the lanes, and in a lane by the numbers of waiting tenants. For the first second they leave the head-room
  free as well, then one slot: a burst of quick messages is over by then.
- A *newcomer*, a tenant of whom the lane does not know yet whether it is slow, counts as quick where newcomers are
  quick, as far as kodo_consumer.core.scheduling.newcomers allows; one that may not start waits among the slow ones, and
  has every other turn there. Where newcomers are slow they wait there at once: two hundred customers whose messages
  hang and who come at once are not tried one by one in every slot.
- When a newcomer came within 10 s to a lane where they are quick, one more slot is free of slow ones.
- While quick and slow ones wait for the same slots (there is one slot, or a bulkhead is full), those of them start
  first who have had less than their part of the slot time.
- A tenant that had every slot for a minute may use all of them: a reserve that no other uses would be waste.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.scheduling.newcomers import Newcomers
from kodo_consumer.core.scheduling.quick_load import QuickBacklog, QuickLoad
from kodo_consumer.core.scheduling.slow_breakers import SlowBreakers
from kodo_consumer.core.state.fairness import START_COST

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from kodo_consumer.core.scheduling.turn_queues import TurnQueues
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.state.tenant_ring import DeficitRoundRobin

_COST: Final = START_COST / 1000  # seconds that a start costs
_SLOW: Final = 0.025  # seconds a handler may run for each slot there is
_SLOW_AT_MOST: Final = 0.4
_CHECK_EVERY: Final = 0.01  # seconds between two checks of what runs
_MANY: Final = 64  # handlers at work, from which the looks are rarer
_MINUTE: Final = 60.0
_DOUBT: Final = 4  # quick ends, one after another, until a slow tenant is quick again
_MOST_RELAPSES: Final = 4  # each doubles them
_FORGIVEN: Final = 16  # quick ends for each of these, until one is forgotten


class SlotReservation:
    """Handler slots of one worker: it chooses the next message and tracks which tenants are slow. Times in seconds.

    `headroom`: number of the `total` slots that slow tenants, together, leave free for quick messages, with exceptions
    (see the module docstring). `slow_after`: duration from which a handler is slow. `slow_running`: set of the running
    messages whose handler is slow, or that started as a slow tenant's. `breakers`: circuit breakers of the slow
    tenants, one a lane.
    """

    __slots__ = (
        "_alone_since", "_backlog", "_charged", "_kept_back", "_last", "_load", "_newcomers", "_next_check", "_queues",
        "_running", "breakers", "headroom", "slow_after", "slow_running", "total",
    )  # fmt: skip

    def __init__(self, total: int, queues: TurnQueues) -> None:
        self._queues = queues
        self._running: dict[InFlight, float] = {}  # oldest start first
        self.slow_running: set[InFlight] = set()  # of these: of slow tenants, or at work for too long
        self._newcomers = Newcomers()
        self._charged: dict[InFlight, int] = {}  # milliseconds, of those for which more than the start was charged
        self._last: object = None  # whose message had the last slot
        self._alone_since = float("-inf")
        self._backlog = QuickBacklog()
        self._load = QuickLoad()
        self._kept_back = False  # the last time that nobody might start, messages waited
        self._next_check = float("-inf")
        self.breakers = SlowBreakers(queues.lanes, total)
        self.headroom = 0
        self.resize(total)

    def resize(self, total: int) -> None:
        """Sets the number of slots to `total`, and computes `slow_after` and `headroom` anew."""
        self.total = total
        self.slow_after = min(_SLOW * total, _SLOW_AT_MOST)
        self._newcomers.resize(total)
        self.headroom = self._headroom_needed()

    # ---- who may start

    def take(
        self, passing_over: AbstractSet[str], now: float, passes: Callable[[InFlight, float], bool] | None
    ) -> InFlight | None:
        """Takes the next message of all queues, and a slot; None when no message may start, or after 64 that did not
        pass. `passing_over`: tenants without turns. `passes`: True if the message may start, else it has put the
        message elsewhere itself; None: all may start.
        """
        if now >= self._next_check:
            self._check_running(now, passing_over)
        queues = self._queues
        in_flight, slow = None, False
        if queues.slow.waiting:
            self._readmit_newcomers(now)
            if not queues.quick.waiting:
                self._backlog.settle()
            if self._backlog.slow_first:
                in_flight = self._take_slow(passing_over, now, passes)
                slow = in_flight is not None
        elif not self._backlog.slow_first:
            self._backlog.settle()
        if in_flight is None:
            in_flight = queues.next(passing_over, now, passes, may_start_newcomer=self._may_start_newcomer)
        if in_flight is None:
            self._backlog.end()  # what waits there is kept by something else
            if queues.slow.waiting:  # where newcomers may have gone just now
                in_flight = self._take_slow(passing_over, now, passes)
                slow = in_flight is not None
        if in_flight is None:
            self._kept_back = self.any_waiting
            return None
        self._on_start(in_flight, now, slow=slow)
        if self._kept_back:  # one slot that was returned, or one that proved quick, may be the start of several
            queues.version += 1
        return in_flight

    def check(self, now: float) -> None:
        """Marks tenants as slow whose handlers run for too long. Must be called each second, because `take`, which does
        so too, is not called while every slot is in use.
        """
        if now >= self._next_check:
            self._check_running(now, frozenset())

    @property
    def any_waiting(self) -> bool:
        """True if messages wait in the queues, for any reason."""
        return bool(self._queues.slow.waiting or self._queues.quick.waiting)

    @property
    def slow_wait(self) -> bool:
        """True if messages of slow tenants wait in the queues."""
        return bool(self._queues.slow.waiting)

    def _take_slow(
        self, passing_over: AbstractSet[str], now: float, passes: Callable[[InFlight, float], bool] | None
    ) -> InFlight | None:
        stops = self.breakers.stops_beside(self.slow_running) if self.breakers.not_closed else None
        if self._may_start_slow(passing_over, now):
            return self._queues.next(passing_over, now, passes, slow=True, stops=stops)
        if not self._queues.bulkheads.groups:
            return None
        return self._queues.next(passing_over, now, passes, slow=True, kept=True, stops=stops)

    def _may_start_slow(self, passing_over: AbstractSet[str], now: float) -> bool:
        if self._queues.quick.waiting:
            self._backlog.goes_on(now)
        else:
            self._backlog.end()
        total = self._newcomers.slots_left(self.total, now)
        if self._backlog.counts(now):
            most = self._backlog.most_for_slow(self._fair_share(passing_over), self.headroom, total, now)
        else:
            most = float(total - self.headroom)
        used = len(self.slow_running) + len(self._newcomers.running)
        return used < max(1, most) or self._is_alone(now)

    def _is_alone(self, now: float) -> bool:
        """True if one tenant in one lane had every slot for a minute."""
        return now - self._alone_since > _MINUTE and all(in_flight.queue is self._last for in_flight in self._running)

    def _may_start_newcomer(self, ring: DeficitRoundRobin[InFlight], now: float) -> bool:
        total, free = self.total, self.total - len(self._running)
        slow = len(self.slow_running)
        may = self._newcomers.may_start(ring, now, total=total, slow=slow, headroom=self.headroom, free=free)
        return may or (not ring.newcomers_slow and self._is_alone(now))

    def _readmit_newcomers(self, now: float) -> None:
        """Moves one newcomer of each lane from the slow to the quick tenants, if it may start."""
        queues = self._queues
        for index in tuple(queues.slow.waiting):
            lane = queues.lanes[index]
            if lane.ring.newcomers and self._may_start_newcomer(lane.ring, now):
                lane.ring.readmit_newcomer()
                queues.on_recovery(lane)

    def _fair_share(self, passing_over: AbstractSet[str]) -> float:
        """Slots that are the slow tenants' fair share, by lanes' weights and numbers of tenants; paused ones get none."""
        slow = every = 0.0
        for lane in self._queues.lanes:
            quick_ones, slow_ones = lane.ring.waiting(passing_over)
            if (quick_ones or slow_ones) and not lane.paused_by_override:
                weight = lane.lane.weight or 0.001
                every += weight
                slow += weight * slow_ones / (quick_ones + slow_ones)
        return self.total * slow / every if every else 0.0

    # ---- what runs

    def _on_start(self, in_flight: InFlight, now: float, *, slow: bool) -> None:
        self._running[in_flight] = now
        queue = in_flight.queue
        if slow:
            self.slow_running.add(in_flight)
            self.breakers.on_start(in_flight.lane.lane.index)
        elif queue.slow is None:
            self._newcomers.add(in_flight)
        if self._queues.slow.waiting:
            self._charge_backlog(START_COST, slow=slow)
        if queue is not self._last:
            self._last, self._alone_since = queue, now

    def on_end(self, in_flight: InFlight, now: float) -> bool:
        """Frees the slot of a message whose handler ended, charges its slot time, and updates whether its tenant is
        slow. Returns True if the message started as a slow tenant's, or this run was slow.
        """
        lasted = now - self._running.pop(in_flight)
        queue = in_flight.queue
        slow = in_flight in self.slow_running
        tried = not slow and in_flight in self._newcomers.running and self._newcomers.remove(in_flight)
        if lasted <= _COST and queue.slow is False and not (slow or queue.relapses):
            self._load.on_end(lasted)  # most of all that end
            return False
        if lasted > _COST:
            self._charge(in_flight, int(lasted * 1000))
            self._charged.pop(in_flight, None)
        was, too_long = queue.slow, lasted >= self.slow_after
        if slow:
            self.slow_running.discard(in_flight)
        if not too_long and (not slow or was is None):
            self._load.on_end(lasted)
            queue.add_quick_time(lasted, now)
            if was is None:
                self._newcomers.on_quick_end(lasted)
        if too_long:
            self._becomes_slow(in_flight, now, tried=tried)
        elif was is not False or queue.relapses:
            self._on_quick_end(in_flight)
        if not too_long and not was and not queue.relapses:
            return slow  # nothing is known of the tenant that a breaker should count
        self.breakers.lanes[in_flight.lane.lane.index].rate.on_end(in_flight.tenant, slow=too_long)
        return slow or too_long

    def check_slow_tenants(self, now: float, wall: int) -> tuple[str, bool] | None:
        """Returns (text of an alarm about slow tenants, True if it is good news); None if there is no news. Must be
        called each second. See SlowBreakers.check.
        """
        overdue = [in_flight for in_flight, started in self._running.items() if now - started >= self.slow_after]
        return self.breakers.check(overdue, f"{self.headroom} of {self.total} slots are kept for them", now, wall)

    def _check_running(self, now: float, passing_over: AbstractSet[str]) -> None:
        self._next_check = now + _CHECK_EVERY * max(1.0, len(self._running) / _MANY)
        slow_after = self.slow_after
        for in_flight, started in self._running.items():
            lasted = now - started
            if lasted <= _COST:
                break
            self._charge(in_flight, int(lasted * 1000))
            if lasted >= slow_after and (in_flight.queue.slow is None or in_flight not in self.slow_running):
                self.slow_running.add(in_flight)
                self._becomes_slow(in_flight, now, tried=self._newcomers.remove(in_flight))
        if self._queues.slow.waiting and self._queues.quick.waiting:
            self._backlog.divide(self._fair_share(passing_over) / self.total)
        if self._load.measure(now):
            self._newcomers.measure(now, self.total)
            self.headroom = self._headroom_needed()

    def _headroom_needed(self) -> int:
        return self._load.slots_needed(self.total) if self.total > 1 else 0

    def _charge(self, in_flight: InFlight, lasted: int) -> None:
        more = lasted - self._charged.get(in_flight, START_COST)
        if more > 0:
            queues, slow = self._queues, in_flight in self.slow_running
            (queues.slow if slow else queues.quick).charge_time(in_flight.lane.lane.index, more)
            in_flight.lane.ring.charge(in_flight.queue, more)
            self._charged[in_flight] = lasted
            self._charge_backlog(more, slow=slow)

    def _charge_backlog(self, milliseconds: int, *, slow: bool) -> None:
        if self._queues.slow.waiting and self._queues.quick.waiting:
            self._backlog.charge(milliseconds, slow=slow)

    def _becomes_slow(self, in_flight: InFlight, now: float, *, tried: bool) -> None:
        queue, ring = in_flight.queue, in_flight.lane.ring
        if queue.quick_time:  # it is no demand of quick ones any more: else it would be kept from the slow ones, itself
            self._load.forget(queue.quick_time, queue.quick_since, now)
            queue.quick_time = 0.0
            self.headroom = self._headroom_needed()
        if queue.slow is None:
            if tried or ring.newcomers_slow is None:  # not in a turn of the slow ones, which it might be one of
                ring.newcomers_slow = True
        elif not queue.slow:
            queue.relapses = min(queue.relapses + 1, _MOST_RELAPSES)
        queue.slow = True
        queue.doubt = _DOUBT << queue.relapses
        ring.remember(queue)

    def _on_quick_end(self, in_flight: InFlight) -> None:
        queue, ring = in_flight.queue, in_flight.lane.ring
        queue.doubt -= 1
        if queue.slow is None:
            ring.newcomers_slow = False
        if queue.slow is False:
            if queue.doubt <= -_FORGIVEN * _DOUBT << queue.relapses:
                queue.relapses -= 1
                queue.doubt = 0
        elif queue.slow is None or queue.doubt <= 0:
            queue.slow, queue.doubt = False, 0
            ring.remember(queue)
            if queue.in_slow:
                ring.on_recovery(queue)
                self._queues.on_recovery(in_flight.lane)
