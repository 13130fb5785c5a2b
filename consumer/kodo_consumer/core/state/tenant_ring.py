"""Tenants of a lane: a queue for each, served by deficit round robin in slot time. No I/O, no clock.

The unit is that of kodo_consumer.core.state.fairness. Every tenant that has work is served at once, and nobody
pays for having been idle.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import chain, islice
from typing import Final, Generic, TypeVar

from kodo_consumer.core.state.fairness import START_COST
from kodo_consumer.core.state.tenant_filter import TenantFilter
from kodo_consumer.core.state.tenant_queue import TenantQueue

T = TypeVar("T")
MAX_TENANTS: Final = 10_000
"""Tenants that are remembered one by one while they have no messages, for each lane."""
_LOOKS: Final = 16  # at tenants, for one that may be forgotten


class _Rounds(Generic[T]):
    """Rounds of turns: in each, a queue may start handlers until the slot time it used reaches its turn. One that used
    more comes again so many rounds later.
    """

    __slots__ = ("_later", "_next", "count", "current", "round")

    def __init__(self, first: int = 0) -> None:
        self.round = first
        self.count = 0  # queues listed
        self.current: deque[TenantQueue[T]] = deque()
        self._next: deque[TenantQueue[T]] = deque()
        self._later: dict[int, deque[TenantQueue[T]]] = {}

    def __iter__(self) -> Iterator[TenantQueue[T]]:
        return chain(self.current, self._next, *self._later.values())

    def add(self, queue: TenantQueue[T]) -> None:
        """Adds a queue behind all queues with a turn in the same round, which is the next one at the earliest."""
        self.count += 1
        if self.count == 1:
            self.round = max(self.round, queue.eligible)
            self.current.append(queue)
        else:
            self._put(queue, queue.eligible - self.round)

    def add_first(self, queue: TenantQueue[T]) -> None:
        """Puts a queue before all others, with a new turn: the rest of its last turn is void, and so are its debts."""
        queue.used = 0
        self.count += 1
        self.current.appendleft(queue)

    def remove(self, queue: TenantQueue[T]) -> None:
        """Takes the queue out, in whichever round its turn is."""
        self.count -= 1
        bucket = next(one for one in (self.current, self._next, *self._later.values()) if queue in one)
        bucket.remove(queue)
        if not bucket:
            self._later = {turn: one for turn, one in self._later.items() if one}
        self._advance()

    def end_turn(self) -> None:
        """Ends the turn of the first queue, which has a turn again in a later round."""
        queue = self.current[0]
        rounds, queue.used = divmod(queue.used, START_COST * queue.weight)
        if self.count == 1:
            self.round += 1
            queue.used = 0
        else:
            self._put(self.current.popleft(), rounds)
            self._advance()

    def unlist(self) -> None:
        """Takes out the first queue, which has no items left."""
        queue = self.current.popleft()
        self.count -= 1
        rounds = max(1, queue.used // (START_COST * queue.weight))
        queue.eligible, queue.used = self.round + rounds, 0
        self._advance()

    def charge(self, queue: TenantQueue[T], milliseconds: int) -> None:
        """Charges a queue `milliseconds` by which its handler ran longer than a start costs."""
        queue.used += milliseconds
        if not queue.listed:
            rounds, queue.used = divmod(queue.used, START_COST * queue.weight)
            queue.eligible = max(queue.eligible, self.round) + rounds

    def _put(self, queue: TenantQueue[T], rounds: int) -> None:
        if rounds <= 1:
            self._next.append(queue)
        else:
            self._later.setdefault(self.round + rounds, deque()).append(queue)

    def _advance(self) -> None:
        if self.current or not self.count:
            return
        later = self._later
        self.round += 1
        if not self._next and later:
            self.round = min(later)
            self.current = later.pop(self.round)
        else:
            self.current, self._next = self._next, self.current
        if self.round + 1 in later:
            self._next = later.pop(self.round + 1)


class DeficitRoundRobin(Generic[T]):
    """Queues of one lane, one for each tenant, served in turn: each turn is `weight` starts, or the slot time of as
    many (10 ms each). A tenant with 100,000 items delays others one turn a round. It iterates over the items, and its
    length is their number.

    Slow tenants, whose handlers take long, have turns of their own (`slow=True`), so that a search for a quick tenant
    does not pass all slow ones that may not start. Among them wait `newcomers`, tenants of whom the lane does not know
    whether they are slow and who may not start as quick ones. `newcomers_slow`: whether newcomers of the lane are slow,
    by the last ones that ended or ran for long, None: none has yet; `new_running`: running handlers of newcomers. The
    slot reservation sets both.
    """

    __slots__ = (
        "_forgotten", "_queues", "_size", "_turn", "new_running", "newcomers", "newcomers_slow", "quick", "slow",
    )  # fmt: skip

    def __init__(self) -> None:
        self._queues: dict[str, TenantQueue[T]] = {}
        self.quick: _Rounds[T] = _Rounds()
        self.slow: _Rounds[T] = _Rounds()
        self._size = 0
        self.newcomers: OrderedDict[TenantQueue[T], None] = OrderedDict()  # first come first
        self.newcomers_slow: bool | None = None
        self.new_running = 0
        self._forgotten = TenantFilter()  # tenants that were quick
        self._turn = 0  # of newcomers and slow tenants

    def __len__(self) -> int:
        return self._size

    def _every_queue(self) -> Iterator[TenantQueue[T]]:
        return chain(self.quick, self.slow, self.newcomers)

    def count(self, *, slow: bool) -> int:
        """Number of quick tenants with items, or (`slow`) of slow tenants and of newcomers that wait among them."""
        return self.slow.count + len(self.newcomers) if slow else self.quick.count

    def __iter__(self) -> Iterator[T]:
        for queue in self._every_queue():
            yield queue.first
            yield from queue.others or ()

    def queues(self) -> Iterator[tuple[str, int, T]]:
        """Yields (tenant, number of items, first item) of tenants with items. Another thread may write meanwhile: then
        numbers may be a little off, and a tenant may be missing.
        """
        for queue in list(self._queues.values()):
            with suppress(AttributeError):  # taken between two looks
                if queue.listed:
                    yield queue.tenant, len(queue), queue.first

    def waiting(self, passing_over: AbstractSet[str]) -> tuple[int, int]:
        """Returns (number of quick tenants with items, number of slow tenants and waiting newcomers with items),
        without those in `passing_over`.
        """
        counts = [self.quick.count, self.count(slow=True)]
        for tenant in passing_over:
            queue = self._queues.get(tenant)
            if queue is not None and queue.listed:
                counts[queue.in_slow] -= 1
        return counts[0], counts[1]

    def push(self, tenant: str, item: T, weight: int = 1, *, first: bool = False) -> TenantQueue[T]:
        """Adds an item after (`first`: before) the tenant's other items, and returns the tenant's queue. A tenant
        without items gets its turn last in the next round of its kind, quick or slow, or in a later round if it was
        charged for more; at once if no other tenant of its kind has items. A tenant of whom the lane does not know its
        kind counts as quick, or waits with the newcomers if `newcomers_slow`. `weight` counts only for a tenant that
        the ring does not know.
        """
        queues = self._queues
        queue = queues.get(tenant)
        if queue is None:
            queue = queues[tenant] = TenantQueue(tenant, weight)
            if len(queues) > MAX_TENANTS:
                if tenant in self._forgotten:
                    queue.slow = False
                _forget(queues, self._forgotten)
        else:
            queue.is_recent = True
        self._size += 1
        if not queue.listed:
            queue.first = item
            queue.listed = True
            if queue.slow is None and self.newcomers_slow:
                self._wait_as_newcomer(queue)
            elif not queue.slow and not queue.in_slow:
                self.quick.add(queue)
            else:
                self._list(queue, slow=bool(queue.slow))
            return queue
        others = queue.others
        if others is None:
            others = queue.others = deque()
        if first:
            others.appendleft(queue.first)
            queue.first = item
        else:
            others.append(item)
        return queue

    def clear(self) -> None:
        """Drops all items. The facts about the tenants stay."""
        for queue in list(self._every_queue()):
            queue.listed, queue.others = False, None
            del queue.first
        self.quick, self.slow, self._size = _Rounds(self.quick.round), _Rounds(self.slow.round), 0
        self.newcomers.clear()

    def reweigh(self, weights: Mapping[str, int]) -> None:
        """Sets the weights (starts in a turn) of all tenants that the ring knows, 1 for those that `weights` lacks."""
        for tenant, queue in self._queues.items():
            queue.weight = weights.get(tenant, 1)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yields (tenant, number of items) of tenants with items."""
        for queue in self._every_queue():
            yield queue.tenant, len(queue)

    def sample(self, tenant: str, count: int) -> list[T]:
        """Returns up to `count` items of a tenant, the latest first, without removing them; [] if the tenant has
        none.
        """
        queue = self._queues.get(tenant)
        if queue is None or not queue.listed:
            return []
        return list(islice(chain(reversed(queue.others or ()), (queue.first,)), count))

    def take_excess(self, tenant: str, keep: int) -> list[T]:
        """Removes and returns all of a tenant's items but the first `keep`, oldest first; [] if it has no more. `keep`
        must be at least 1.
        """
        queue = self._queues.get(tenant)
        others = queue.others if queue is not None else None
        if others is None:
            return []
        gone = [others.pop() for _ in range(len(others) + 1 - keep)]
        gone.reverse()
        self._size -= len(gone)
        return gone

    def take(
        self,
        passing_over: AbstractSet[str] = frozenset(),
        now: float = 0.0,
        *,
        slow: bool = False,
        may_start_newcomer: Callable[[DeficitRoundRobin[T], float], bool] | None = None,
    ) -> T | None:
        """Removes and returns the next item by turns, of the quick or of the slow tenants; None if no tenant has an
        item that may start.

        Args:
            passing_over: tenants that get no item now.
            now: monotonic seconds, which only `may_start_newcomer` uses.
            slow: take from the slow tenants, among whom waiting newcomers have every other turn, or each one if no slow
                tenant has items; else from the quick ones.
            may_start_newcomer: called with this ring and `now`: True if a newcomer may start as a quick tenant; None:
                it always may. A newcomer that may not start waits among the slow tenants from then on, as does a tenant
                that became slow after it got its items. But while `newcomers_slow` is None such a newcomer keeps its
                turn, and the result is None.
        """
        rounds = self.slow if slow else self.quick
        passed = self._set_aside(passing_over, rounds) if passing_over else []
        if slow and self.newcomers and (self._is_newcomers_turn() or not rounds.count):
            self._list_newcomer(passing_over)
        item = None
        while rounds.count:
            queue = rounds.current[0]
            if queue.used >= START_COST * queue.weight and rounds.count > 1:
                rounds.end_turn()
            elif (
                slow
                or queue.slow is False
                or (queue.slow is None and (may_start_newcomer is None or may_start_newcomer(self, now)))
            ):
                item = self._start(queue, rounds)
                break
            elif queue.slow is None and self.newcomers_slow is None:
                break  # no tenant of the lane is known yet: the first ones will tell
            else:
                rounds.remove(queue)
                self._wait_as_newcomer(queue)
        for queue in passed:
            rounds.add_first(queue)
        return item

    def _wait_as_newcomer(self, queue: TenantQueue[T]) -> None:
        queue.in_slow = True
        self.newcomers[queue] = None

    def _is_newcomers_turn(self) -> bool:
        """Newcomers have every other turn of the slow tenants."""
        self._turn = (self._turn + 1) % 4
        return self._turn % 2 == 0

    def _list_newcomer(self, passing_over: AbstractSet[str]) -> None:
        """Makes a newcomer the next slow tenant: the first and the last one in turn, as the first ones may hang. Those
        in `passing_over` stay newcomers.
        """
        for queue in reversed(self.newcomers) if self._turn == 0 else iter(self.newcomers):
            if queue.tenant not in passing_over:
                del self.newcomers[queue]
                self.slow.add_first(queue)
                return

    def readmit_newcomer(self) -> None:
        """Moves one waiting newcomer to the quick tenants (to the slow ones if it has proved slow meanwhile): the first
        newcomer, or the last one if slow tenants wait, because the first may hang. Raises KeyError if no newcomer
        waits.
        """
        queue, _ = self.newcomers.popitem(last=self.slow.count > 0)
        self._list(queue, slow=bool(queue.slow))

    def _set_aside(self, tenants: AbstractSet[str], rounds: _Rounds[T]) -> list[TenantQueue[T]]:
        found = [self._queues.get(tenant) for tenant in tenants]
        aside = [
            one
            for one in found
            if one is not None and one.listed and one.in_slow is (rounds is self.slow) and one not in self.newcomers
        ]
        for queue in aside:
            rounds.remove(queue)
        return aside

    def charge(self, queue: TenantQueue[T], milliseconds: int) -> None:
        """Charges a tenant `milliseconds` by which its handler ran longer than a start costs: it has turns later."""
        (self.slow if queue.in_slow else self.quick).charge(queue, milliseconds)

    def remember(self, queue: TenantQueue[T]) -> None:
        """Restores the queue of a tenant that was forgotten while its handler ran, so that facts about the tenant count
        later. No effect if the ring has a queue of the tenant, this one or a newer one.
        """
        queues = self._queues
        if queue.tenant in queues:
            return
        queues[queue.tenant] = queue
        if len(queues) > MAX_TENANTS:
            _forget(queues, self._forgotten)

    def on_recovery(self, queue: TenantQueue[T]) -> None:
        """Moves the items of a tenant that is no longer slow, or no longer a newcomer, to the quick tenants. No effect
        if it has no items, or they are there.
        """
        if queue.listed and queue.in_slow:
            if queue in self.newcomers:
                del self.newcomers[queue]
            else:
                self.slow.remove(queue)
            self._list(queue, slow=False)

    def _list(self, queue: TenantQueue[T], *, slow: bool) -> None:
        rounds = self.slow if slow else self.quick
        if slow is not queue.in_slow:
            queue.in_slow = slow
            queue.eligible = rounds.round
        rounds.add(queue)

    def _start(self, queue: TenantQueue[T], rounds: _Rounds[T]) -> T:
        item = queue.first
        self._size -= 1
        queue.used += START_COST
        if queue.others:
            queue.first = queue.others.popleft()
            if queue.used >= START_COST * queue.weight:
                rounds.end_turn()
            return item
        rounds.unlist()
        queue.listed = False
        del queue.first
        queue.others = None
        return item


def _forget(queues: dict[str, TenantQueue[T]], quick: TenantFilter) -> None:
    """Drops tenants that have had no messages for long and are not slow; adds those that were quick to the filter."""
    for look, (tenant, other) in enumerate(list(islice(queues.items(), _LOOKS)), 1):
        del queues[tenant]
        if other.listed or (look < _LOOKS and (other.is_recent or other.slow)):
            other.is_recent = False
            queues[tenant] = other  # behind all others
            continue
        if other.slow is False:
            quick.add(tenant)
        if len(queues) <= MAX_TENANTS:
            return
