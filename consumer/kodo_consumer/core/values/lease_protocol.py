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
    """One token each `interval` seconds, at most `burst` at once, all workers together."""

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
    that the worker gives back, `spent` counts starts without a token while the store could not be reached. Concurrency:
    `wanted` permits in all; the worker has `in_use` of them and keeps these, whatever the answer is.
    """

    name: str
    terms: Terms
    wanted: int
    in_use: int = 0
    spent: int = 0
    back: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRange:
    """`count` tokens. The first may be used between `after` and `until` seconds from the store's now, each next one
    `step` seconds later. `mark` names the first for giving it back, each next one has `step` more.
    """

    mark: float
    count: int
    after: float
    until: float
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """Lease that the store grants. `runs`: tokens of a rate or quota. `sharers`: workers that asked in the last second
    and want tokens, this one among them, at least 1; for a concurrency limit, workers that want or use permits and
    asked in the last 5 s.

    `leaving`, for a full quota: pairs (seconds from now, number of starts that leave the window then). `permits`:
    handlers that may run from now on; `fair`: this worker's fair part of the limit.
    """

    name: str
    runs: tuple[TokenRange, ...] = ()
    sharers: int = 1
    leaving: tuple[tuple[float, int], ...] = ()
    permits: int = 0
    fair: int = 0
