"""The three kinds of limiters as they are with a store: they open with tokens and permits it has granted to this worker."""

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
    """Opens with the slots it has been granted. Who waits at most 5 s waits here, and is in time for every slot there is; the
    books of promises are for those who wait elsewhere, at the pace of this worker's part.
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
        """See Limiter."""
        return super().free_at(now) if self._leases.down else max(now, self._pool.first(now))

    def wait(self, now: float) -> float:
        """See Limiter."""
        if self._leases.down:
            return super().wait(now)
        first = self._pool.first(now)
        return len(self.waiters) * self.interval + (max(0.0, first - now) if first < NEVER else 0.0)

    def ready_at(self, now: float) -> float:
        """See RateLimiter: at once, unless the wait here would be a long one."""
        if self._leases.down:
            return super().ready_at(now)
        at = self._gap(now + self.wait(now))
        return at if at - now > _NEAR else now

    def next_slot(self, earliest: float) -> float:
        """See RateLimiter: a message that is due soon waits here."""
        return super().next_slot(earliest) if self._leases.down else earliest

    def reserve(self, slot: float) -> None:
        """See RateLimiter: tokens are what is promised."""
        if self._leases.down:
            super().reserve(slot)

    def request(self, now: float) -> LeaseRequest | None:
        """See LeasedLimiter."""
        self.request_at, self.ring_at = now + LOOK, now + SOON
        return self._pool.request(self.name, self.terms, len(self.waiters), self.terms.burst // _RESERVE, now)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """See LeasedLimiter."""
        self._pool.put(grant.runs, asked, now)
        self.interval = self.terms.interval * grant.sharers
        self.burst = max(1, self.terms.burst // grant.sharers)

    def revoke(self, now: float) -> None:
        """See LeasedLimiter."""
        self._pool.empty()
        self.request_at = self.ring_at = -NEVER
        self.interval, self.burst = self.divided
        self.reset(now)

    def apply_limit(self, wanted: Limiter) -> None:
        """See LeasedLimiter."""
        assert isinstance(wanted, LeasedRate)
        if self.terms != wanted.terms or self._leases.down:  # else it is shared by as many as before
            self.interval, self.burst = wanted.interval, wanted.burst
        self.terms, self.divided = wanted.terms, wanted.divided


class LeasedQuota(TokenLimiter, QuotaLimiter):
    """Opens with the tokens it has been granted; of a quota that is full it knows when starts leave the window."""

    __slots__ = ("_leases", "_leaving", "_pool", "_sharers", "name", "request_at", "ring_at", "terms")
    terms: QuotaSpec

    def __init__(self, name: str, terms: QuotaSpec, workers: int, leases: LeaseClient) -> None:
        super().__init__(max(1, terms.amount // workers), terms.period)
        self.name, self.terms, self._leases, self._pool = name, terms, leases, TokenPool()
        self.request_at = self.ring_at = -NEVER
        self._sharers = 1
        self._leaving: list[tuple[float, int]] = []  # nothing before the first of them

    def free_at(self, now: float) -> float:
        """See Limiter."""
        if self._leases.down:
            return super().free_at(now)
        if (first := self._pool.first(now)) < NEVER:
            return max(now, first)
        return self._leaving[0][0] if self._is_full(now) else NEVER

    def wait(self, now: float) -> float:
        """See Limiter: not known is not long."""
        at = self.free_at(now)
        return at - now if at < NEVER else 0.0

    def slot(self, now: float) -> float:
        """See QuotaLimiter."""
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
        """See QuotaLimiter: what is free at once needs no promise, it needs a token."""
        if self._leases.down or (self._leaving and slot >= self._leaving[0][0]):
            super().reserve(slot)

    def request(self, now: float) -> LeaseRequest | None:
        """See LeasedLimiter."""
        self.request_at, self.ring_at = now + LOOK, now + SOON
        if self._is_full(now):
            self.request_at = self.ring_at = min(self._leaving[0][0], now + _RENEW)
        return self._pool.request(self.name, self.terms, len(self.waiters), 0, now)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:
        """See LeasedLimiter."""
        self._pool.put(grant.runs, asked, now)
        self._leaving = [(now + at, count) for at, count in grant.leaving]
        self._sharers = grant.sharers
        if self._leaving:
            self.request_at = self.ring_at = min(self._leaving[0][0], now + _RENEW)

    def revoke(self, now: float) -> None:  # noqa: ARG002  # what was counted here stays counted
        """See LeasedLimiter."""
        self._pool.empty()
        self.request_at = self.ring_at = -NEVER
        self._leaving = []

    def apply_limit(self, wanted: Limiter) -> None:
        """See LeasedLimiter."""
        assert isinstance(wanted, LeasedQuota)
        if self.terms != wanted.terms:
            self._leaving = []
            self.ring_at = -NEVER
        self.terms, self.amount = wanted.terms, wanted.amount

    def _is_full(self, now: float) -> bool:
        return bool(self._leaving) and self._leaving[0][0] > now


class LeasedCap(LeasedLimiter, ConcurrencyLimiter):
    """Opens while fewer run than it has permits."""

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
        """See Limiter."""
        if self._leases.down:
            return super().free_at(now)
        return now if self.running < self._permits and now < self._valid else NEVER

    def room(self, now: float) -> int:
        """See Limiter."""
        return super().room(now) if self._leases.down else max(1, self._permits - self.running)

    def start(self, now: float) -> None:
        """See Limiter."""
        super().start(now)
        self._most = max(self._most, self.running)
        self._leases.active[self] = None

    def finish(self) -> None:
        """See Limiter. What others wait for is given back at once."""
        super().finish()
        if self.running >= self._permits and not self._leases.down:
            self._leases.ring()

    @property
    def lease_size(self) -> int:
        """See LeasedLimiter."""
        return self._permits

    @property
    def is_active(self) -> bool:
        """See LeasedLimiter."""
        return bool(self.waiters or self.running or self._asked != (0, 0))

    def request(self, now: float) -> LeaseRequest | None:
        """See LeasedLimiter. Gives up what is more than its part before it says so: nobody else is granted it earlier."""
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
        """See LeasedLimiter."""
        return LeaseRequest(self.name, self.terms, 0, self.running)

    def accept(self, grant: LeaseGrant, asked: float, now: float) -> None:  # noqa: ARG002
        """See LeasedLimiter."""
        self._permits, self._fair = min(grant.permits, grant.fair), grant.fair
        self._valid = asked + HOLD
        self._asked = (self._asked[0], grant.permits)

    def revoke(self, now: float) -> None:  # noqa: ARG002
        """See LeasedLimiter."""
        self._permits = 0
        self.request_at = self.ring_at = -NEVER

    def apply_limit(self, wanted: Limiter) -> None:
        """See LeasedLimiter."""
        assert isinstance(wanted, LeasedCap)
        self.terms, self.limit = wanted.terms, wanted.limit
