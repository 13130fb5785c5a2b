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
    """Rate limiter whose starts take slots that the store has granted. A message that would wait for at most 5 s waits
    here for the next slot; promises of RateLimiter are for messages that wait in another topic, at the pace of this
    worker's part. While the store is down it acts as a RateLimiter of the rate divided by the workers.
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
        """Time (monotonic seconds) at which the next token may be used; infinite if no token is at hand. While the store
        is down: as in RateLimiter.
        """
        return super().free_at(now) if self._leases.down else max(now, self._pool.first(now))

    def wait(self, now: float) -> float:
        """Seconds until a message would start that begins to wait now, by the pace of this worker's part. While the
        store is down: as in RateLimiter.
        """
        if self._leases.down:
            return super().wait(now)
        first = self._pool.first(now)
        return len(self.waiters) * self.interval + (max(0.0, first - now) if first < NEVER else 0.0)

    def ready_at(self, now: float) -> float:
        """Returns `now` if the wait here would be 5 s or less; else the time (monotonic seconds) at which the wait
        would be over, later if that time is promised to others. While the store is down: as in RateLimiter.
        """
        if self._leases.down:
            return super().ready_at(now)
        at = self._gap(now + self.wait(now))
        return at if at - now > _NEAR else now

    def next_slot(self, earliest: float) -> float:
        """Returns `earliest` itself, because a message that is due soon waits here for its token instead of a promise.
        While the store is down: as in RateLimiter.
        """
        return super().next_slot(earliest) if self._leases.down else earliest

    def reserve(self, slot: float) -> None:
        """Does nothing, because messages that are due soon wait for tokens instead of promises. While the store is
        down: as in RateLimiter.
        """
        if self._leases.down:
            super().reserve(slot)

    def request(self, now: float) -> LeaseRequest | None:
        """Returns the request for tokens of waiters and for uses, None if there is nothing to request. Sets the time of
        the next request. See LeasedLimiter.
        """
        self.request_at, self.ring_at = now + LOOK, now + SOON
        return self._pool.request(self.name, self.terms, len(self.waiters), self.terms.burst // _RESERVE, now)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Adds the granted tokens, and sets this worker's part by the number of workers that share the rate."""
        self._pool.put(grant.runs, asked, now)
        self.interval = self.terms.interval * grant.sharers
        self.burst = max(1, self.terms.burst // grant.sharers)

    def revoke(self, now: float) -> None:
        """Drops all tokens, because the store cannot be reached: until it is back, the rate divided by the number of
        workers applies.
        """
        self._pool.empty()
        self.request_at = self.ring_at = -NEVER
        self.interval, self.burst = self.divided
        self.reset(now)

    def apply_limit(self, wanted: Limiter) -> None:
        """Takes the terms over from another LeasedRate. If only the number of workers differs and the store is not
        down, the part that this worker uses stays.
        """
        assert isinstance(wanted, LeasedRate)
        if self.terms != wanted.terms or self._leases.down:  # else it is shared by as many as before
            self.interval, self.burst = wanted.interval, wanted.burst
        self.terms, self.divided = wanted.terms, wanted.divided


class LeasedQuota(TokenLimiter, QuotaLimiter):
    """Quota limiter whose starts take tokens that the store has granted. If the quota is full, the store's answer names
    the times when starts leave the window. While the store is down it acts as a QuotaLimiter of the amount divided by
    the workers.
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
        """Time (monotonic seconds) at which the next token may be used or a full quota has room again; infinite if only
        an answer of the store can tell. While the store is down: as in QuotaLimiter.
        """
        if self._leases.down:
            return super().free_at(now)
        if (first := self._pool.first(now)) < NEVER:
            return max(now, first)
        return self._leaving[0][0] if self._is_full(now) else NEVER

    def wait(self, now: float) -> float:
        """Seconds until a message may start; 0 if only an answer of the store can tell, because that answer comes
        soon.
        """
        at = self.free_at(now)
        return at - now if at < NEVER else 0.0

    def slot(self, now: float) -> float:
        """Time (monotonic seconds) at which all promised messages and one more may have started, by the starts that
        leave a full window; `now` if a token is at hand or the quota is not full. While the store is down: as in
        QuotaLimiter.
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
        """Promises the time `slot`, unless it is before the first start leaves a full window, or the quota is not full:
        a start that is free at once needs a token and no promise. While the store is down: as in QuotaLimiter.
        """
        if self._leases.down or (self._leaving and slot >= self._leaving[0][0]):
            super().reserve(slot)

    def request(self, now: float) -> LeaseRequest | None:
        """Returns the request for tokens of waiters and for uses, None if there is nothing to request. Sets the time of
        the next request: within 1 s if the quota is full.
        """
        self.request_at, self.ring_at = now + LOOK, now + SOON
        if self._is_full(now):
            self.request_at = self.ring_at = min(self._leaving[0][0], now + _RENEW)
        return self._pool.request(self.name, self.terms, len(self.waiters), 0, now)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """Adds the granted tokens, and notes when starts leave the window of a full quota."""
        self._pool.put(grant.runs, asked, now)
        self._leaving = [(now + at, count) for at, count in grant.leaving]
        self._sharers = grant.sharers
        if self._leaving:
            self.request_at = self.ring_at = min(self._leaving[0][0], now + _RENEW)

    def revoke(self, now: float) -> None:  # noqa: ARG002  # what was counted here stays counted
        """Drops all tokens, because the store cannot be reached; starts that were counted here stay counted."""
        self._pool.empty()
        self.request_at = self.ring_at = -NEVER
        self._leaving = []

    def apply_limit(self, wanted: Limiter) -> None:
        """Takes terms and amount over from another LeasedQuota; starts that were counted here stay counted."""
        assert isinstance(wanted, LeasedQuota)
        if self.terms != wanted.terms:
            self._leaving = []
            self.ring_at = -NEVER
        self.terms, self.amount = wanted.terms, wanted.amount

    def _is_full(self, now: float) -> bool:
        return bool(self._leaving) and self._leaving[0][0] > now


class LeasedCap(LeasedLimiter, ConcurrencyLimiter):
    """Concurrency limiter of leased permits, one for each running handler, valid for 5 s from each answered request on.
    While the store is down it acts as a ConcurrencyLimiter of the limit divided by the workers.
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
        """Number of waiters that may try now, if the limiter is free: one for each free permit, at least 1. While the
        store is down: 1.
        """
        return super().room(now) if self._leases.down else max(1, self._permits - self.running)

    def start(self, now: float) -> None:
        """Counts a running handler; it becomes active at the lease client."""
        super().start(now)
        self._most = max(self._most, self.running)
        self._leases.active[self] = None

    def finish(self) -> None:
        """Counts the end of a handler, and rings for a request if its permit is to be given back at once."""
        super().finish()
        if self.running >= self._permits and not self._leases.down:
            self._leases.ring()

    @property
    def lease_size(self) -> int:
        """Number of leased permits, in use or not."""
        return self._permits

    @property
    def is_active(self) -> bool:
        """True while messages wait, handlers run, or the store counts permits of this worker."""
        return bool(self.waiters or self.running or self._asked != (0, 0))

    def request(self, now: float) -> LeaseRequest | None:
        """Returns a request if the permits that this worker wants or uses have changed, or if a renewal is due; None
        otherwise. Permits beyond the worker's fair part are given up first, because the store grants them to other
        workers only after this request reports so.
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
        """Sets its permits and its fair part by the store's answer, valid for 5 s (HOLD) from `asked` on."""
        self._permits, self._fair = min(grant.permits, grant.fair), grant.fair
        self._valid = asked + HOLD
        self._asked = (self._asked[0], grant.permits)

    def revoke(self, now: float) -> None:  # noqa: ARG002
        """Voids all permits, because the store cannot be reached: until it is back, the limit divided by the number of
        workers applies.
        """
        self._permits = 0
        self.request_at = self.ring_at = -NEVER

    def apply_limit(self, wanted: Limiter) -> None:
        """Takes terms and limit over from another LeasedCap."""
        assert isinstance(wanted, LeasedCap)
        self.terms, self.limit = wanted.terms, wanted.limit
