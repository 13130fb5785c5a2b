"""Turn queues: messages that may start when their turn comes, lanes by weight, tenants of a lane by turns. No I/O.

Quick and slow tenants have turns of their own: the slot reservation decides which of both come next.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.scheduling.bulkheads import Bulkheads
from kodo_consumer.core.state.fairness import StartTimeFairQueue
from kodo_consumer.core.state.in_flight import InFlight, LaneState, Stage

if TYPE_CHECKING:
    from kodo_consumer.core.state.tenant_ring import DeficitRoundRobin
    from kodo_consumer.core.values.policy import Policy

_MAX_TRIES: Final = 64  # messages turned back in one call before others get a word in


class TurnQueues:
    """The queues of all lanes. `version` grows whenever there may be more to take. `quick`, `slow`: turns of the lanes
    that have messages of quick, and of slow tenants. `starts_until`: by lane, the time (monotonic seconds) before which
    its messages have to start; infinite: at any time.
    """

    def __init__(self, policy: Policy, lanes: list[LaneState]) -> None:
        self.version = 0
        self.bulkheads = Bulkheads(policy.bulkheads, policy.lanes, policy.concurrency)
        self.lanes = lanes
        self.starts_until = [float("inf")] * len(lanes)
        self._weights = policy.tenant_weights
        self._set_shares([lane.lane.weight for lane in lanes], frozenset())

    def apply_policy(self, policy: Policy, resting: AbstractSet[int]) -> None:
        """Puts the weights of lanes and of tenants in force, from a policy with the same lanes in the same order. Lanes
        in `resting` (indices) get no turns; all others do. Limits and bulkheads stay unchanged.
        """
        self._weights = policy.tenant_weights
        self._set_shares([lane.weight for lane in policy.lanes], resting)
        for lane in self.lanes:
            lane.lane = policy.lanes[lane.lane.index]
            lane.ring.reweigh(policy.tenant_weights)
            self._activate(lane)

    def _set_shares(self, weights: list[int], resting: AbstractSet[int]) -> None:
        self.quick, self.slow = StartTimeFairQueue(weights, resting), StartTimeFairQueue(weights, resting)

    def _activate(self, lane: LaneState) -> None:
        if lane.ring.quick.count:
            self.quick.activate(lane.lane.index)
        if lane.ring.count(slow=True):
            self.slow.activate(lane.lane.index)

    def enqueue(self, in_flight: InFlight, *, first: bool = False) -> None:
        """Adds a message to the queue of its tenant, as its last or (`first`) its first one; its stage is QUEUED."""
        in_flight.enter(Stage.QUEUED)
        lane, weights = in_flight.lane, self._weights
        queue = lane.ring.push(
            in_flight.tenant, in_flight, weights.get(in_flight.tenant, 1) if weights else 1, first=first
        )
        in_flight.queue = queue
        (self.slow if queue.in_slow else self.quick).activate(lane.lane.index)
        self.version += 1

    def drop(self, lane: LaneState) -> None:
        """Removes those messages from the queues of a lane that are no longer in the stage QUEUED."""
        left = [in_flight for in_flight in lane.ring if in_flight.stage is Stage.QUEUED]
        lane.ring.clear()
        self.quick.deactivate(lane.lane.index)
        self.slow.deactivate(lane.lane.index)
        for in_flight in left:
            self.enqueue(in_flight)

    def on_recovery(self, lane: LaneState) -> None:
        """Updates the turns of a lane after one of its tenants has moved from the slow to the quick ones."""
        self._activate(lane)
        if not lane.ring.count(slow=True):
            self.slow.deactivate(lane.lane.index)

    def next(
        self,
        passing_over: AbstractSet[str],
        now: float,
        passes: Callable[[InFlight, float], bool] | None,
        *,
        slow: bool = False,
        kept: bool = False,
        may_start_newcomer: Callable[[DeficitRoundRobin[InFlight], float], bool] | None = None,
        stops: Callable[[int, float], bool] | None = None,
    ) -> InFlight | None:
        """Takes out the next message that may start, of a quick or (`slow`) a slow tenant; None if none may start, or
        after 64 that did not pass (`version` has grown then: call again). `passing_over`: tenants that get no turns;
        `passes`: True if the message may start at `now`, else it has put it elsewhere; `kept`: of lanes with a kept
        slot free, without `may_start_newcomer`; `stops`: True for lanes that start nothing now.
        """
        tries = _MAX_TRIES
        skipped: list[int] = []
        shares, ends = self.slow if slow else self.quick, self.starts_until
        bulkheads = self.bulkheads if self.bulkheads.groups else None
        for index in shares.order():
            lane = self.lanes[index]
            ring = lane.ring
            rounds, asked = ring.slow if slow else ring.quick, may_start_newcomer
            may_run = True
            if bulkheads is not None:
                keeps = bulkheads.keeps(index)
                may_run = bulkheads.may_start(index) and (keeps or not kept)
                asked = None if keeps else may_start_newcomer
            if stops is not None and may_run:
                may_run = not stops(index, now)
            if not may_run or now >= ends[index] or (lane.active is not None and not lane.active.may_start(now)):
                skipped.append(index)
                continue
            while (in_flight := ring.take(passing_over, now, slow=slow, may_start_newcomer=asked)) is not None:
                if passes is None or passes(in_flight, now):
                    lane.started += 1
                    shares.charge(index)
                    if not rounds.count and not ring.count(slow=slow):
                        shares.deactivate(index)
                    for other in skipped:
                        shares.requeue(other)
                    if not slow and ring.newcomers:
                        self.slow.activate(index)
                    return in_flight
                tries -= 1
                if not tries:
                    self.version += 1  # there may be more: the caller should ask again
                    if not rounds.count and not ring.count(slow=slow):
                        shares.deactivate(index)
                    if not slow and ring.newcomers:
                        self.slow.activate(index)
                    return None
            if ring.count(slow=slow):
                skipped.append(index)
            else:
                shares.deactivate(index)
            if not slow and ring.newcomers:  # some have gone there
                self.slow.activate(index)
        return None
