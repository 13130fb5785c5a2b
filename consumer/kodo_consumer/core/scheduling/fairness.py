"""Fair queueing: exact weights between lanes, deficit round robin between the tenants of a lane. No I/O, no clock.

Both serve at once every lane or tenant that has work: an unused share is not kept for later, and nobody pays for
having been idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import chain, islice
from math import lcm
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_MAX_IDLE_TENANTS: Final = 1_024
_BEHIND_ALL: Final = 1 << 256


class StartTimeFairQueue:
    """Start-time fair queueing with whole numbers: each lane's turns are evenly spaced tags, the lowest tag is next.

    A lane of weight w has its tags 1/w of a cycle apart, so any window of one cycle (the sum of the weights of the
    lanes that have work throughout) serves each of them exactly its weight. A lane that had no work starts again
    right after the present turn: it neither catches up nor waits. Lanes of weight 0 are served when no other has
    work.
    """

    __slots__ = ("_idle_class", "_is_active", "_keys", "_last", "_now", "_order", "_resting", "_steps", "_tags")

    def __init__(self, weights: Sequence[int], resting: AbstractSet[int] = frozenset()) -> None:
        cycle = 2 * lcm(*(weight for weight in weights if weight))  # twice: there is always a tag between two turns
        self._steps = [cycle // weight if weight else 1 for weight in weights]
        self._idle_class = [weight == 0 for weight in weights]
        self._tags = [0] * len(weights)
        self._now, self._last = 0, -1  # tag and lane of the present turn
        self._is_active = [False] * len(weights)
        self._order: list[int] = []  # lanes with work, the next one first
        self._keys: list[int] = []  # by which they stand so: class, tag and number of each as one whole number
        self._resting = resting  # lanes that get no turns

    def activate(self, lane: int) -> None:
        """The lane has work. Harmless when it already had."""
        if not self._is_active[lane] and lane not in self._resting:
            self._is_active[lane] = True
            self._tags[lane] = self._next_tag(lane)
            self._insert(lane)

    def requeue(self, lane: int) -> None:
        """The lane, which has work, could not use turns it had: they are gone."""
        self._remove(lane)
        self._tags[lane] = self._next_tag(lane)
        self._insert(lane)

    def deactivate(self, lane: int) -> None:
        """The lane has no work. Harmless when it had none."""
        if self._is_active[lane]:
            self._is_active[lane] = False
            self._remove(lane)

    def order(self) -> Sequence[int]:
        """Lanes with work, the one whose turn it is first."""
        return tuple(self._order)

    def charge(self, lane: int) -> None:
        """The lane had its turn."""
        order, keys, step = self._order, self._keys, self._steps[lane]
        if not self._idle_class[lane]:
            self._now, self._last = self._tags[lane], lane
        self._tags[lane] += step
        place = 0 if order[0] == lane else order.index(lane)
        key = keys.pop(place) + step * len(self._tags)
        del order[place]
        place = bisect_left(keys, key)
        order.insert(place, lane)
        keys.insert(place, key)

    def _next_tag(self, lane: int) -> int:
        return max(self._tags[lane], self._now + (lane <= self._last))

    def _remove(self, lane: int) -> None:
        place = self._order.index(lane)
        del self._order[place], self._keys[place]

    def _insert(self, lane: int) -> None:
        key = self._tags[lane] * len(self._tags) + lane + (_BEHIND_ALL if self._idle_class[lane] else 0)
        place = bisect_left(self._keys, key)
        self._order.insert(place, lane)
        self._keys.insert(place, key)


class _Queue(Generic[T]):
    """One tenant's items, while `listed` in the ring: the first, and others behind it if there are any. With many
    tenants most have just one, and a deque of its own for each would cost more than all the rest.
    """

    __slots__ = ("deficit", "first", "listed", "others", "tenant", "weight")

    first: T  # while listed

    def __init__(self, tenant: str, weight: int) -> None:
        self.tenant = tenant
        self.weight = weight
        self.deficit = 0
        self.listed = False
        self.others: deque[T] | None = None

    def __len__(self) -> int:
        return self.listed + len(self.others or ())


class DeficitRoundRobin(Generic[T]):
    """A queue for each tenant, served in turn: `weight` items a turn.
    A tenant with 100,000 items delays others one turn.
    """

    __slots__ = ("_queues", "_ring", "_size")

    def __init__(self) -> None:
        self._queues: dict[str, _Queue[T]] = {}
        self._ring: deque[_Queue[T]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return (item for queue in self._ring for item in (queue.first, *(queue.others or ())))

    def queues(self) -> Iterator[tuple[str, int, T]]:
        """(tenant, items, first item) of tenants with any. May be read while others write: one item more or less."""
        for queue in list(self._queues.values()):
            with suppress(AttributeError):  # taken between two looks
                if queue.listed:
                    yield queue.tenant, len(queue), queue.first

    def push(self, tenant: str, item: T, weight: int = 1, *, first: bool = False) -> None:
        """Behind (or `first`: before) the tenant's other items. A tenant new to the ring comes after all others."""
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = _Queue(tenant, weight)
        self._size += 1
        if not queue.listed:
            queue.first = item
            queue.listed = True
            self._ring.append(queue)
            return
        others = queue.others
        if others is None:
            others = queue.others = deque()
        if first:
            others.appendleft(queue.first)
            queue.first = item
        else:
            others.append(item)

    def reweigh(self, weights: Mapping[str, int]) -> None:
        """Turns of the tenants from now on; those that are not named have one."""
        for tenant, queue in self._queues.items():
            queue.weight = weights.get(tenant, 1)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Tenants with items and how many each has."""
        return ((queue.tenant, len(queue)) for queue in self._ring)

    def sample(self, tenant: str, count: int) -> list[T]:
        """Up to so many of a tenant's items, the latest first."""
        queue = self._queues.get(tenant)
        if queue is None or not queue.listed:
            return []
        return list(islice(chain(reversed(queue.others or ()), (queue.first,)), count))

    def take_excess(self, tenant: str, keep: int) -> list[T]:
        """Takes out all of a tenant's items but the first `keep` (at least 1), oldest first."""
        queue = self._queues.get(tenant)
        others = queue.others if queue is not None else None
        if others is None:
            return []
        gone = [others.pop() for _ in range(len(others) + 1 - keep)]
        gone.reverse()
        self._size -= len(gone)
        return gone

    def take(self, passing_over: AbstractSet[str] = frozenset()) -> T | None:
        """The next item by turns, not of the tenants passed over; None when nobody else has any."""
        ring = self._ring
        if not ring:
            return None
        queue = ring[0]
        if passing_over and queue.tenant in passing_over:
            for _ in range(len(ring)):
                queue.deficit = 0
                ring.rotate(-1)
                queue = ring[0]
                if queue.tenant not in passing_over:
                    break
            else:
                return None
        if queue.deficit < 1:
            queue.deficit = queue.weight
        queue.deficit -= 1
        item = queue.first
        self._size -= 1
        if queue.others:
            queue.first = queue.others.popleft()
            if queue.deficit < 1:
                ring.rotate(-1)
        else:
            self._unlist(queue)
        return item

    def _unlist(self, queue: _Queue[T]) -> None:
        self._ring.popleft()
        queue.listed = False
        del queue.first
        queue.others = None
        queue.deficit = 0
        if len(self._queues) > _MAX_IDLE_TENANTS:
            del self._queues[queue.tenant]
