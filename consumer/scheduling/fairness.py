"""Who is next: exact weights between lanes, deficit round robin between the tenants of a lane. No I/O, no clock.

Both serve at once whoever has work: nobody's unused share is kept for later, and nobody pays for having been idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from math import lcm
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_MAX_IDLE_TENANTS: Final = 1_024
_BEHIND_ALL: Final = 1 << 256


class LaneShares:
    """Start-time fair queueing with whole numbers: each lane's turns are evenly spaced tags, the lowest tag is next.

    A lane of weight w has its tags 1/w of a cycle apart, so any window of one cycle (the sum of the weights of the lanes
    that have work throughout) serves each of them exactly its weight. A lane that had no work starts again right after the
    present turn: it neither catches up nor waits. Lanes of weight 0 are served when no other has work.
    """

    __slots__ = ("_active", "_idle_class", "_keys", "_last", "_now", "_resting", "_steps", "_tags")

    def __init__(self, weights: Sequence[int], resting: AbstractSet[int] = frozenset()) -> None:
        cycle = 2 * lcm(*(weight for weight in weights if weight))  # twice: there is always a tag between two turns
        self._steps = [cycle // weight if weight else 1 for weight in weights]
        self._idle_class = [weight == 0 for weight in weights]
        self._tags = [0] * len(weights)
        self._now, self._last = 0, -1  # tag and lane of the present turn
        self._keys = [0] * len(weights)  # by which the next is found: class, tag and number as one whole number
        self._active: list[int] = []
        self._resting = resting  # lanes that get no turns

    def activate(self, lane: int) -> None:
        """The lane has work. Harmless when it already had."""
        if lane not in self._active and lane not in self._resting:
            self._active.append(lane)
            self.rejoin(lane)

    def rejoin(self, lane: int) -> None:
        """The lane could not use turns it had: they are gone."""
        self._set(lane, max(self._tags[lane], self._now + (lane <= self._last)))

    def deactivate(self, lane: int) -> None:
        """The lane has no work. Harmless when it had none."""
        if lane in self._active:
            self._active.remove(lane)

    def order(self) -> Sequence[int]:
        """Lanes with work, the one whose turn it is first."""
        active = self._active
        if len(active) > 1:
            active.sort(key=self._keys.__getitem__)  # all but one stand where they stood
        return tuple(active)

    def charge(self, lane: int) -> None:
        """The lane had its turn."""
        if not self._idle_class[lane]:
            self._now, self._last = self._tags[lane], lane
        self._set(lane, self._tags[lane] + self._steps[lane])

    def _set(self, lane: int, tag: int) -> None:
        self._tags[lane] = tag
        self._keys[lane] = tag * len(self._tags) + lane + (_BEHIND_ALL if self._idle_class[lane] else 0)


class _Queue(Generic[T]):
    __slots__ = ("deficit", "items", "listed", "tenant", "weight")

    def __init__(self, tenant: str, weight: int) -> None:
        self.tenant = tenant
        self.weight = weight
        self.deficit = 0
        self.listed = False
        self.items: deque[T] = deque()


class TenantRing(Generic[T]):
    """A queue for each tenant, served in turn: `weight` items a turn. A tenant with 100,000 items delays others one turn."""

    __slots__ = ("_queues", "_ring", "_size")

    def __init__(self) -> None:
        self._queues: dict[str, _Queue[T]] = {}
        self._ring: deque[_Queue[T]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return (item for queue in self._ring for item in queue.items)

    def queues(self) -> Iterator[tuple[str, int, T]]:
        """(tenant, items, first item) of tenants with any. May be read while others write: one item more or less."""
        for queue in list(self._queues.values()):
            items = queue.items
            with suppress(IndexError):  # taken between two looks
                yield queue.tenant, len(items), items[0]

    def push(self, tenant: str, item: T, weight: int = 1, *, first: bool = False) -> None:
        """Behind (or `first`: before) the tenant's other items. A tenant new to the ring comes after all others."""
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = _Queue(tenant, weight)
        if first:
            queue.items.appendleft(item)
        else:
            queue.items.append(item)
        self._size += 1
        if not queue.listed:
            queue.listed = True
            self._ring.append(queue)

    def reweigh(self, weights: Mapping[str, int]) -> None:
        """Turns of the tenants from now on; those that are not named have one."""
        for tenant, queue in self._queues.items():
            queue.weight = weights.get(tenant, 1)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Tenants with items and how many each has."""
        return ((queue.tenant, len(queue.items)) for queue in self._ring)

    def newest(self, tenant: str, count: int) -> list[T]:
        """Up to so many of a tenant's items, the latest first."""
        queue = self._queues.get(tenant)
        return [] if queue is None else list(islice(reversed(queue.items), count))

    def cut(self, tenant: str, keep: int) -> list[T]:
        """Takes out all of a tenant's items but the first `keep` (at least 1), oldest first."""
        queue = self._queues.get(tenant)
        if queue is None:
            return []
        items = queue.items
        gone = [items.pop() for _ in range(len(items) - keep)]
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
        item = queue.items.popleft()
        self._size -= 1
        if not queue.items:
            self._unlist(queue)
        elif queue.deficit < 1:
            ring.rotate(-1)
        return item

    def _unlist(self, queue: _Queue[T]) -> None:
        self._ring.popleft()
        queue.listed = False
        queue.deficit = 0
        if len(self._queues) > _MAX_IDLE_TENANTS:
            del self._queues[queue.tenant]
