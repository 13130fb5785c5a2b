"""Tenant isolation: if a tenant's messages fill the look-ahead, those beyond a part are published to another topic,
without a handler, so that reading reaches the tenants behind it. No I/O, the clock is passed in.

Beyond the look-ahead a quiet tenant's message waits until the noisy backlog before it is read: that is as fast as
messages can be moved. The law, while the look-ahead is full: a tenant with more than `share` of it, and at least
`least` messages (at most `share` of those in memory, or no tenant could have so many), is isolated. All isolated
tenants together keep half of the amount that makes a tenant noisy, their oldest messages, which are handled by turns.
The rest leaves, oldest first, each message due when its turn would have come at its tenant's pace. Isolation ends when
a tenant has less than half of the messages that it may keep, and none has left for a while.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.engine.lane_overflow import LaneOverflow
from kodo_consumer.core.state.in_flight import InFlight, LaneState, Stage
from kodo_consumer.core.state_machine import ISOLATED_MOST
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.policy import IsolationPolicy, Policy

if TYPE_CHECKING:
    from kodo_consumer.core.engine.message_flow import MessageFlow
    from kodo_consumer.core.scheduling.scheduler import Scheduler
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.state.lookahead import LookaheadBudget

IN_FLIGHT: Final = 4_000  # receipts awaited before more is sent: moves for other reasons do not queue behind a flood
_CHECK_EVERY: Final = 0.25  # seconds between two searches for noisy tenants while the look-ahead is full
_CHECK_AFTER_NONE: Final = 1.0  # seconds after a search that found none
_PAUSE: Final = 2.0  # seconds without a message leaving that are no end of a flood
_CALM: Final = 5.0  # seconds without a message leaving before a tenant counts as calm
_SAMPLED: Final = 100  # messages of a tenant and lane that its messages' size is estimated from
_SAMPLES: Final = 10  # seconds of handler starts their pace is estimated from
_LEAST_RATE: Final = 1e-3  # starts a second
_LATEST: Final = ISOLATED_MOST / 1000


class _Noisy:
    """One isolated tenant. Times in seconds."""

    __slots__ = ("last_moved_at", "next_turn", "pace", "size")

    def __init__(self, size: float, now: float) -> None:
        self.size = size  # bytes of a message, on average
        self.pace = _LEAST_RATE  # handler starts a second
        self.next_turn = now  # of the next message that leaves, if it stayed
        self.last_moved_at = now  # when one left last


class TenantIsolation:
    """Isolates tenants whose messages fill the look-ahead: moves those of their unstarted messages that are beyond a
    part out of ready lanes that keep no order, to another topic. `tenants`: isolated tenants, by name; `leaving`:
    messages taken out of the queues and limiters to be published, of which some may have been released since. Both are
    empty where the subscription does not isolate. Its length is the number of messages that wait to be published, with
    those of LaneOverflow. All calls need the engine's lock.
    """

    def __init__(
        self,
        context: EngineContext,
        lanes: Sequence[LaneState],
        lookahead: LookaheadBudget,
        flow: MessageFlow,
        scheduler: Scheduler,
        set_timer: Callable[[float, Callable[[float], None]], int],
        rng: Random,
    ) -> None:
        policy = context.policy
        self._context, self._flow, self._scheduler, self._set_timer = context, flow, scheduler, set_timer
        self.tenants: dict[str, _Noisy] = {}
        self.leaving: deque[InFlight] = deque()
        self._isolate, self._lookahead, self._rng = _reachable(policy), lookahead, rng
        self._overflow = LaneOverflow(flow)
        self._lanes = [lane for lane in lanes if _has_way_out(policy, lane)]
        for lane in lanes:
            lane.cannot_evacuate = bool(self._lanes) and lane not in self._lanes
        self._budget = policy.max_held, policy.lookahead_bytes
        self._is_full = False
        self._not_before = float("-inf")
        self._samples: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return sum(1 for in_flight in self.leaving if in_flight.stage is Stage.EVACUATING) + len(self._overflow)

    def _evacuates(self, now: float) -> bool:
        """True while messages leave, and for a moment after."""
        return bool(self.leaving) or any(now - noisy.last_moved_at < _PAUSE for noisy in self.tenants.values())

    # ---- when

    def on_full(self, now: float) -> None:
        """Sets a timer that calls `update` at once, because a lane found no room in the look-ahead: the next `update`
        looks for noisy tenants. Does nothing if that timer is set, if no lane can give messages away, or if the last
        look was less than 0.25 s ago (1 s if no tenant was isolated then).
        """
        if self._lanes and not self._is_full and now >= self._not_before:
            self._is_full = True
            self._set_timer(now, self.update)

    def update(self, now: float) -> None:
        """Isolates tenants that are noisy now, if `on_full` has set its timer since the last call. Ends the isolation
        of calm tenants. Moves messages as `evacuate_excess` does, and those at limits, too. Alarms, even where nobody
        is isolated, if a lane has no room and over half of the messages in flight are queued ones of paused tenants.
        Must be called each second, and by the timer of `on_full`.
        """
        if self._lookahead.lanes_without_capacity and 2 * self._scheduler.paused_messages() > self._lookahead.messages:
            text = "paused tenants fill the look-ahead: where they cannot be moved aside nothing else is read"
            self._context.effects.alarm("paused", text)
        if not self._lanes:
            self.publish_pending(now)
            return
        self._learn(now)
        if self._is_full:
            for tenant, size in list(self._noisy()):
                self._begin(tenant, size, now)
            self._not_before = now + (_CHECK_EVERY if self.tenants else _CHECK_AFTER_NONE)
        self._is_full = False
        for tenant, noisy in self.tenants.items():
            noisy.pace = self._pace(tenant)
        if self._context.policy.limits:
            self._evacuate_limited(now)
        self.evacuate_excess(now)
        self._let_calm_return(now)

    def _begin(self, tenant: str, size: float, now: float) -> None:
        self.tenants[tenant] = _Noisy(size, now)
        self._context.counts.isolated += 1
        text = f"tenant {tenant!r} fills the look-ahead: what it has beyond its part waits elsewhere"
        self._context.effects.alarm("isolated", text, severe=False)

    def _noisy(self) -> Iterator[tuple[str, float]]:
        """Tenants beyond their part that are not isolated yet, with their messages' average size."""
        holdings = self._holdings()
        suspects = [
            name for name, count in holdings.items() if count >= self._isolate.least and name not in self.tenants
        ]
        for tenant, size in self._sizes(suspects).items():
            count = holdings[tenant]
            if self._lookahead.fraction(count, round(count * size)) > self._isolate.share:
                yield tenant, size

    def _holdings(self) -> Counter[str]:
        """Messages that wait for their turn, by tenant."""
        holdings: Counter[str] = Counter()
        for lane in self._lanes:
            if self._context.policy.limits:
                holdings.update(in_flight.tenant for in_flight in lane if in_flight.stage in _WAITS_FOR_TURN)
            else:
                for tenant, count in lane.ring.sizes():
                    holdings[tenant] += count
        return holdings

    def _sizes(self, tenants: list[str]) -> dict[str, float]:
        """Mean size of a message of each tenant, by its newest ones, because counting all would delay everybody."""
        sizes: dict[str, list[int]] = {tenant: [] for tenant in tenants}
        if self._context.policy.limits and tenants:
            for in_flight in chain.from_iterable(self._lanes):
                if in_flight.tenant in sizes and in_flight.stage in _WAITS_FOR_TURN:
                    sizes[in_flight.tenant].append(in_flight.size)
        else:
            for tenant, known in sizes.items():
                for lane in self._lanes:
                    known.extend(in_flight.size for in_flight in lane.ring.sample(tenant, _SAMPLED))
        return {tenant: sum(known) / len(known) for tenant, known in sizes.items()}

    def _let_calm_return(self, now: float) -> None:
        calm = [name for name, noisy in self.tenants.items() if now - noisy.last_moved_at > _CALM]
        if self.leaving or not calm:
            return
        holdings = self._holdings()
        for tenant in calm:
            if 2 * holdings[tenant] < self._keep(self.tenants[tenant]) * len(self._lanes):
                del self.tenants[tenant]

    # ---- how fast

    def _learn(self, now: float) -> None:
        if not self._samples or now - self._samples[-1][0] >= _CHECK_EVERY:
            self._samples.append((now, self._context.counts.started))
        while self._samples[0][0] < now - _SAMPLES:
            self._samples.popleft()

    def _pace(self, tenant: str) -> float:
        """Handler starts of the tenant a second: the pace of all starts, times its part of the last ones."""
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        total = (after - before) / (end - begin) if end > begin else 0.0
        starts = self._scheduler.recent_starts or ()
        part = max(1, starts.count(tenant)) / max(1, len(starts))
        return max(_LEAST_RATE, total * part)

    # ---- what

    def _keep(self, noisy: _Noisy) -> int:
        """Number of messages that an isolated tenant may keep in each lane."""
        messages, size = self._budget
        threshold = max(self._isolate.least, self._isolate.share * messages)
        if noisy.size:
            threshold = min(threshold, self._isolate.share * size / noisy.size)
        return max(1, int(threshold / 2 / len(self.tenants) / len(self._lanes)))

    def evacuate_excess(self, now: float) -> None:
        """Takes queued messages of isolated tenants, beyond the oldest ones that each may keep in a lane, out of the
        queues into `leaving`, if at least half of the look-ahead's messages or of its bytes are used. Then does as
        `publish_pending`, in any case.
        """
        if not self._lookahead.is_low:
            for tenant, noisy in self.tenants.items():
                for lane in self._lanes:
                    self._part_with(lane.ring.take_excess(tenant, self._keep(noisy)), noisy, now)
        self.publish_pending(now)

    def publish_pending(self, now: float) -> None:
        """Publishes messages of `leaving`, except released ones, while fewer than `IN_FLIGHT` (4,000) messages that are
        being published, for any reason, have no receipt. Then publishes those of LaneOverflow, within its own bounds.
        """
        while self.leaving and self._flow.publishes.waiting < IN_FLIGHT:
            in_flight = self.leaving.popleft()
            if in_flight.stage is Stage.EVACUATING:  # else it was released
                self._flow.move_aside(in_flight, self._wait(in_flight, now), now)
        if self._overflow.has_work:
            self._overflow.publish_pending(now, IN_FLIGHT, is_flooded=self._evacuates(now))

    def _evacuate_limited(self, now: float) -> None:
        """Removes isolated tenants' messages that wait at limits, beyond parts kept: they fill the look-ahead too."""
        if not self.tenants or self._lookahead.is_low:
            return
        for lane in self._lanes:
            waiting: dict[str, list[InFlight]] = {tenant: [] for tenant in self.tenants}
            for in_flight in lane:
                if in_flight.stage is Stage.LIMITED and in_flight.tenant in waiting:
                    waiting[in_flight.tenant].append(in_flight)
            for tenant, at_limiters in waiting.items():
                noisy = self.tenants[tenant]
                gone = at_limiters[self._keep(noisy) :]
                self._part_with(gone, noisy, now)
                self._scheduler.drop_waiters(gone)

    def _part_with(self, gone: list[InFlight], noisy: _Noisy, now: float) -> None:
        for in_flight in gone:
            in_flight.give_back()
            in_flight.enter(Stage.EVACUATING)
        if gone:
            noisy.last_moved_at = now
            noisy.next_turn = max(noisy.next_turn, now + self._keep(noisy) * len(self._lanes) / noisy.pace)
            self.leaving.extend(gone)

    def _wait(self, in_flight: InFlight, now: float) -> float:
        """Seconds until the turn of a message would come; also notes that it leaves.

        Messages whose turn is later than the longest wait are spread over its second half, so that they do not come at
        once.
        """
        noisy = self.tenants[in_flight.tenant]
        noisy.last_moved_at = now
        wait = noisy.next_turn - now
        if wait >= _LATEST:
            return self._rng.uniform(0.5, 1.0) * _LATEST
        noisy.next_turn += 1 / noisy.pace
        return wait


_NEVER: Final = IsolationPolicy(1.0, 1, "pending")
_WAITS_FOR_TURN: Final = frozenset({Stage.QUEUED, Stage.LIMITED})


def _reachable(policy: Policy) -> IsolationPolicy:
    """The declared policy, with a least number of messages that a tenant can have."""
    isolate = policy.isolate or _NEVER
    return replace(isolate, least=min(isolate.least, max(1, int(isolate.share * policy.max_held))))


def _has_way_out(policy: Policy, lane: LaneState) -> bool:
    place = lane.lane
    if place.state is not State.READY or place.ordered:
        return False
    return policy.isolation_target(place.level) is not None
