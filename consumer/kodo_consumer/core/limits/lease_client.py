"""Lease client: the half of shared limits that runs in a worker, common to all limiters that use a store.

A limiter sends no request itself. It states its wants when a `LeaseClient` collects, and gets the answer later, because
another thread calls the store in between. While the store cannot be reached, a limiter works as without one: with the
limit divided by the number of live workers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kodo_consumer.core.limits.limiters import EMPTY, Limiter
from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest, QuotaSpec, RateSpec, TokenRange

LOOK: Final = 0.1
"""Seconds from one request of a limiter to its next, while it has or wants leases."""
SOON: Final = 0.025
"""Seconds from a request of a limiter to its next, if it was granted too little."""
NEVER: Final = float("inf")
_IDLE: Final = 0.5  # seconds after which tokens that nobody uses are given back


class LeaseClient:
    """Collects the requests of one worker's limiters and passes them the store's answers; it calls no store itself. All
    calls need the worker's lock. `ring`: called, with that lock, if `collect` should be called at once. `limiters`:
    returns all leased limiters. `down`: the store cannot be reached. `failed`: number of outages. `active`: limiters
    that have or want leases. `due`: monotonic time (seconds) of the next collection, infinite if none is due.
    """

    def __init__(self, ring: Callable[[], object], limiters: Callable[[], Iterable[LeasedLimiter]]) -> None:
        self.ring = ring
        self._limiters = limiters
        self.down = False
        self.failed = 0  # times the store could not be asked: outages, not attempts
        self.active: dict[LeasedLimiter, None] = {}
        self.due = NEVER  # when to collect again
        self._asked: dict[str, LeasedLimiter] = {}

    def collect(self, now: float) -> list[LeaseRequest]:
        """Returns the requests of the `active` limiters that have one to make at `now`, each of which notes it as made,
        and sets `due`. Limiters that have and want nothing leave `active`.
        """
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
        """Returns the last requests of the `active` limiters, by which they give their leases back at the end."""
        return [limiter.final_request(now) for limiter in self.active]

    def accept(self, grants: Sequence[LeaseGrant], asked: float, now: float) -> list[LeasedLimiter]:
        """Gives limiters the answers to the requests of the last `collect`, which was at `asked` (monotonic seconds).
        Returns those with waiting messages, which may try again.
        """
        limiters = []
        for grant in grants:
            limiter = self._asked[grant.name]
            limiter.accept(grant, asked, now)
            limiters.append(limiter)
        self.due = min((limiter.request_at for limiter in self.active), default=NEVER)
        return [limiter for limiter in limiters if limiter.waiters]

    def fall_back(self, now: float) -> list[LeasedLimiter]:
        """Voids all leases, because the store cannot be reached, and counts the outage. Limiters that are not active
        get their part as well, for the messages that come during the outage. Returns the limiters with waiting
        messages, which may try again.
        """
        self.down = True
        self.failed += 1
        for limiter in dict.fromkeys((*self.active, *self._limiters())):
            limiter.revoke(now)
        return [limiter for limiter in self.active if limiter.waiters]

    def come_back(self, _now: float) -> list[LeasedLimiter]:
        """Lets limiters use leases again: the store is back. Returns those with waiting messages, which may try again."""
        self.down = False
        return [limiter for limiter in self.active if limiter.waiters]


class LeasedLimiter(Limiter):
    """Limiter with leases of a store. `name`: its key in the store. `request_at`: time of its next request. `ring_at`:
    earliest time at which a new waiter causes a request. Times are monotonic seconds.
    """

    __slots__ = ()
    name: str
    request_at: float
    ring_at: float
    _leases: LeaseClient

    @property
    @abstractmethod
    def lease_size(self) -> int:
        """Number of tokens or permits that it leases now."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """True if it has or wants leases, or has starts to report to the store."""

    @abstractmethod
    def request(self, now: float) -> LeaseRequest | None:
        """Returns its next request, which the caller sends, and notes it as made. None: there is nothing to request."""

    @abstractmethod
    def final_request(self, now: float) -> LeaseRequest:
        """Returns its last request, by which it gives its leases back."""

    @abstractmethod
    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Takes the store's answer to the request that was collected at `asked`; the answer arrived at `now`."""

    @abstractmethod
    def revoke(self, now: float) -> None:
        """Voids its leases, because the store cannot be reached."""

    @abstractmethod
    def apply_limit(self, wanted: Limiter) -> None:
        """Takes terms and sizes over from `wanted`, of its kind. Promises and counts stay."""

    def idle(self, now: float) -> bool:
        """True if it may be dropped: a new limiter would act as this one, which is not active at the lease client."""
        return super().idle(now) and self not in self._leases.active

    def on_wait(self, now: float) -> None:
        """Becomes active, because a message waits. Rings for a request if it leases nothing that it may use, and a
        request can be made now.
        """
        self._leases.active[self] = None
        if not self._leases.down and self.ring_at <= now and self.free_at(now) == NEVER:
            self._leases.ring()


