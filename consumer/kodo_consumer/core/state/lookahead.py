"""Look-ahead budget: how many messages and bytes a worker may have in flight (prefetch), and when a lane may bring more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.policy import LANE_FLOOR, Policy

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight, LaneState

_PARKED_SHARE: Final = 4  # a quarter of what may be held may be parked
_ENOUGH: Final = 2_000  # messages a lane looks ahead that has no tenants: more would only grow cold in memory


class LookaheadBudget:
    """Look-ahead budget: one for all lanes, with a floor for each and the rest for every lane that has work.

    The law, for what every lane may bring after it asked for room (one batch, at most `batch` messages and
    `batch_bytes`, or one larger message): messages in flight, batches on their way and full receiver queues together
    never exceed the look-ahead. Bytes: those in flight and on their way stay below it. Receiver queues are counted in
    messages by the client, so their bytes can only be estimated: by the average size of in-flight messages, for lanes
    that have any, and as half of the budget at most, for else large messages would leave nothing to work on.

    Looking ahead is for tenants: where there is nobody to be fair to, a lane that has enough to start rests until
    half is gone. Lanes whose messages cannot be moved aside never take more than half of the budget together: what
    was moved aside comes back on them, and would otherwise stop the reading that it left for.

    Parked messages are not among `messages` and `bytes`: each takes one from what may be lent, and nothing else.
    Floors stay, so while everything is lent, messages may be more than the look-ahead by those that were parked
    since.
    """

    __slots__ = (
        "_busy", "_enough", "_floor", "_max_bytes", "_max_messages", "_most_parked", "_queue", "_staying",
        "_staying_bytes", "_step", "_taken", "bytes", "lanes_without_capacity", "messages", "parked",
    )  # fmt: skip

    def __init__(self, policy: Policy) -> None:
        lanes = max(1, len(policy.lanes))
        self._max_messages = policy.max_held
        self._max_bytes = policy.max_held_bytes
        self._floor = max(1, min(LANE_FLOOR, policy.max_held // (4 * lanes)))
        self._step = max(1, min(policy.batch, policy.max_held // 4))
        self._queue = policy.queue
        self._enough = float("inf") if policy.fair_by else _ENOUGH
        self._taken = self._floor * lanes  # by each lane what it holds, or else its floor, which is kept for it
        self._busy = 0  # lanes that hold anything
        self._staying = 0  # messages of lanes that none can be moved aside from
        self._staying_bytes = 0
        self._most_parked = max(1, policy.max_held // _PARKED_SHARE)
        self.lanes_without_capacity: dict[LaneState, None] = {}  # that were given no room, in the order they asked
        self.parked = 0
        self.messages = 0
        self.bytes = 0

    def add(self, in_flight: InFlight) -> None:
        """A message more."""
        lane, entry = in_flight.lane, in_flight.entry
        if not entry.in_flight:
            lane.active_entries[entry.key] = entry
        entry.in_flight[in_flight.delivery.batch_index] = in_flight
        if lane.in_flight >= self._floor:
            self._taken += 1
        elif not lane.in_flight:
            self._busy += 1
        if lane.cannot_evacuate:
            self._staying += 1
            self._staying_bytes += in_flight.size
        lane.in_flight += 1
        self.messages += 1
        self.bytes += in_flight.size

    def remove(self, in_flight: InFlight) -> None:
        """A message less."""
        entry = in_flight.entry
        del entry.in_flight[in_flight.delivery.batch_index]
        if not entry.in_flight:
            in_flight.lane.close(entry)
        self._give_back(in_flight)

    def park(self, in_flight: InFlight) -> None:
        """Nobody will ever handle the message: it is known, and no more than one message of what is lent."""
        self._give_back(in_flight)
        in_flight.park()
        self.parked += 1
        self._max_messages -= 1

    @property
    def overgrown(self) -> bool:
        """True if as many messages are parked as may be: each is unacknowledged, which the broker
        allows a consumer so often.
        """
        return self.parked >= self._most_parked

    def _give_back(self, in_flight: InFlight) -> None:
        lane = in_flight.lane
        lane.in_flight -= 1
        if lane.in_flight >= self._floor:
            self._taken -= 1
        elif not lane.in_flight:
            self._busy -= 1
        if lane.cannot_evacuate:
            self._staying -= 1
            self._staying_bytes -= in_flight.size
        self.messages -= 1
        self.bytes -= in_flight.size

    def fraction(self, messages: int, size: int) -> float:
        """So many messages and bytes as a part of the budget that is left to lanes whose messages can
        be moved aside.
        """
        left = max(1, self._max_messages - self._staying)
        return max(messages / left, size / max(1, self._max_bytes - self._staying_bytes))

    @property
    def is_low(self) -> bool:
        """True while less than half of the budget is used."""
        return 2 * self.messages < self._max_messages and 2 * self._bytes < self._max_bytes

    @property
    def _bytes(self) -> float:
        """Bytes held, and those that receiver queues are estimated to hold."""
        if not self.messages:
            return 0
        return self.bytes + min(self._queue * self._busy * self.bytes / self.messages, self._max_bytes / 2)

    def capacity(self, lane: LaneState) -> int:
        """Number of further messages that the lane may bring.
        Beyond the bytes, one at a time into an empty lane: it must get on.
        """
        if self._bytes >= self._max_bytes:
            return 0 if lane.in_flight else 1
        if len(lane.ring) >= self._enough:
            return 0
        lent = self._max_messages - self._taken
        if lane.cannot_evacuate:
            if 2 * self._staying_bytes >= self._max_bytes:
                return 0 if lane.in_flight else 1
            lent = min(lent, self._max_messages // 2 - self._staying)
        return max(self._floor - lane.in_flight, 0) + max(lent, 0)

    def should_resume(self, lane: LaneState) -> bool:
        """True if a lane that waits should go on: room for a batch, or the lane is running dry.
        A few at a time cost much.
        """
        room = self.capacity(lane)
        if 2 * len(lane.ring) > self._enough:
            return False
        return room >= self._step or (room > 0 and 2 * lane.in_flight <= self._floor)
