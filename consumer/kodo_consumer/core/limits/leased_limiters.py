"""Leased limiters: rate, quota and concurrency, with tokens and permits that a store has granted to this worker."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from kodo_consumer.core.limits.lease_client import (
    LOOK,
    NEVER,
    SOON,
    LeaseClient,
    LeasedLimiter,
    TokenLimiter,
    TokenPool,
)
from kodo_consumer.core.limits.limiters import ConcurrencyLimiter, Limiter, QuotaLimiter, RateLimiter
from kodo_consumer.core.values.delay_schedule import MAX_MEMORY_WAIT
from kodo_consumer.core.values.lease_protocol import (
    HOLD,
    ConcurrencySpec,
    LeaseGrant,
    LeaseRequest,
    QuotaSpec,
    RateSpec,
)

_RENEW: Final = 1.0  # seconds until a quota is asked again that was full: others may give some back
_RESERVE: Final = 20  # a part of a rate's burst that is borrowed at first
_NEAR: Final = MAX_MEMORY_WAIT / 1000


class LeasedRate(TokenLimiter, RateLimiter):
    """Rate limiter whose starts take slots that the store has granted. A message that would wait for at most 5 s, or
    that may not leave its lane, waits here for the next slot; promises of RateLimiter are for messages that wait in
    another topic, at the pace of this worker's part. While the store is down it acts as a RateLimiter of rate and burst
    divided by the workers (a burst of at least 1).
    """

    __slots__ = ("_leases", "_pool", "divided", "name", "request_at", "ring_at", "terms")
    terms: RateSpec

    def __init__(self, name: str, terms: RateSpec, workers: int, leases: LeaseClient) -> None:
        super().__init__(terms.interval, terms.burst)
        self.name, self.terms, self._leases, self._pool = name, terms, leases, TokenPool()
        self.request_at = self.ring_at = -NEVER
        self.divided = (terms.interval * workers, max(1, terms.burst // workers))
        if leases.down:
            self.interval, self.burst = self.divided

    def free_at(self, now: float) -> float:
        """Time (monotonic seconds) at which the next token may be used, `now` if it may be at once; infinite if no
        token is at hand. While the store is down: as in RateLimiter.
        """
        return super().free_at(now) if self._leases.down else max(now, self._pool.first(now))

    def wait(self, now: float) -> float:
        """Estimated seconds until a message would start that begins to wait now: until the first token at hand (0 if
        there is none), and an interval of this worker's part for each waiter. While the store is down: as in
        RateLimiter.
        """
        if self._leases.down:
            return super().wait(now)
        first = self._pool.first(now)
        return len(self.waiters) * self.interval + (max(0.0, first - now) if first < NEVER else 0.0)

    def ready_at(self, now: float) -> float:
        """Time (monotonic seconds) at which the wait here would be over, later if that time is promised to others;
        `now` if it is at most 5 s away. While the store is down: as in RateLimiter.
        """
        if self._leases.down:
            return super().ready_at(now)
        at = self._gap(now + self.wait(now))
        return at if at - now > _NEAR else now

    def next_slot(self, earliest: float) -> float:
        """Returns `earliest` itself, because a message that is due soon, or stays in its lane, waits here for its token
        instead of a promise. While the store is down: as in RateLimiter.
        """
        return super().next_slot(earliest) if self._leases.down else earliest

    def reserve(self, slot: float) -> None:
        """Does nothing, because messages that are due soon, or stay in their lane, wait for tokens instead of promises.
        While the store is down: as in RateLimiter.
        """
        if self._leases.down:
            super().reserve(slot)

    def request(self, now: float) -> LeaseRequest | None:
        """Returns the request for tokens of waiters and for uses (see `TokenPool.request`; `reserve` is a twentieth of
        the burst), None if there is nothing to request. Sets the time of the next one to 0.1 s from now, in any case.
        """
        self.request_at, self.ring_at = now + LOOK, now + SOON
        return self._pool.request(self.name, self.terms, len(self.waiters), self.terms.burst // _RESERVE, now)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Adds the granted tokens, and sets this worker's part (interval and burst) by the number of workers that share
        the rate.
        """
        self._pool.put(grant.runs, asked, now)
        self.interval = self.terms.interval * grant.sharers
        self.burst = max(1, self.terms.burst // grant.sharers)

    def revoke(self, now: float) -> None:
        """Drops all tokens, and all promises to messages that wait elsewhere, because the store cannot be reached:
        until it is back, the rate divided by the number of workers applies.
        """
        self._pool.revoke()
        self.request_at = self.ring_at = -NEVER
        self.interval, self.burst = self.divided
        self.reset(now)

    def apply_limit(self, wanted: Limiter) -> None:
        """Takes the terms over from another LeasedRate. If only the number of workers differs and the store is not
        down, the part that this worker uses stays; else it becomes that of `wanted`.
        """
        assert isinstance(wanted, LeasedRate)
        if self.terms != wanted.terms or self._leases.down:  # else it is shared by as many as before
            self.interval, self.burst = wanted.interval, wanted.burst
        self.terms, self.divided = wanted.terms, wanted.divided


class LeasedQuota(TokenLimiter, QuotaLimiter):
    """Quota limiter whose starts take tokens that the store has granted. If the quota is full, the store's answer names
    the times when starts leave the window. While the store is down it acts as a QuotaLimiter of the amount divided by
    the workers (at least 1), for which this worker's starts before the outage count as well.
    """

    __slots__ = ("_leases", "_leaving", "_pool", "_sharers", "name", "request_at", "ring_at", "terms")
    terms: QuotaSpec

    def __init__(self, name: str, terms: QuotaSpec, workers: int, leases: LeaseClient) -> None:
        super().__init__(max(1, terms.amount // workers), terms.period)
        self.name, self.terms, self._leases, self._pool = name, terms, leases, TokenPool()
        self.request_at = self.ring_at = -NEVER
        self._sharers = 1
        self._leaving: list[tuple[float, int]] = []  # nothing before the first of them

    def free_at(self, now: float) -> float:
        """Time (monotonic seconds) at which the next token may be used (`now` if it may be at once) or a full quota has
        room again; infinite if only an answer of the store can tell. While the store is down: as in QuotaLimiter.
        """
        if self._leases.down:
            return super().free_at(now)
        if (first := self._pool.first(now)) < NEVER:
            return max(now, first)
        return self._leaving[0][0] if self._is_full(now) else NEVER

    def wait(self, now: float) -> float:
        """Seconds until `free_at`, however many wait already; 0 if only an answer of the store can tell, because that
        answer comes soon.
        """
        at = self.free_at(now)
        return at - now if at < NEVER else 0.0

    def slot(self, now: float) -> float:
        """Estimated time (monotonic seconds) at which a full window has room for all promised messages and one more, if
        each worker that shares the quota has promised as many; `now` if a token is at hand or the quota is not full.
        While the store is down: as in QuotaLimiter.
        """
        if self._leases.down:
            return super().slot(now)
        self._expire(now)
        if self._pool or not self._is_full(now):
            return now
        total = list(accumulate(count for _, count in self._leaving))
        rounds, rest = divmod(len(self._promised) * self._sharers, total[-1])
        at = next(at for (at, _), left in zip(self._leaving, total, strict=True) if left > rest)
        return at + rounds * self.terms.period

    def reserve(self, slot: float) -> None:
        """Promises the time `slot` if the store's last answer found the quota full, and the first start leaves the
        window by then. Else does nothing: a start that is free at once needs a token and no promise. While the store is
        down: as in QuotaLimiter.
        """
        if self._leases.down or (self._leaving and slot >= self._leaving[0][0]):
            super().reserve(slot)

    def request(self, now: float) -> LeaseRequest | None:
        """Returns the request for tokens of waiters and for uses (see `TokenPool.request`; `reserve` is 0), None if
        there is nothing to request. Sets the time of the next one, in any case: 0.1 s from now, or if the quota is
        full, when the first start leaves the window, but in 1 s at the latest.
        """
        self.request_at, self.ring_at = now + LOOK, now + SOON
        if self._is_full(now):
            self.request_at = self.ring_at = min(self._leaving[0][0], now + _RENEW)
        return self._pool.request(self.name, self.terms, len(self.waiters), 0, now)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Adds the granted tokens, and notes when starts leave the window of a full quota. If it is full, sets the time
        of the next request as `request` does.
        """
        self._pool.put(grant.runs, asked, now)
        self._leaving = [(now + at, count) for at, count in grant.leaving]
        self._sharers = grant.sharers
        if self._leaving:
            self.request_at = self.ring_at = min(self._leaving[0][0], now + _RENEW)

    def revoke(self, now: float) -> None:  # noqa: ARG002  # what was counted here stays counted
        """Drops all tokens, because the store cannot be reached; starts and promises that were counted here stay."""
        self._pool.revoke()
        self.request_at = self.ring_at = -NEVER
        self._leaving = []

    def apply_limit(self, wanted: Limiter) -> None:
        """Takes terms and amount over from another LeasedQuota; starts and promises that were counted here stay.
        Another period needs `reshape` as well.
        """
        assert isinstance(wanted, LeasedQuota)
        if self.terms != wanted.terms:
            self._leaving = []
            self.ring_at = -NEVER
        self.terms, self.amount = wanted.terms, wanted.amount

    def _is_full(self, now: float) -> bool:
        return bool(self._leaving) and self._leaving[0][0] > now


class LeasedCap(LeasedLimiter, ConcurrencyLimiter):
    """Concurrency limiter of leased permits, each of which lets one handler run. They are valid until 5 s after the
    last answered request was collected. While the store is down it acts as a ConcurrencyLimiter of the limit divided by
    the workers (at least 1).
    """

    __slots__ = ("_asked", "_fair", "_leases", "_most", "_permits", "_valid", "name", "request_at", "ring_at", "terms")

    def __init__(self, name: str, terms: ConcurrencySpec, workers: int, leases: LeaseClient) -> None:
        super().__init__(max(1, terms.limit // workers))
        self.name, self.terms, self._leases = name, terms, leases
        self.request_at = self.ring_at = -NEVER
        self._permits = self._fair = 0
        self._most = 0  # that ran at once lately
        self._valid = -NEVER  # until then the permits are
        self._asked = (0, 0)  # wanted and in use, as the store knows it

    def free_at(self, now: float) -> float:
        """`now` if a permit is free and valid; otherwise infinite, because only the end of a handler or an answer of
        the store can tell. While the store is down: as in ConcurrencyLimiter.
        """
        if self._leases.down:
            return super().free_at(now)
        return now if self.running < self._permits and now < self._valid else NEVER

    def room(self, now: float) -> int:
        """Number of waiters that may try now, whether the limiter is free or not: one for each free permit, at least 1.
        While the store is down: 1.
        """
        return super().room(now) if self._leases.down else max(1, self._permits - self.running)

    def start(self, now: float) -> None:
        """Counts a running handler, and becomes active at the lease client."""
        super().start(now)
        self._most = max(self._most, self.running)
        self._leases.active[self] = None

    def finish(self) -> None:
        """Counts the end of a handler, and rings for a request if the handlers that still run use all permits, because
        the freed one may be another worker's. While the store is down it does not ring.
        """
        super().finish()
        if self.running >= self._permits and not self._leases.down:
            self._leases.ring()

    @property
    def lease_size(self) -> int:
        """Number of leased permits, in use or not."""
        return self._permits

    @property
    def is_active(self) -> bool:
        """True while messages wait, handlers run, or the store counts permits or wants of this worker."""
        return bool(self.waiters or self.running or self._asked != (0, 0))

    def request(self, now: float) -> LeaseRequest | None:
        """Returns a request if the permits that this worker wants or holds have changed, or if a renewal is due; None
        otherwise. It wants one for each running handler and waiter, and for a while as many as ran at once before.
        Free permits beyond the worker's fair part, and beyond its wants, are given up first, because the store grants
        them to other workers only after this request reports so.
        """
        wanted = max(self.running + len(self.waiters), self._most)
        self._permits = min(self._permits, self._fair, wanted)
        permits = max(self.running, self._permits)
        if (wanted, permits) == self._asked and now < self.request_at:
            return None
        self._most = max(self.running, self._most - 1)
        self._asked = (wanted, permits)
        self.ring_at = now + SOON
        hungry = self.waiters and self.running >= self._permits
        self.request_at = now + (SOON if hungry else LOOK)
        return LeaseRequest(self.name, self.terms, wanted, permits)

    def final_request(self, now: float) -> LeaseRequest:  # noqa: ARG002
        """Last request: keeps permits for handlers that still run, and wants no more."""
        return LeaseRequest(self.name, self.terms, 0, self.running)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:  # noqa: ARG002
        """Sets its permits, at most its fair part, and that part by the store's answer: valid for 5 s (HOLD) from
        `asked` on.
        """
        self._permits, self._fair = min(grant.permits, grant.fair), grant.fair
        self._valid = asked + HOLD
        self._asked = (self._asked[0], grant.permits)

    def revoke(self, now: float) -> None:  # noqa: ARG002
        """Voids all permits, because the store cannot be reached: until it is back, the limit divided by the number of
        workers applies. Running handlers go on, and count.
        """
        self._permits = 0
        self.request_at = self.ring_at = -NEVER

    def apply_limit(self, wanted: Limiter) -> None:
        """Takes terms and limit over from another LeasedCap. Permits stay until the next request or answer."""
        assert isinstance(wanted, LeasedCap)
        self.terms, self.limit = wanted.terms, wanted.limit
