"""Turn queues: messages that may start when their turn comes, lanes by weight, tenants of a lane by turns. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.in_flight import InFlight, LaneState, Stage
from kodo_consumer.core.scheduling.fairness import StartTimeFairQueue

if TYPE_CHECKING:
    from kodo_consumer.core.policy import Policy
    from kodo_consumer.core.scheduling.bulkheads import Bulkheads

_MAX_TRIES: Final = 64  # messages turned back in one call before others get a word in


class TurnQueues:
    """The queues of all lanes. `version` grows whenever there may be more to take."""

    def __init__(self, policy: Policy, lanes: list[LaneState], bulkheads: Bulkheads) -> None:
        self.version = 0
        self._bulkheads = bulkheads
        self.lanes = lanes
        self._weights = policy.tenant_weights
        self._shares = StartTimeFairQueue([lane.lane.weight for lane in lanes])

    def apply_policy(self, policy: Policy, resting: AbstractSet[int]) -> None:
        """Weights of a policy with the same lanes count from now on; lanes that rest get no turns."""
        self._weights = policy.tenant_weights
        self._shares = StartTimeFairQueue([lane.weight for lane in policy.lanes], resting)
        for lane in self.lanes:
            lane.lane = policy.lanes[lane.lane.index]
            lane.ring.reweigh(policy.tenant_weights)
            if lane.ring:
                self._shares.activate(lane.lane.index)

    def enqueue(self, held: InFlight, *, first: bool = False) -> None:
        """Into its tenant's queue."""
        held.enter(Stage.QUEUED)
        lane, weights = held.lane, self._weights
        lane.ring.push(held.tenant, held, weights.get(held.tenant, 1) if weights else 1, first=first)
        self._shares.activate(lane.lane.index)
        self.version += 1

    def drop(self, lane: LaneState) -> None:
        """Takes out of the lane's queue what is no longer queued."""
        left = [held for held in lane.ring if held.stage is Stage.QUEUED]
        lane.ring = type(lane.ring)()
        self._shares.deactivate(lane.lane.index)
        for held in left:
            self.enqueue(held)

    def next(
        self, passing_over: AbstractSet[str], now: float, passes: Callable[[InFlight, float], bool] | None
    ) -> InFlight | None:
        """Takes out the next message of a tenant that is not passed over. `passes`: whether the message may start, else it
        is somewhere else by then; None: every message may.
        """
        tries = _MAX_TRIES
        skipped: list[int] = []
        shares = self._shares
        bulkheads = self._bulkheads if self._bulkheads.groups else None
        for index in shares.order():
            lane = self.lanes[index]
            ring = lane.ring
            may_run = bulkheads is None or bulkheads.may_start(index)
            if not may_run or (lane.active is not None and not lane.active.may_start(now)):
                skipped.append(index)
                continue
            while (held := ring.take(passing_over)) is not None:
                if passes is None or passes(held, now):
                    lane.started += 1
                    shares.charge(index)
                    if not ring:
                        shares.deactivate(index)
                    for other in skipped:
                        shares.requeue(other)
                    return held
                tries -= 1
                if not tries:
                    self.version += 1  # there may be more: the caller should ask again
                    return None
            if ring:
                skipped.append(index)
            else:
                shares.deactivate(index)
        return None
