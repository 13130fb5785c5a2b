"""Look-ahead budget: messages and bytes that a worker may have in flight (prefetch), and room for each lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.policy import LANE_FLOOR, Policy

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight, LaneState

_PARKED_SHARE: Final = 4  # a quarter of what may be held may be parked
_ENOUGH: Final = 2_000  # messages a lane looks ahead that has no tenants: more would only grow cold in memory


class LookaheadBudget:
    """Look-ahead budget: messages and bytes that a worker may have in flight. One budget for all lanes, with a floor of
    messages for each, and the rest for every lane that has work.

    The limit holds if each lane asks for its `capacity`, and then delivers one batch (`Policy.batch` messages and
    `Policy.batch_bytes` at most, or one larger message): messages in flight, batches under way and full receiver queues
    together never exceed the declared look-ahead. Bytes in flight and under way stay below the look-ahead's. The client
    counts receiver queues in messages, so their bytes can only be estimated: by the average size of in-flight messages,
    for lanes that have any, and as half of the budget at most, because otherwise large messages would leave nothing to
    work on.

    The look-ahead serves the fairness of tenants: without `fair_by`, a lane with 2,000 messages that may start gets no
    capacity until half of them are gone. Lanes whose messages cannot be moved to another lane never use more than half
    of the budget together: messages that were moved out of other lanes come back on them, and would otherwise stop the
    reading for which they had left.

    `messages` and `bytes` leave out parked messages (which no target takes): each takes one message from the shared
    part of the budget, and no bytes. Floors stay, so while the whole budget is in use, messages may exceed the
    look-ahead by those parked since.
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
        """Counts a message that is in flight now, and records it in its entry, and the entry in its lane."""
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
        """Removes a message that is acknowledged or released from the budget and from its entry; closes the entry
        (`LaneState.close`) if this was its last message in flight.
        """
        entry = in_flight.entry
        del entry.in_flight[in_flight.delivery.batch_index]
        if not entry.in_flight:
            in_flight.lane.close(entry)
        self._give_back(in_flight)

    def park(self, in_flight: InFlight) -> None:
        """Parks a message that nobody will ever handle: it stays in its entry, unacknowledged, and the budget shrinks
        by one message. Drops all its data (payload, properties, key and tenant too) but those that identify and
        acknowledge it, so the caller has to use them before. Its stage must be PUBLISHING (see `InFlight.enter`).
        """
        self._give_back(in_flight)
        in_flight.park()
        self.parked += 1
        self._max_messages -= 1

    @property
    def overgrown(self) -> bool:
        """True if parked messages are a quarter of the budget's messages or more: parked messages stay unacknowledged,
        and the broker limits unacknowledged messages.
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
        """Returns the part of the budget that `messages` messages of together `size` bytes would use, 1 for all of it:
        the larger one of their part of the messages and their part of the bytes. Messages in lanes that none can be
        moved out of do not count as budget.
        """
        left = max(1, self._max_messages - self._staying)
        return max(messages / left, size / max(1, self._max_bytes - self._staying_bytes))

    @property
    def is_low(self) -> bool:
        """True while less than half of the messages, and less than half of the bytes, of the budget are used. Bytes
        include an estimate of the receiver queues.
        """
        return 2 * self.messages < self._max_messages and 2 * self._bytes < self._max_bytes

    @property
    def _bytes(self) -> float:
        """Bytes in flight, and an estimate of those in receiver queues."""
        if not self.messages:
            return 0
        return self.bytes + min(self._queue * self._busy * self.bytes / self.messages, self._max_bytes / 2)

    def capacity(self, lane: LaneState) -> int:
        """Number of further messages that the lane may bring: the rest of its floor and the shared rest of the budget.
        0 for a lane without `fair_by` that has 2,000 queued. Once the bytes are used up (half of them, for lanes whose
        messages cannot be moved to another lane), 1 for a lane with nothing in flight, so that no lane stops, else 0.
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
        """True if a lane whose `capacity` was 0 should be read again: it has room for a batch, or for any message while
        it has at most half of its floor in flight. False while a lane without `fair_by` has more than 1,000 queued.
        """
        room = self.capacity(lane)
        if 2 * len(lane.ring) > self._enough:
            return False
        return room >= self._step or (room > 0 and 2 * lane.in_flight <= self._floor)
