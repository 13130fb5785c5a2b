"""Moves of queued messages: when a tenant gets another level, its messages that a worker has in memory and has not
started go there as well. No I/O, the clock is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kodo_consumer.core.checks.level_choice import choose_level
from kodo_consumer.core.engine.tenant_isolation import IN_FLIGHT
from kodo_consumer.core.state.in_flight import InFlight, LaneState, Stage
from kodo_consumer.core.values.outcomes import Routed

if TYPE_CHECKING:
    from kodo_consumer.core.engine.message_flow import MessageFlow
    from kodo_consumer.core.scheduling.scheduler import Scheduler
    from kodo_consumer.core.values.policy import Policy

_WAITS_FOR_TURN = frozenset({Stage.QUEUED, Stage.LIMITED})


class QueuedMoves:
    """Messages in queues or at limits that have to leave for another level, because moves of tenants or exclusive
    levels have changed; few are published at a time, so that other moves do not queue behind them. Its length is the
    number of those that wait to be published.
    """

    def __init__(self, lanes: Sequence[LaneState], flow: MessageFlow, scheduler: Scheduler) -> None:
        self._lanes, self._flow, self._scheduler = lanes, flow, scheduler
        self._leaving: deque[tuple[InFlight, Routed]] = deque()

    def __len__(self) -> int:
        return sum(1 for in_flight, _ in self._leaving if in_flight.stage is Stage.EVACUATING)

    def begin(self, policy: Policy, before: Policy, wall: int, now: float) -> None:
        """Takes messages that belong on another level by the new `policy`, which must be in force, out of queues and
        limits, and begins to publish them there. No effect if moves and exclusive levels are as `before`. `wall`: ms
        since the epoch; `now`: monotonic seconds.
        """
        if (policy.moves, policy.exclusive_levels) == (before.moves, before.exclusive_levels):
            return
        for lane in self._lanes:
            routed = [
                (in_flight, route)
                for in_flight in lane
                if in_flight.stage in _WAITS_FOR_TURN
                and isinstance(route := choose_level(in_flight, policy, wall), Routed)
            ]
            self._take_out(lane, routed)
        self.publish_pending(now)

    def _take_out(self, lane: LaneState, routed: list[tuple[InFlight, Routed]]) -> None:
        for in_flight, _ in routed:
            in_flight.give_back()
            in_flight.enter(Stage.EVACUATING)
        self._scheduler.drop_waiters(in_flight for in_flight, _ in routed)
        if routed:
            self._scheduler.queues.drop(lane)
            self._leaving.extend(routed)

    def publish_pending(self, now: float) -> None:
        """Publishes messages that were taken out, while fewer than `IN_FLIGHT` (4,000) messages have no receipt."""
        while self._leaving and self._flow.publishes.waiting < IN_FLIGHT:
            in_flight, route = self._leaving.popleft()
            if in_flight.stage is Stage.EVACUATING:  # else it was released
                self._flow.apply_decision(in_flight, route, now)
