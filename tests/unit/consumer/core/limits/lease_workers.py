"""Several workers that share one limit through one account, in virtual time: answers take a while, clocks differ, some die."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

from kodo_consumer.core.limits.lease_allocator import LimitAccount
from kodo_consumer.core.limits.lease_client import NEVER, LeasedLimiter
from kodo_consumer.core.limits.limiter_set import LimiterSet
from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest
from kodo_consumer.core.values.limit_policy import Limit

_BREATH = 0.01


class World:
    """Time, what happens at which moment, and the store's accounts."""

    def __init__(self, limit: Limit, workers: int, seed: int = 0, delay: float = 0.005) -> None:
        self.now = 0.0
        self.rng, self.delay = Random(seed), delay
        self.passed: list[float] = []
        self.accounts: dict[str, LimitAccount] = {}
        self.clock = 1_000_000.0  # what the store's clock shows at the start
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.workers = [Borrowing(self, limit, number, workers) for number in range(workers)]

    def at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), event))

    def trip(self) -> float:
        return self.rng.uniform(0.2, 1.0) * self.delay

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def grant(self, run: str, requests: list[LeaseRequest]) -> list[LeaseGrant]:
        """As a store does: accounts go through their text."""
        grants = []
        for request in requests:
            account = LimitAccount.from_json(
                self.accounts[request.name].to_json() if request.name in self.accounts else ""
            )
            grants.append(account.grant(run, request, self.clock + self.now))
            self.accounts[request.name] = account
        return grants


class Borrowing:
    """One worker with one limiter. Its clock shows something else than anybody's."""

    def __init__(self, world: World, limit: Limit, number: int, workers: int) -> None:
        self.world, self.run = world, f"w{number}"
        self.skew = world.rng.uniform(-1e5, 1e5)
        self.limits = LimiterSet((limit,), workers)
        self.leases = self.limits.use_leases(self.ring)
        (limiter,) = self.limits.limiters_of({}, "")
        assert isinstance(limiter, LeasedLimiter)
        self.limiter = limiter
        self.queue: deque[float] = deque()  # how long each handler will take
        self.running = 0
        self.alive = True
        self.started = 0
        self._asking = self._rung = False
        self._set = NEVER

    def now(self) -> float:
        return self.world.now + self.skew

    def give(self, messages: int, takes: float = 0.0) -> None:
        self.queue.extend([takes] * messages)
        self.look()

    def look(self) -> None:
        """Starts what may start, and comes again when the limiter says so."""
        limiter, now = self.limiter, self.now()
        if not self.alive:
            return
        limiter.waiters = self.queue
        while self.queue and limiter.free(now):
            takes = self.queue.popleft()
            assert self.limits.start((limiter,), now, quota_taken=False) is None
            self.started += 1
            self.running += 1
            self.world.passed.append(self.world.now)
            self.world.at(self.world.now + takes, self._finish)
        if self.queue:
            limiter.on_wait(now)
            if (free := limiter.free_at(now)) < NEVER and free != self._set:
                self._set = free
                self.world.at(max(free - self.skew, self.world.now) + 0.001, self._woken)

    def _woken(self) -> None:
        self._set = NEVER
        self.look()

    def _finish(self) -> None:
        self.running -= 1
        if self.alive:
            self.limiter.finish()
            self.look()

    def ring(self) -> None:
        if not self._asking:
            self._asking = True
            self.world.at(self.world.now, self._ask)
        else:
            self._rung = True

    def _ask(self) -> None:
        if not self.alive:
            return
        self._asking, self._rung = True, False
        asked = self.now()
        requests = self.leases.collect(asked)
        if not requests:
            self._rest()
            return

        def at_store() -> None:
            grants = self.world.grant(self.run, requests)
            self.world.at(self.world.now + self.world.trip(), lambda: arrive(grants))

        def arrive(grants: list[LeaseGrant]) -> None:
            if self.alive:
                self.leases.accept(grants, asked, self.now())
                self.look()
                self._rest()

        self.world.at(self.world.now + self.world.trip(), at_store)

    def _rest(self) -> None:
        """The next exchange: at once when somebody rang, else when the limiter wants one."""
        self._asking = False
        if self._rung:
            self._asking = True
            self.world.at(self.world.now + _BREATH, self._ask)
        elif self.leases.due < NEVER:
            due = max(self.leases.due - self.skew, self.world.now + _BREATH)
            self.world.at(due, lambda: None if self._asking else self._ask())

    def die(self) -> None:
        self.alive = False


def windows(passed: list[float]) -> Iterator[tuple[int, float]]:
    """Every window between two passes: how many passed in it, and its seconds."""
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            yield last - first + 1, passed[last] - passed[first]


def most_over(passed: list[float], interval: float, burst: int) -> float:
    """The law, at its worst window: passed ÷ (burst + rate·w)."""
    return max((number / (burst + window / interval) for number, window in windows(passed)), default=0.0)