class TokenPool:
    """Leased tokens in the order in which they may be used, by this worker's clock (monotonic seconds). Its length is
    the number of tokens. `used`: number of tokens used since the last request; `used_at`: time at which one was last
    used or added; `spent`: number of starts without a token, while the store was down.
    """

    __slots__ = ("_tokens", "spent", "used", "used_at")

    def __init__(self) -> None:
        self._tokens: deque[tuple[float, float, float]] = EMPTY
        self.used = 0  # since more was asked for
        self.used_at = -NEVER
        self.spent = 0  # starts without a token

    def __len__(self) -> int:
        return len(self._tokens)

    def first(self, now: float) -> float:
        """Drops expired tokens, and returns the time (monotonic seconds) at which the next token may be used, which may
        be over; infinite if none is left.
        """
        tokens = self._tokens
        while tokens and tokens[0][1] < now:
            tokens.popleft()
        return tokens[0][0] if tokens else NEVER

    def usable(self, now: float) -> int:
        """Number of tokens that may be used now; at least 1, because callers have found the limiter free before."""
        return max(1, sum(1 for after, until, _ in self._tokens if after <= now <= until))

    def use(self, now: float) -> None:
        """Removes the first token, because a message starts with it at `now`. The caller has checked with `first` that
        there is one.
        """
        self._tokens.popleft()
        self.used += 1
        self.used_at = now

    def put(self, runs: Sequence[TokenRange], asked: float, now: float) -> None:
        """Adds granted tokens that have not expired. The store answered at a time between `asked` and `now` (monotonic
        seconds): a token starts by the later and ends by the earlier of these, so that it is never used outside of its
        time in the store.
        """
        found = [
            (now + run.after + i * run.step, asked + run.until + i * run.step, run.mark + i * run.step)
            for run in runs
            for i in range(run.count)
        ]
        self._tokens = deque(sorted([*self._tokens, *(token for token in found if token[1] >= now)]))
        self.used_at = max(self.used_at, now)

    def empty(self) -> tuple[float, ...]:
        """Removes all tokens, and forgets `used`; returns their marks, by which they are given back."""
        marks = tuple(mark for *_, mark in self._tokens)
        self._tokens = EMPTY
        self.used = 0
        return marks

    def request(
        self, name: str, terms: RateSpec | QuotaSpec, waiting: int, reserve: int, now: float
    ) -> LeaseRequest | None:
        """Returns the request for tokens: as many as messages wait (`waiting`) and as were used since the last request,
        less those at hand. If `reserve` is above the number used, `reserve` counts in its place, but only if messages
        wait or tokens were used. Reports starts without a token. After 0.5 s without use the request gives all tokens
        back. None if there is nothing to request. Starts to count uses anew.
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
    """Limiter that takes a leased token for each start. While the store is down it acts as its other base class,
    RateLimiter or QuotaLimiter, does.
    """

    __slots__ = ()
    terms: RateSpec | QuotaSpec
    _pool: TokenPool

    def free(self, now: float) -> bool:
        """True if a token may be used now. While the store is down: as in the other base class."""
        return super().free(now) if self._leases.down else self._pool.first(now) <= now

    def room(self, now: float) -> int:
        """Number of waiters that may try now, if the limiter is free: one for each usable token, at least 1. While the
        store is down: 1.
        """
        return super().room(now) if self._leases.down else self._pool.usable(now)

    def start(self, now: float) -> None:
        """Counts the start of a message, which uses a token; if none is left for other waiters, does as `on_wait`.
        While the store is down: counts a start without a token.
        """
        super().start(now)
        if self._leases.down:
            self._pool.spent += 1
        else:
            self._pool.use(now)
        self._leases.active[self] = None
        if self.waiters and not self._pool:
            self.on_wait(now)

    def final_request(self, now: float) -> LeaseRequest:  # noqa: ARG002
        """Last request: gives all tokens back and reports starts without a token."""
        return LeaseRequest(self.name, self.terms, 0, 0, self._pool.spent, self._pool.empty())

    @property
    def lease_size(self) -> int:
        """Number of tokens at hand, whether they may be used yet or not."""
        return len(self._pool)

    @property
    def is_active(self) -> bool:
        """True while messages wait, tokens are at hand, or uses are to be reported."""
        return bool(self.waiters or self._pool or self._pool.used or self._pool.spent)
