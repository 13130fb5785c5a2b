"""Lease client: the half of shared limits that runs in a worker, common to all limiters that use a store.

A limiter sends no request itself. It states what it wants when a `LeaseClient` collects, and takes the answer later: in
between there is a thread and a store. While the store cannot be asked, a limiter is what it is without one: the limit
divided by the workers that live.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kodo_consumer.core.limits.limiters import EMPTY, Limiter
from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest, QuotaSpec, RateSpec, TokenRange

LOOK: Final = 0.1
"""Seconds between two collections while something is granted."""
SOON: Final = 0.025
"""Seconds until a limiter asks again that was granted too little."""
NEVER: Final = float("inf")
_IDLE: Final = 0.5  # seconds after which tokens that nobody uses are given back


class LeaseClient:
    """The limiters of one worker that have or want something.
    `ring` asks for a collection at once; called with the lock held.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring = ring
        self.down = False
        self.failed = 0  # times the store could not be asked: outages, not attempts
        self.active: dict[LeasedLimiter, None] = {}
        self.due = NEVER  # when to collect again
        self._asked: dict[str, LeasedLimiter] = {}

    def collect(self, now: float) -> list[LeaseRequest]:
        """Requests of all limiters now."""
        self._asked = {}
        requests = []
        for limiter in list(self.active):
            if (request := limiter.request(now)) is not None:
                self._asked[request.name] = limiter
                requests.append(request)
            elif not limiter.is_active:
                del self.active[limiter]
        self.due = min((limiter.request_at for limiter in self.active), default=NEVER)
        return requests

    def leave(self, now: float) -> list[LeaseRequest]:
        """Requests by which all limiters give back their leases at the end."""
        return [limiter.final_request(now) for limiter in self.active]

    def accept(self, grants: Sequence[LeaseGrant], asked: float, now: float) -> list[LeasedLimiter]:
        """Takes the answers to the last collection, which was at `asked`.
        Returns the limiters whose waiters should look again.
        """
        limiters = []
        for grant in grants:
            limiter = self._asked[grant.name]
            limiter.accept(grant, asked, now)
            limiters.append(limiter)
        self.due = min((limiter.request_at for limiter in self.active), default=NEVER)
        return [limiter for limiter in limiters if limiter.waiters]

    def fall_back(self, now: float) -> list[LeasedLimiter]:
        """The store cannot be asked. Answers the limiters whose waiters should look again."""
        self.down = True
        self.failed += 1
        for limiter in self.active:
            limiter.revoke(now)
        return [limiter for limiter in self.active if limiter.waiters]

    def come_back(self, _now: float) -> list[LeasedLimiter]:
        """The store can be asked again. Answers the limiters whose waiters should look again."""
        self.down = False
        return [limiter for limiter in self.active if limiter.waiters]


class LeasedLimiter(Limiter):
    """Limiter with leases of a store. `name`: its key in the store. `request_at`: time of its next request.
    `ring_at`: earliest time at which a new waiter causes a request.
    """

    __slots__ = ()
    name: str
    request_at: float
    ring_at: float
    _leases: LeaseClient

    @property
    @abstractmethod
    def lease_size(self) -> int:
        """Tokens or permits of the store that it has."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """True if it has or wants something of the store."""

    @abstractmethod
    def request(self, now: float) -> LeaseRequest | None:
        """Request to the store now; None: it wants nothing."""

    @abstractmethod
    def final_request(self, now: float) -> LeaseRequest:
        """Last request to the store: it gives back what it has."""

    @abstractmethod
    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Takes the store's answer to the request of the time `asked`."""

    @abstractmethod
    def revoke(self, now: float) -> None:
        """Voids its leases: the store cannot be asked."""

    @abstractmethod
    def apply_limit(self, wanted: Limiter) -> None:
        """The limit is another, or divided otherwise: `wanted` is as it should be."""

    def idle(self, now: float) -> bool:
        """See Limiter."""
        return super().idle(now) and self not in self._leases.active

    def on_wait(self, now: float) -> None:
        """See Limiter."""
        self._leases.active[self] = None
        if not self._leases.down and self.ring_at <= now and self.free_at(now) == NEVER:
            self._leases.ring()


