"""Lease client: the half of shared limits that runs in a worker, common to all limiters that use a store.

A limiter sends no request itself. It states its wants when a `LeaseClient` collects, and gets the answer later, because
another thread calls the store in between. While the store cannot be reached, a limiter works as without one: with the
limit divided by the number of live workers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from kodo_consumer.core.limits.limiters import EMPTY, Limiter
from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest, QuotaSpec, RateSpec, TokenRange

LOOK: Final = 0.1
"""Seconds from one request of a limiter to its next, while it has or wants leases."""
SOON: Final = 0.025
"""Seconds from a request of a limiter to its next, if it was granted too little."""
NEVER: Final = float("inf")
_IDLE: Final = 0.5  # seconds after which tokens that nobody uses are given back
_FADING: Final = 0.9  # part of the longest answer that still counts after another one


class LeaseClient:
    """Collects the requests of one worker's limiters and passes them the store's answers; it calls no store itself. All
    calls need the worker's lock. `ring`: called, with that lock, if `collect` should be called at once. `limiters`:
    returns all leased limiters. `down`: the store cannot be reached, from `fall_back` to `come_back`. `failed`: number
    of outages. `active`: limiters that have or want leases or have something to report, and others until `collect`
    drops them. `due`: monotonic time (seconds) of the next collection, as the last `collect` or `accept` left it;
    infinite if none was due. A limiter that became active since does not change it.
    """

    def __init__(self, ring: Callable[[], object], limiters: Callable[[], Iterable[LeasedLimiter]]) -> None:
        self.ring = ring
        self._limiters = limiters
        self.down = False
        self.failed = 0  # times the store could not be asked: outages, not attempts
        self.active: dict[LeasedLimiter, None] = {}
        self.due = NEVER  # when to collect again
        self._latency = 0.0  # longest time (seconds) that an answer took lately
        self._asked: dict[str, LeasedLimiter] = {}

    def collect(self, now: float) -> list[LeaseRequest]:
        """Returns the requests of the `active` limiters that have one to make at `now`, and sets `due`. These limiters
        note their requests as made, so the caller must pass the answers to `accept`, or call `fall_back`. Limiters that
        have and want nothing, and have nothing to report, leave `active`.
        """
        self._asked = {}
        requests = []
        for limiter in list(self.active):
            if (request := limiter.request(now)) is not None:
                self._asked[request.name] = limiter
                requests.append(replace(request, latency=self._latency))
            elif not limiter.is_active:
                del self.active[limiter]
        self.due = min((limiter.request_at for limiter in self.active), default=NEVER)
        return requests

    def leave(self, now: float) -> list[LeaseRequest]:
        """Returns a last request of each `active` limiter, by which it gives its leases back at the end: all but the
        permits of running handlers.
        """
        return [limiter.final_request(now) for limiter in self.active]

    def accept(self, grants: Sequence[LeaseGrant], asked: float, now: float) -> list[LeasedLimiter]:
        """Gives limiters the answers to their requests of the last `collect`, and sets `due`. `asked`: monotonic
        seconds, taken before that call. Returns those of the limiters with waiting messages, which may try again.
        Raises KeyError for an answer whose name no request had.
        """
        self._latency = max(now - asked, self._latency * _FADING)
        limiters = []
        for grant in grants:
            limiter = self._asked[grant.name]
            limiter.accept(grant, asked, now)
            limiters.append(limiter)
        self.due = min((limiter.request_at for limiter in self.active), default=NEVER)
        return [limiter for limiter in limiters if limiter.waiters]

    def fall_back(self, now: float) -> list[LeasedLimiter]:
        """Voids the leases of all limiters, active or not, because the store cannot be reached, and counts the outage:
        must be called once for each. Until `come_back` each limiter applies its limit divided by the number of workers,
        at least 1. Returns the active limiters with waiting messages, which may try again.
        """
        self.down = True
        self.failed += 1
        for limiter in dict.fromkeys((*self.active, *self._limiters())):
            limiter.revoke(now)
        return [limiter for limiter in self.active if limiter.waiters]

    def come_back(self, _now: float) -> list[LeasedLimiter]:
        """Lets limiters use leases again, of which they have none yet: the store is back. Returns the active limiters
        with waiting messages, which may try again.
        """
        self.down = False
        return [limiter for limiter in self.active if limiter.waiters]


class LeasedLimiter(Limiter):
    """Limiter with leases of a store. `name`: its key in the store. `request_at`: time at which a collection is due for
    it; an earlier collection may take its next request, too. `ring_at`: earliest time at which a new waiter rings for a
    collection. Both are monotonic seconds, -inf for at once.
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
        """True if it has or wants leases, or has something to report to the store."""

    @abstractmethod
    def request(self, now: float) -> LeaseRequest | None:
        """Returns its next request and notes it as made, so the caller must send it; None: there is nothing to request.
        A request sets `request_at` and `ring_at` anew.
        """

    @abstractmethod
    def final_request(self, now: float) -> LeaseRequest:
        """Returns its last request, by which it gives its leases back: all but the permits of running handlers."""

    @abstractmethod
    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Takes the store's answer to its last request. `asked`: monotonic seconds, taken before that request was
        collected; `now`: taken after the answer had arrived.
        """

    @abstractmethod
    def revoke(self, now: float) -> None:
        """Voids its leases without giving them back, because the store cannot be reached. Running handlers go on."""

    @abstractmethod
    def apply_limit(self, wanted: Limiter) -> None:
        """Takes the terms over from `wanted`, a limiter of its class, and adapts its sizes. Leases, promises and counts
        stay.
        """

    def idle(self, now: float) -> bool:
        """True if it may be dropped: it is idle as a limiter without leases, and is not in `LeaseClient.active`."""
        return super().idle(now) and self not in self._leases.active

    def on_wait(self, now: float) -> None:
        """Becomes active, because a message waits. Rings for a request if no time is known at which a message may start
        (`free_at` is infinite), unless the store is down or `ring_at` is still to come.
        """
        self._leases.active[self] = None
        if not self._leases.down and self.ring_at <= now and self.free_at(now) == NEVER:
            self._leases.ring()


class TokenPool:
    """Leased tokens, ordered by the time from which they may be used, by this worker's clock (monotonic seconds). Its
    length is the number of tokens, with expired ones until `first` drops them. `used`: number of tokens used since the
    last request or `empty`; `used_at`: time at which a token was last used, or `put` was last called; `spent`: number
    of starts without a token, while the store was down, that no request has reported yet; `unanswered`: number of those
    that the last request reported, until its answer comes.
    """

    __slots__ = ("_tokens", "spent", "unanswered", "used", "used_at")

    def __init__(self) -> None:
        self._tokens: deque[tuple[float, float, float]] = EMPTY
        self.used = 0  # since more was asked for
        self.used_at = -NEVER
        self.spent = 0  # starts without a token
        self.unanswered = 0  # of them, and not answered yet

    def __len__(self) -> int:
        return len(self._tokens)

    def first(self, now: float) -> float:
        """Drops expired tokens from the front, and returns the time (monotonic seconds) from which the next token may
        be used, which may be in the past; infinite if none is left.
        """
        tokens = self._tokens
        while tokens and tokens[0][1] < now:
            tokens.popleft()
        return tokens[0][0] if tokens else NEVER

    def usable(self, now: float) -> int:
        """Number of tokens that may be used now; 1 if there is none, because one waiter may always try."""
        return max(1, sum(1 for after, until, _ in self._tokens if after <= now <= until))

    def use(self, now: float) -> None:
        """Removes the first token, because a message starts with it at `now`. The caller has checked with `first` that
        there is one that may be used now.
        """
        self._tokens.popleft()
        self.used += 1
        self.used_at = now

    def put(self, runs: Sequence[TokenRange], asked: float, now: float) -> None:
        """Adds granted tokens that have not expired. The store answered at a time between `asked` and `now` (monotonic
        seconds), so the beginning of a token's time counts from `now`, and its end from `asked`: it is never used
        outside of its time in the store, and never at all if that is shorter than `now` - `asked`.
        """
        found = [
            (now + run.after + i * run.step, asked + run.until + i * run.step, run.mark + i * run.step)
            for run in runs
            for i in range(run.count)
        ]
        self._tokens = deque(sorted([*self._tokens, *(token for token in found if token[1] >= now)]))
        self.used_at = max(self.used_at, now)
        self.unanswered = 0

    def empty(self) -> tuple[float, ...]:
        """Removes all tokens, and sets `used` to 0; returns the marks by which they are given back. `spent` stays."""
        marks = tuple(mark for *_, mark in self._tokens)
        self._tokens = EMPTY
        self.used = 0
        return marks

    def revoke(self) -> None:
        """Removes all tokens without giving them back, because the store cannot be reached. Starts that an unanswered
        request reported will be reported again: if the store did count them, it counts them twice.
        """
        self.empty()
        self.spent += self.unanswered
        self.unanswered = 0

    def request(
        self, name: str, terms: RateSpec | QuotaSpec, waiting: int, reserve: int, now: float
    ) -> LeaseRequest | None:
        """Returns the request for tokens: as many as messages wait (`waiting`) and as were used since the last request,
        less those at hand. If `reserve` is above the number used, `reserve` counts in its place, but only if messages
        wait or tokens were used. Reports starts without a token, even if it wants no tokens. If it has nothing to want
        or to report, it gives all tokens back, from 0.5 s after the last use or `put` on (while messages wait, only if
        the first token could be used for 0.5 s as well); else the result is None. Only a request, not None, starts to
        count uses anew.
        """
        self.first(now)
        want = max(self.used, reserve) if waiting or self.used else 0
        want += waiting - len(self)
        if want > 0 or self.spent:
            request = LeaseRequest(name, terms, max(0, want), len(self), self.spent)
            self.used, self.spent, self.unanswered = 0, 0, self.spent
            return request
        if self._tokens and now - max(self.used_at, self._tokens[0][0] if waiting else -NEVER) >= _IDLE:
            return LeaseRequest(name, terms, 0, 0, back=self.empty())
        return None


class TokenLimiter(LeasedLimiter):
    """Limiter that takes a leased token for each start. While the store is down it acts as its other base class,
    RateLimiter or QuotaLimiter, does, and counts the starts, to report them to the store later.
    """

    __slots__ = ()
    terms: RateSpec | QuotaSpec
    _pool: TokenPool

    def free(self, now: float) -> bool:
        """True if a token may be used now. While the store is down: as in the other base class."""
        return super().free(now) if self._leases.down else self._pool.first(now) <= now

    def room(self, now: float) -> int:
        """Number of waiters that may try now, whether the limiter is free or not: one for each usable token, at least
        1. While the store is down: 1.
        """
        return super().room(now) if self._leases.down else self._pool.usable(now)

    def start(self, now: float) -> None:
        """Counts the start of a message, which uses a token: the caller has checked `free`. While the store is down,
        counts it as a start without a token. Becomes active; if messages wait and no token is at hand, does as
        `on_wait`.
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
        """True while messages wait, tokens are at hand, or the next request has uses to count or starts to report."""
        return bool(self.waiters or self._pool or self._pool.used or self._pool.spent)
