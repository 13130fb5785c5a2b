"""Fair queueing of lanes in slot time. No I/O, no clock.

The unit is a millisecond of one handler slot. A start costs `START_COST`; the rest of a longer run is charged while it
lasts and at its end. Every lane that has work is served at once: an unused share is not kept for later, and nobody pays
for having been idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import lcm
from typing import Final

START_COST: Final = 10
"""Milliseconds of slot time that a start costs at least: below it, the worker's own work outweighs the handler's."""
_BEHIND_ALL: Final = 1 << 256


class StartTimeFairQueue:
    """Start-time fair queueing with whole numbers: each lane (an index of `weights`) has a tag, and the lane with the
    lowest tag has the next turn.

    A start moves the tag of a lane by a fixed step divided by the lane's weight; further slot time moves it on. While
    the same lanes have messages that may start, and handlers take 10 ms at most, each of these lanes gets exactly as
    many starts as its weight in any window of as many starts as the sum of these weights; where handlers run for
    longer, the lanes have slot time in proportion to their weights. A lane that had no work starts again right after
    the present turn: it neither catches up nor waits, unless it was charged for more. Lanes of weight 0 come after all
    others. Lanes in `resting` get no turns. `waiting`: the lanes in the queue, the next one first; callers must not
    change it.
    """

    __slots__ = ("_idle_class", "_is_active", "_keys", "_last", "_now", "_resting", "_steps", "_tags", "waiting")

    def __init__(self, weights: Sequence[int], resting: AbstractSet[int] = frozenset()) -> None:
        cycle = (
            2 * START_COST * lcm(*(weight for weight in weights if weight))
        )  # twice: there is always a tag between two turns
        self._steps = [cycle // (START_COST * weight) if weight else 1 for weight in weights]  # for a millisecond
        self._idle_class = [weight == 0 for weight in weights]
        self._tags = [0] * len(weights)
        self._now, self._last = 0, -1  # tag and lane of the present turn
        self._is_active = [False] * len(weights)
        self.waiting: list[int] = []
        self._keys: list[int] = []  # by which they stand so: class, tag and number of each as one whole number
        self._resting = resting  # lanes that get no turns

    def activate(self, lane: int) -> None:
        """Adds a lane that has work now, with a turn right after the present one, or later if it was charged for more.
        No effect if the lane is in the queue already, or is one of the resting lanes, which get no turns.
        """
        if not self._is_active[lane] and lane not in self._resting:
            self._is_active[lane] = True
            self._tags[lane] = self._next_tag(lane)
            self._insert(lane)

    def requeue(self, lane: int) -> None:
        """Moves a lane of the queue that could not use its turn, because none of its messages may start, to right after
        the present turn; its unused turns are void. A lane whose turn is later keeps it. Raises ValueError if the lane
        is not in the queue.
        """
        self._remove(lane)
        self._tags[lane] = self._next_tag(lane)
        self._insert(lane)

    def deactivate(self, lane: int) -> None:
        """Removes a lane that has no work. No effect if the lane is not in the queue."""
        if self._is_active[lane]:
            self._is_active[lane] = False
            self._remove(lane)

    def order(self) -> Sequence[int]:
        """Indices of the lanes in the queue, in the order of their turns."""
        return tuple(self.waiting)

    def charge(self, lane: int) -> None:
        """Charges a lane the cost of a start (`START_COST`, 10 ms of slot time): this is the present turn (unless the
        weight is 0), and the lane's next turn comes later. The lane must be in the queue.
        """
        order, keys, step = self.waiting, self._keys, START_COST * self._steps[lane]
        if not self._idle_class[lane]:
            self._now, self._last = self._tags[lane], lane
        self._tags[lane] += step
        place = 0 if order[0] == lane else order.index(lane)
        key = keys.pop(place) + step * len(self._tags)
        del order[place]
        place = bisect_left(keys, key)
        order.insert(place, lane)
        keys.insert(place, key)

    def charge_time(self, lane: int, milliseconds: int) -> None:
        """Charges a lane, with work or without, `milliseconds` more of a running handler, beyond the cost of its start
        and earlier charges: its next turn comes later. The present turn moves up to the first waiting lane (to this
        lane if none waits), so that lanes that get work later gain no extra turns by the charge.
        """
        self._tags[lane] += milliseconds * self._steps[lane]
        if self._is_active[lane]:
            self._remove(lane)
            self._insert(lane)
        first = self.waiting[0] if self.waiting else lane
        if not self._idle_class[first] and self._tags[first] > self._now:
            self._now, self._last = self._tags[first], -1

    def _next_tag(self, lane: int) -> int:
        return max(self._tags[lane], self._now + (lane <= self._last))

    def _remove(self, lane: int) -> None:
        place = self.waiting.index(lane)
        del self.waiting[place], self._keys[place]

    def _insert(self, lane: int) -> None:
        key = self._tags[lane] * len(self._tags) + lane + (_BEHIND_ALL if self._idle_class[lane] else 0)
        place = bisect_left(self._keys, key)
        self.waiting.insert(place, lane)
        self._keys.insert(place, key)