class TokenPool:
    """Tokens at hand: (from, until, mark), times by this worker's clock, in the order they may be used."""

    __slots__ = ("_tokens", "spent", "used", "used_at")

    def __init__(self) -> None:
        self._tokens: deque[tuple[float, float, float]] = EMPTY
        self.used = 0  # since more was asked for
        self.used_at = -NEVER
        self.spent = 0  # starts without a token

    def __len__(self) -> int:
        return len(self._tokens)

    def first(self, now: float) -> float:
        """Time when the next token may be used; infinite without one. Drops tokens that are over."""
        tokens = self._tokens
        while tokens and tokens[0][1] < now:
            tokens.popleft()
        return tokens[0][0] if tokens else NEVER

    def usable(self, now: float) -> int:
        """Number of tokens that may be used now, at least 1: the caller knows already that the limiter is free."""
        return max(1, sum(1 for after, until, _ in self._tokens if after <= now <= until))

    def use(self, now: float) -> None:
        """One is used."""
        self._tokens.popleft()
        self.used += 1
        self.used_at = now

    def put(self, runs: Sequence[TokenRange], asked: float, now: float) -> None:
        """More of them. None is usable before the store said so, nor after: its now was between `asked` and `now`."""
        found = [
            (now + run.after + i * run.step, asked + run.until + i * run.step, run.mark + i * run.step)
            for run in runs
            for i in range(run.count)
        ]
        self._tokens = deque(sorted([*self._tokens, *(token for token in found if token[1] >= now)]))
        self.used_at = max(self.used_at, now)

    def empty(self) -> tuple[float, ...]:
        """Takes all tokens out; answers their marks."""
        marks = tuple(mark for *_, mark in self._tokens)
        self._tokens = EMPTY
        self.used = 0
        return marks

    def request(
        self, name: str, terms: RateSpec | QuotaSpec, waiting: int, reserve: int, now: float
    ) -> LeaseRequest | None:
        """Requests as many tokens as messages wait and as were used since the last request. After a pause returns all
        tokens. None if there is nothing to request.
        """
        self.first(now)
        want = max(self.used, reserve) if waiting or self.used else 0
        want += waiting - len(self)
        if want > 0 or self.spent:
            request = LeaseRequest(name, terms, max(0, want), len(self), self.spent)
            self.used = self.spent = 0
            return request
        if self._tokens and now - self.used_at >= _IDLE:
            return LeaseRequest(name, terms, 0, 0, back=self.empty())
        return None


class TokenLimiter(LeasedLimiter):
    """Opens with tokens, one for each start. To be mixed into the limiter that it is without a store."""

    __slots__ = ()
    terms: RateSpec | QuotaSpec
    _pool: TokenPool

    def free(self, now: float) -> bool:
        """See Limiter."""
        return super().free(now) if self._leases.down else self._pool.first(now) <= now

    def room(self, now: float) -> int:
        """See Limiter."""
        return super().room(now) if self._leases.down else self._pool.usable(now)

    def start(self, now: float) -> None:
        """See Limiter."""
        super().start(now)
        if self._leases.down:
            self._pool.spent += 1
        else:
            self._pool.use(now)
        self._leases.active[self] = None
        if self.waiters and not self._pool:
            self.on_wait(now)

    def final_request(self, now: float) -> LeaseRequest:  # noqa: ARG002
        """See LeasedLimiter."""
        return LeaseRequest(self.name, self.terms, 0, 0, self._pool.spent, self._pool.empty())

    @property
    def lease_size(self) -> int:
        """See LeasedLimiter."""
        return len(self._pool)

    @property
    def is_active(self) -> bool:
        """See LeasedLimiter."""
        return bool(self.waiters or self._pool or self._pool.used or self._pool.spent)
