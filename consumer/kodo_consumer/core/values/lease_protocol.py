"""Lease protocol: requests of workers to a store about limits that several workers share, and its answers. Pure data.

Times are seconds on the clock of the store, and an answer counts from its *now*: clocks of workers are never
compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOLD: Final = 5.0
"""Seconds a permit of a concurrency limit lasts without being asked for again: a worker that died loses it then."""


@dataclass(frozen=True, slots=True)
class RateSpec:
    """Rate of all workers together: one token each `interval` seconds, up to `burst` at once after a pause."""

    interval: float
    burst: int


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """Quota of all workers together: at most `amount` in any window of `period` seconds."""

    amount: int
    period: float


@dataclass(frozen=True, slots=True)
class ConcurrencySpec:
    """Concurrency limit of all workers together: at most `limit` at once."""

    limit: int


Terms = RateSpec | QuotaSpec | ConcurrencySpec


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Request of a worker about one limit, for one value of its property. `name`: key of limit and value in the store.

    Rate and quota: `wanted` more tokens, while `in_use` granted ones are still unused; `back` are the marks of tokens
    that the worker gives back, `spent` counts starts without a token while the store could not be reached, since the
    last report of such starts; `latency`: seconds that answers take to come to the worker, by its last exchanges.
    Concurrency: `wanted` permits in all, those that it has among them; it has `in_use`, used or free, and the store
    takes none of these away.
    """

    name: str
    terms: Terms
    wanted: int
    in_use: int = 0
    spent: int = 0
    back: tuple[float, ...] = ()
    latency: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Range of `count` tokens. The first may be used between `after` and `until` seconds from the store's now, each
    next one `step` seconds later. The worker gives a token back by its mark: `mark` for the first, `step` more for each
    next one.
    """

    mark: float
    count: int
    after: float
    until: float
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """Lease that the store grants. `runs`: tokens of a rate or quota. `sharers`: number of workers that asked in the
    last second and want tokens, this one counted if it wants some, at least 1; for a concurrency limit, of workers that
    asked in the last 5 s and want or have permits.

    `leaving`, if tokens of a full quota are wanted: pairs (seconds from the store's now, number of tokens that leave
    the window then), in the order of time. Concurrency: `permits` that this worker has now, for handlers that run
    already, too; `fair`: its fair part of the limit, below `permits` if it has more.
    """

    name: str
    runs: tuple[TokenRange, ...] = ()
    sharers: int = 1
    leaving: tuple[tuple[float, int], ...] = ()
    permits: int = 0
    fair: int = 0
