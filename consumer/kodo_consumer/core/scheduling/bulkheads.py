"""Bulkheads: how many handler slots of a worker the lanes of a state or level may take, and how many are kept for them.
No I/O, no clock.

The law, for a worker with `total` slots:
- of the lanes of a bulkhead at most `most` messages run at once;
- `least` slots are for the lanes of a bulkhead alone, and others never take them: while fewer than `least` of its
  messages run, one more may start at once. A run takes a slot of one bulkhead, where its lane is in several that keep
  some.

Where there are fewer slots than declared (adaptive concurrency), a maximum leaves at least one slot to others while
there are two, and minimums that would take every slot shrink in proportion until one is left for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kodo_consumer.core.values.lane_set import Bulkhead
    from kodo_consumer.core.values.policy import Lane


class BulkheadSlots:
    """State of one bulkhead: the handler slots that its lanes may take at most, and those that are kept for them.
    `running`: number of its lanes' handlers at work; `most`: maximum of these, None: any number; `kept`: slots kept for
    its lanes now; `used`: number of kept slots in use, `users`: the same by index of the lane.
    """

    __slots__ = ("declared", "kept", "most", "running", "used", "users")

    def __init__(self, declared: Bulkhead, lanes: Sequence[int]) -> None:
        self.declared = declared
        self.most: int | None = None
        self.running = self.used = self.kept = 0
        self.users = dict.fromkeys(lanes, 0)

    def reset(self, most: int | None, kept: int) -> None:
        """Sets the bounds, and the counts of handlers to 0."""
        self.most, self.kept = most, kept
        self.running = self.used = 0
        self.users = dict.fromkeys(self.users, 0)


class Bulkheads:
    """Handler slots of one worker, divided by its bulkheads. Lanes are named by their index. `groups`: state of each
    bulkhead that has a lane here.
    """

    __slots__ = ("_by_lane", "_common", "_common_users", "_declared", "_refused", "_running", "_total", "groups")

    def __init__(self, bulkheads: Sequence[Bulkhead], lanes: Sequence[Lane], total: int) -> None:
        self._total = self._declared = total
        self._refused = False
        self.apply(bulkheads, lanes, [0] * len(lanes))

    def apply(self, bulkheads: Sequence[Bulkhead], lanes: Sequence[Lane], running: Sequence[int]) -> None:
        """Replaces the bulkheads of the same lanes; handlers that run, `running` of each lane, keep their slots. A
        bulkhead without a lane here keeps nothing. If `groups` is empty, callers need neither ask nor count.
        """
        self._running = list(running)
        chosen = [(one, [lane.index for lane in lanes if one.lanes.has(lane.level, lane.state)]) for one in bulkheads]
        self.groups = [BulkheadSlots(one, indices) for one, indices in chosen if indices]
        self._by_lane = [[group for group in self.groups if lane in group.users] for lane in range(len(self._running))]
        self._settle()

    def resize(self, total: int) -> None:
        """Sets the number of slots to `total`, and shares them out anew."""
        if total != self._total:
            self._total = total
            self._settle()

    def has_slot(self, lane: int) -> bool:
        """True if bulkheads allow a message of this lane to take a slot now."""
        keeps = False
        for group in self._by_lane[lane]:
            if group.most is not None and group.running >= group.most:
                return False
            keeps = keeps or group.used < group.kept
        return keeps or self._common > 0

    def may_start(self, lane: int) -> bool:
        """Returns `has_slot`. A refusal is noted for `on_end`."""
        if self.has_slot(lane):
            return True
        self._refused = True
        return False

    def keeps(self, lane: int) -> bool:
        """True if a slot is free that is kept for this lane."""
        return any(group.used < group.kept for group in self._by_lane[lane])

    def on_start(self, lane: int) -> None:
        """Counts a slot that a message of this lane has taken."""
        self._running[lane] += 1
        self._seat(lane)

    def on_end(self, lane: int) -> bool:
        """Frees a slot of this lane. Returns True if `may_start` has refused a lane since the last end: callers ask
        again, because it might start now.
        """
        self._running[lane] -= 1
        for group in self._by_lane[lane]:
            group.running -= 1
        if self._common_users[lane]:
            self._common_users[lane] -= 1
            self._common += 1
        else:
            self._vacate(lane)
        refused, self._refused = self._refused, False
        return refused

    def _seat(self, lane: int) -> None:
        """Takes a slot that is kept for the lane, if one is free, or a common slot."""
        groups = self._by_lane[lane]
        for group in groups:
            group.running += 1
        seat = next((group for group in groups if group.used < group.kept), None)
        if seat is None:
            self._common_users[lane] += 1
            self._common -= 1
        else:
            seat.used += 1
            seat.users[lane] += 1

    def _vacate(self, lane: int) -> None:
        """Frees a kept slot of the lane; a message in a common slot, for which the kept one is as well, takes it over."""
        group = next(group for group in self._by_lane[lane] if group.users[lane])
        group.users[lane] -= 1
        other = next((one for one in group.users if self._common_users[one]), None)
        if other is None:
            group.used -= 1
        else:
            self._common_users[other] -= 1
            self._common += 1
            group.users[other] += 1

    def _settle(self) -> None:
        """Computes all slots anew from the running handlers: lanes of few bulkheads first, as others have a choice."""
        total, fewer = self._total, self._total < self._declared
        least = sum(group.declared.least for group in self.groups)
        shrinks = least > total - fewer
        for group in self.groups:
            most, kept = group.declared.most, group.declared.least
            if fewer and most is not None:
                most = max(1, min(most, total - 1))
            group.reset(most, kept * (total - 1) // least if shrinks else kept)
        self._common = total - sum(group.kept for group in self.groups)
        self._common_users = [0] * len(self._running)
        for lane in sorted(range(len(self._running)), key=lambda lane: len(self._by_lane[lane])):
            for _ in range(self._running[lane]):
                self._seat(lane)
