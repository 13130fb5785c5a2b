"""Look-ahead budget: messages and bytes that a worker may have in flight (prefetch), and room for each lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.policy import LANE_FLOOR, Policy

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight, LaneState

_PARKED_SHARE: Final = 4  # a quarter of what may be held may be parked
_ENOUGH: Final = 2_000  # messages a lane looks ahead that has no tenants: more would only grow cold in memory


class LookaheadBudget:
    """Look-ahead budget: messages, and bytes of payload, that a worker may have in flight. One budget for all lanes,
    with a floor of messages for each, and the rest for every lane that has work.

    The limit holds if each lane asks for its `capacity`, and then delivers one batch (`Policy.batch` messages and
    `Policy.batch_bytes` at most): messages in flight, batches under way and receiver queues of `Policy.queue` messages
    together stay within the declared look-ahead, unless it is so small that one message for each of these is more.
    Bytes in flight and under way stay within it as well, except for a message that is larger than a batch may be. The
    client counts receiver queues in messages, so their bytes can only be estimated: by the average size of in-flight
    messages, for lanes that have any, and as half of the budget at most, because otherwise large messages would leave
    nothing to work on.

    The look-ahead serves the fairness of tenants: without `fair_by`, a lane with 2,000 queued messages gets no
    capacity, and is resumed when half of them are gone. If isolation can move messages out of some lanes only, the
    other lanes (`LaneState.cannot_evacuate`) get, beyond their floors, no more than half of the budget together:
    messages that were moved out come back on them, and would otherwise stop the reading for which they had left.

    `messages` and `bytes` leave out parked messages (which no target takes): each takes one message from the shared
    part of the budget, and no bytes. Floors stay, so messages in flight and parked ones together may exceed the limit
    by the number of the parked ones.
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
        (`LaneState.close`) if no other message of it is in flight or parked.
        """
        entry = in_flight.entry
        del entry.in_flight[in_flight.delivery.batch_index]
        if not entry.in_flight:
            in_flight.lane.close(entry)
        self._give_back(in_flight)

    def park(self, in_flight: InFlight) -> None:
        """Parks a message that no target takes, and that this worker will not handle: it stays in its entry,
        unacknowledged, and the budget shrinks by one message. Drops payload, properties, keys, tenant and headers
        (see `InFlight.park`), so the caller has to use them before. Its stage must be PUBLISHING.
        """
        self._give_back(in_flight)
        in_flight.park()
        self.parked += 1
        self._max_messages -= 1

    @property
    def overgrown(self) -> bool:
        """True if parked messages are a quarter of `Policy.max_held` or more: they stay unacknowledged, and the broker
        limits unacknowledged messages.
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
        the larger one of their part of the messages and their part of the bytes. The messages in flight in lanes that
        isolation cannot move them out of (`LaneState.cannot_evacuate`) are taken off the budget before.
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
        """Number of further messages that the lane may bring: the rest of its floor and the shared rest of the budget;
        a last batch may be larger. Without `fair_by` it is 0 for a lane with 2,000 queued. Once the bytes are used up,
        with an estimate of the receiver queues, it is 1 for a lane with nothing in flight, so that no lane stops, else
        0. Lanes with `LaneState.cannot_evacuate` share half of the messages, beyond their floors, and half of the bytes
        by the same rule.
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
        """True if a lane whose `capacity` was 0 should be read again: it has room for a batch (for a quarter of the
        budget, if that is less), or for any message while it has at most half of its floor in flight. False while a
        lane without `fair_by` has more than 1,000 queued.
        """
        room = self.capacity(lane)
        if 2 * len(lane.ring) > self._enough:
            return False
        return room >= self._step or (room > 0 and 2 * lane.in_flight <= self._floor)
