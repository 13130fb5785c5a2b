"""Scheduler of handler starts: it chooses messages by turns and limits, and lets no tenant have every slot. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.limits.limiter_set import LimiterSet, LimitKind, RerouteOptions, Reservation
from kodo_consumer.core.limits.limiters import EMPTY, ConcurrencyLimiter, Limiter, QuotaLimiter, enqueue
from kodo_consumer.core.state.in_flight import UNSTARTED, InFlight, Stage
from kodo_consumer.core.values.delay_schedule import MAX_MEMORY_WAIT
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.limit_policy import Quota, Rate

if TYPE_CHECKING:
    from kodo_consumer.core.scheduling.concurrency_control import ConcurrencyControl
    from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
    from kodo_consumer.core.scheduling.turn_queues import TurnQueues
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Policy

_LIMITER_RECHECK: Final = 0.01  # seconds before a limiter is looked at again whose waiter was turned back by another

_RECENT_STARTS: Final = 1_024  # from which the tenants' parts of the starts are estimated
SetTimer = Callable[[float, Limiter], int]


class Scheduler:
    """Chooses the next message to start, of all lanes.

    `over_limit`: messages that a limit refuses, each with its Reservation; the caller of `admit` or `take` empties the
    list and decides where they wait. `shut`: limiters with waiting messages. `recent_starts`: tenants of the last 1,024
    handler starts; None where the subscription isolates nobody.
    """

    def __init__(
        self,
        policy: Policy,
        queues: TurnQueues,
        clock: Clock,
        set_timer: SetTimer,
        slots: SlotReservation | None,
        throttle: ConcurrencyControl,
    ) -> None:
        self.limits = LimiterSet(policy.limits, policy.expected_workers)
        self.slots, self.throttle = slots, throttle
        self.recent_starts: deque[str] | None = None if policy.isolate is None else deque(maxlen=_RECENT_STARTS)
        self.over_limit: list[tuple[InFlight, Reservation]] = []
        self.running = 0
        self.queues, self.bulkheads = queues, queues.bulkheads
        self._policy, self._clock, self._set_timer = policy, clock, set_timer
        self.shut: dict[Limiter, None] = {}  # limiters with waiters, first come first
        self._passes = self._pass if policy.limits else None
        self._paused: AbstractSet[str] = frozenset()  # tenants that get no turns

    def apply_policy(self, policy: Policy, resting: AbstractSet[int], paused: AbstractSet[str], now: float) -> None:
        """Puts weights, limits and bulkheads of a policy with the same lanes in force. Lanes in `resting` (indices) and
        tenants in `paused` get no turns.
        """
        limits_differ = policy.limits != self._policy.limits
        if policy.bulkheads != self._policy.bulkheads:
            running = [sum(in_flight.stage is Stage.RUNNING for in_flight in lane) for lane in self.queues.lanes]
            self.bulkheads.apply(policy.bulkheads, policy.lanes, running)
        self._policy, self._paused = policy, paused
        self._passes = self._pass if policy.limits else None
        self.queues.apply_policy(policy, resting)
        if limits_differ:
            self.limits.apply_limits(policy.limits, now)
            self._ask_again()
        self.queues.version += 1

    def paused_messages(self) -> int:
        """Number of messages of paused tenants that wait in the queues."""
        if not self._paused:
            return 0
        return sum(count for lane in self.queues.lanes for tenant, count in lane.ring.sizes() if tenant in self._paused)

    def _ask_again(self) -> None:
        """Queues messages anew that wait at a limiter or for a promised moment, because the limits have changed."""
        for limiter in self.shut:
            limiter.waiters = EMPTY
        self.shut.clear()
        for in_flight in [
            in_flight for lane in self.queues.lanes for in_flight in lane if in_flight.stage in UNSTARTED
        ]:
            if in_flight.stage is Stage.LIMITED or (in_flight.stage is Stage.WAITING and in_flight.has_reservation):
                self.queues.enqueue(in_flight)
            in_flight.limiters, in_flight.has_reservation = None, False

    # ---- in

    def admit(self, in_flight: InFlight, now: float, *, in_turn: bool) -> None:
        """Queues the message, leaves it at a limiter, or adds it to `over_limit`. `in_turn`: limits are not examined
        before its turn, so that a flood that has to wait elsewhere leaves turn by turn and delays no later message;
        else they are examined at once, which keeps the queues short.
        """
        if self.limits and not (in_turn and in_flight.limiters is None):
            if not self._has_moment(in_flight, now):
                return
            for limiter in (
                in_flight.limiters or ()
            ):  # no overtaking of those who wait there, and no walk through a long queue
                if limiter.waiters and not limiter.free(now):
                    self._wait_at(limiter, in_flight, now)
                    return
        self.queues.enqueue(in_flight)

    def _has_moment(self, in_flight: InFlight, now: float) -> bool:
        """Sets a moment aside in the limits. False: it is a later one, and the message is in `over_limit`."""
        if in_flight.limiters is None or any(limiter.forgotten for limiter in in_flight.limiters):
            lane = in_flight.lane.lane
            in_flight.limiters = self.limits.limiters_of(
                in_flight.delivery.properties, in_flight.delivery.key, lane.level, lane.state
            )
        if not self._is_entitled(in_flight) and self._refuse(in_flight, now):
            return False
        in_flight.has_reservation = True
        return True

    def _is_entitled(self, in_flight: InFlight) -> bool:
        """True if its moment was set aside before, here or (a message that comes back in time) by the
        worker that moved it.
        """
        reserved = in_flight.headers.reserved
        return in_flight.has_reservation or (reserved is not None and self._clock.wall() >= reserved)

    # ---- out

    def take(self, now: float) -> InFlight | None:
        """Takes the next message that may start, with its tokens of all limits and a slot; None if there is none, or if
        limits refused 64 in a row (see TurnQueues.next).
        """
        throttle = self.throttle
        if throttle.adaptive is not None:
            self.bulkheads.resize(throttle.adaptive.limit)
        if not throttle.must_ask:
            in_flight = self._take(now)
        elif not throttle.may_start(self.running, now):
            return None
        elif (in_flight := self._take(now)) is not None:
            throttle.on_start()
        if in_flight is not None:
            self.running += 1
            if self.recent_starts is not None:
                self.recent_starts.append(in_flight.tenant)
            if self.bulkheads.groups:
                self.bulkheads.on_start(in_flight.lane.lane.index)
        return in_flight

    def _take(self, now: float) -> InFlight | None:
        if self.slots is None:
            return self.queues.next(self._paused, now, self._passes)
        return self.slots.take(self._paused, now, self._passes)

    def on_end(self, in_flight: InFlight, now: float) -> bool:
        """Frees slot and concurrency limits of a message that ended. Returns True if its run was slow, or its tenant when
        the run started; False where no slots are reserved for quick messages.
        """
        self.free_limits(in_flight, now)
        return self.free_slot(in_flight, now)

    def free_slot(self, in_flight: InFlight, now: float) -> bool:
        """Frees the slot of a message whose handler returned; its concurrency limits stay taken. Returns what `on_end`
        returns: True if the run was slow, or the tenant when the run started.
        """
        self.running -= 1
        if self.bulkheads.groups:
            self.queues.version += self.bulkheads.on_end(in_flight.lane.lane.index)
        return self.slots is not None and self.slots.on_end(in_flight, now)

    def free_limits(self, in_flight: InFlight, now: float) -> None:
        """Frees the concurrency limits of a message that ended, and lets messages that wait there through."""
        if in_flight.limiters is not None:
            in_flight.has_reservation = False
            for limiter in in_flight.limiters:
                limiter.finish()
                if limiter.waiters and isinstance(limiter, ConcurrencyLimiter):
                    self.let_through(limiter, now)

    # ---- limiters

    def let_through(self, limiter: Limiter, now: float) -> None:
        """Puts waiters, as many as the limiter has room for, first in their tenants' queues. The others wait for a
        timer, or for the end of a handler or an answer of a store if only that makes room.
        """
        found: list[InFlight] = []
        room = limiter.room(now)
        while limiter.waiters and len(found) < room:
            in_flight = limiter.waiters.popleft()
            if in_flight.stage is Stage.LIMITED:
                found.append(in_flight)
        for in_flight in reversed(found):
            self.queues.enqueue(in_flight, first=True)
        if limiter.waiters:
            self._set_limiter_timer(limiter, now)
        else:
            limiter.waiters = EMPTY
            self.shut.pop(limiter, None)

    def drop_waiters(self, left: Iterable[InFlight]) -> None:
        """Removes messages that have stopped waiting from the waiters of their limiters, so that no limiter keeps a
        leased token for them. `left`: messages that were released or moved, some of which waited at limiters.
        """
        for limiter in {limiter for in_flight in left for limiter in in_flight.limiters or () if limiter.waiters}:
            limiter.waiters = deque(in_flight for in_flight in limiter.waiters if in_flight.stage is Stage.LIMITED)
            if not limiter.waiters:
                limiter.waiters = EMPTY
                self.shut.pop(limiter, None)

    def on_leases_changed(self, limiter: Limiter, now: float) -> None:
        """Lets waiters of a limiter try again, because its leases changed. If a quota will have no room within 5 s, it
        queues only those that may wait elsewhere: they move when their turn comes.
        """
        limiter.timer_set = False
        if not isinstance(limiter, QuotaLimiter) or limiter.wait(now) * 1000 <= MAX_MEMORY_WAIT:
            self.let_through(limiter, now)
            return
        waiters = [in_flight for in_flight in limiter.waiters if in_flight.stage is Stage.LIMITED]
        limiter.waiters = EMPTY
        for in_flight in waiters:
            if self._leave(in_flight).quota:
                self.queues.enqueue(in_flight)
            else:
                limiter.waiters = enqueue(limiter.waiters, in_flight)
        self._set_limiter_timer(limiter, now)

    @property
    def any_shut(self) -> bool:
        """True if messages wait that time alone may let start: at limiters or, with a slot reservation, in any queue."""
        return bool(self.shut) or (self.slots is not None and self.slots.any_waiting)

    @property
    def messages_at_limits(self) -> int:
        """Number of messages that wait at a limiter."""
        return sum(1 for limiter in self.shut for in_flight in limiter.waiters if in_flight.stage is Stage.LIMITED)

    def recheck(self, now: float) -> None:
        """Marks tenants as slow whose handlers run for too long, and lets waiters of open limiters through whose signal
        never came, because the message before them was released. Must be called each second.
        """
        if self.slots is not None:
            self.slots.check(now)
            self.queues.version += self.slots.any_waiting  # what is kept free changes with time
        for limiter in [limiter for limiter in self.shut if limiter.free(now)]:
            self.let_through(limiter, now)

    def _pass(self, in_flight: InFlight, now: float) -> bool:
        """Takes the tokens of all limits and returns True; else leaves the message at the limiter that is shut, or in
        `over_limit`, and returns False.
        """
        if not self._has_moment(in_flight, now):
            return False
        assert in_flight.limiters is not None
        headers = in_flight.headers
        shut = self.limits.start(in_flight.limiters, now, quota_taken=headers.quota_taken)
        if shut is None:
            if not headers.quota_taken and any(isinstance(limiter, QuotaLimiter) for limiter in in_flight.limiters):
                in_flight.headers = headers.replace(quota_taken=True)
            return True
        for limiter in in_flight.limiters:  # another limiter may have let it through for nothing: the next one's turn
            if limiter is not shut and limiter.waiters and limiter.free(now):
                self.let_through(limiter, now)
        late = not isinstance(shut, ConcurrencyLimiter) and shut.wait(now) * 1000 > MAX_MEMORY_WAIT
        if not (late and self._leave(in_flight) and self._refuse(in_flight, now)):
            self._wait_at(shut, in_flight, now)
        return False

    def _refuse(self, in_flight: InFlight, now: float) -> bool:
        """Sets a moment aside in the limits. True: it is a later one, and the message is now in `over_limit`."""
        assert in_flight.limiters is not None
        slot = self.limits.reserve(
            in_flight.limiters, now, self._leave(in_flight), quota_taken=in_flight.headers.quota_taken
        )
        if slot.over is LimitKind.NOTHING:
            return False
        self.over_limit.append((in_flight, slot))
        return True

    def _leave(self, in_flight: InFlight) -> RerouteOptions:
        """Kinds of limit for which the message may leave its lane."""
        lane, policy = in_flight.lane.lane, self._policy
        if lane.level.is_backup or lane.ordered:
            return RerouteOptions()
        pending = bool(policy.limit_targets(lane.level, lane.state, Rate))
        after = policy.waits[State.PENDING].delay(in_flight.headers.pending + 1) / 1000
        quota = bool(policy.limit_targets(lane.level, lane.state, Quota))
        horizon = policy.horizon / 1000
        return RerouteOptions(rate_after=after if pending else None, quota=quota, horizon=horizon)

    def _wait_at(self, limiter: Limiter, in_flight: InFlight, now: float) -> None:
        in_flight.enter(Stage.LIMITED)
        in_flight.lane.count("over", limiter.kind)
        limiter.waiters = enqueue(limiter.waiters, in_flight)
        self.shut[limiter] = None
        limiter.on_wait(now)
        self._set_limiter_timer(limiter, now)

    def _set_limiter_timer(self, limiter: Limiter, now: float) -> None:
        if limiter.timer_set or isinstance(limiter, ConcurrencyLimiter):
            return
        at = limiter.free_at(now)
        if at < float("inf"):  # else a store will tell
            limiter.timer_set = True
            self._set_timer(now + _LIMITER_RECHECK if limiter.free(now) else at, limiter)
