"""Limiter set: all limits of a subscription together, the limiters that a message has to pass, and starts that take the
tokens of all of them or of none.

A limit of the whole subscription is divided by the number of live workers, with at least 1 for each. So all together
stay within the limit (of a rate: its burst) unless it is smaller than the number of workers. With a store each worker
leases parts of the whole instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final, TypeVar, assert_never

from kodo_consumer.core.limits.lease_client import LeaseClient, LeasedLimiter
from kodo_consumer.core.limits.leased_limiters import LeasedCap, LeasedQuota, LeasedRate
from kodo_consumer.core.limits.limiter_values import MOST, Values
from kodo_consumer.core.limits.limiters import ConcurrencyLimiter, Limiter, QuotaLimiter, RateLimiter
from kodo_consumer.core.values.delay_schedule import MAX_MEMORY_WAIT
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lease_protocol import ConcurrencySpec, QuotaSpec, RateSpec
from kodo_consumer.core.values.limit_policy import NOBODY, Concurrency, Limit, Quota, Rate, kind_of, title_of, value_of
from kodo_consumer.core.values.policy import MAX_RATE_DUE

Limiters = tuple[Limiter, ...]
T = TypeVar("T")
_NEAR: Final = MAX_MEMORY_WAIT / 1000


class LimitKind(Enum):
    """Kind of the limit that set aside a later moment for a message; NOTHING: none did. Concurrency limits are missing,
    because they set no moment aside.
    """

    NOTHING = auto()
    RATE = auto()
    QUOTA = auto()


@dataclass(frozen=True, slots=True)
class Reservation:
    """Moment that limits set aside for a message, or would have, see `LimiterSet.reserve`. `at`: monotonic seconds;
    `over`: kind of limit that made it late, NOTHING if it is not late: the message may still have to wait for a leased
    token, or for a concurrency limit.
    """

    at: float
    over: LimitKind


@dataclass(frozen=True, slots=True)
class RerouteOptions:
    """Kinds of limit for which a message may leave its lane, to wait in another topic. `rate_after`: seconds before
    which it cannot be back from a wait for a rate, None: it may not leave for one. `quota`: it may leave for a quota.
    `horizon`: longest wait there, in seconds. True if it may leave for any of them.
    """

    rate_after: float | None = None
    quota: bool = False
    horizon: float = float("inf")

    def __bool__(self) -> bool:
        return self.rate_after is not None or self.quota

    def may(self, over: LimitKind) -> bool:
        """True if the message may leave its lane because of this kind of limit: RATE or QUOTA."""
        return self.quota if over is LimitKind.QUOTA else self.rate_after is not None

    def latest(self, over: LimitKind) -> float:
        """Longest time (seconds) that a message waits in another topic because of this kind of limit, RATE or QUOTA,
        before it asks anew: `horizon`, for a rate at most 1 h. The jitter of its due time comes on top.
        """
        return self.horizon if over is LimitKind.QUOTA else min(self.horizon, MAX_RATE_DUE / 1000)


class LimiterSet:
    """The limiters of one worker, by limit and value. Shared limits are divided by `workers`, the number of live
    workers (with leases: while the store is down), with at least 1 for each. True if there is any limit. Times are
    seconds on the caller's monotonic clock.
    """

    def __init__(self, limits: tuple[Limit, ...], workers: int) -> None:
        self._limits = limits
        self._workers = workers
        self._limiters = [Values() for _ in limits]
        self._met: dict[tuple[Level, State], list[tuple[Limit, Values]]] = {}  # limits that messages of a lane meet
        self._settle_in()
        self.leases: LeaseClient | None = None

    def __bool__(self) -> bool:
        return bool(self._limits)

    @property
    def too_small(self) -> list[Limit]:
        """Shared limits of which a size (of a rate the burst; also a size of a single value) is smaller than the number
        of workers. Without leases, or while their store is down, each worker takes 1, so that all together may exceed
        the limit.
        """
        return [limit for limit in self._limits if limit.shared and _smallest(limit) < self._workers]

    def use_leases(self, ring: Callable[[], object]) -> LeaseClient:
        """Switches shared limits to leases that a store grants, and returns the client for them. Must be called before
        any limiter exists.
        """
        self.leases = LeaseClient(ring, self._leased)
        return self.leases

    def _leased(self) -> Iterator[LeasedLimiter]:
        for limiters in self._limiters:
            for _, limiter in limiters:
                if isinstance(limiter, LeasedLimiter):
                    yield limiter

    def limiters_of(
        self, properties: Mapping[str, str], key: str, level: Level = Level.L1, state: State = State.READY
    ) -> Limiters:
        """Returns the limiters that a message of this lane has to pass, one for each limit that is about the lane, in
        the order of the limits; creates missing ones. They are valid until `apply_limits`, or until one is `forgotten`.
        """
        met = self._met.get((level, state))
        if met is None:
            pairs = zip(self._limits, self._limiters, strict=True)
            met = self._met[level, state] = [pair for pair in pairs if pair[0].within.has(level, state)]
        return tuple(
            [limiters.of(value_of(limit.by, properties, key) if limit.by else NOBODY) for limit, limiters in met]
        )

    def reserve(self, limiters: Limiters, now: float, leave: RerouteOptions, *, quota_taken: bool) -> Reservation:
        """Sets one moment aside in all rates and quotas among `limiters`, and returns it. If it is more than 5 s away
        and the message may leave its lane (`leave`), it comes after every other promise of the rates and, if a rate
        makes it late, not before the message could be back. If the message would be back before that moment, nothing is
        set aside: it will ask again. A leased rate sets nothing aside for a message that stays in its lane, nor does a
        leased quota that is not full. `quota_taken`: quotas are left out, because an earlier start took their tokens.
        """
        rates = [limiter for limiter in limiters if isinstance(limiter, RateLimiter)]
        quotas = [] if quota_taken else [limiter for limiter in limiters if isinstance(limiter, QuotaLimiter)]
        room = max((limiter.slot(now) for limiter in quotas), default=now)
        ready = now if leave.rate_after is None else max((rate.ready_at(now) for rate in rates), default=now)
        at = _settle([rate.next_slot for rate in rates], max(room, ready))
        over = (
            LimitKind.NOTHING if at <= now else LimitKind.QUOTA if room - now > _NEAR or room == at else LimitKind.RATE
        )
        if at - now > _NEAR and leave.may(over):
            earliest = at if over is LimitKind.QUOTA else max(room, now + (leave.rate_after or 0.0))
            at = _settle([rate.next_deferred_slot for rate in rates], earliest)
            if at - now > leave.latest(over):
                return Reservation(
                    at, over
                )  # it is back before that, to ask anew: a promise would only keep others away
            for rate in rates:
                rate.forget_before(now)
                rate.reserve_deferred(at)
        else:
            for rate in rates:
                rate.reserve(at)
        for quota in quotas:
            quota.reserve(at)
        return Reservation(at, over)

    def start(self, limiters: Limiters, now: float, *, quota_taken: bool) -> Limiter | None:
        """Takes a token (of a concurrency limit: a permit) of every limiter and returns None; or takes none and returns
        the first limiter that is not free. `quota_taken`: quotas are left out, because an earlier start took their
        tokens.
        """
        for limiter in limiters:
            if not limiter.free(now) and not (quota_taken and isinstance(limiter, QuotaLimiter)):
                return limiter
        for limiter in limiters:
            if not (quota_taken and isinstance(limiter, QuotaLimiter)):
                limiter.start(now)
        return None

    def share_out(self, workers: int) -> list[str]:
        """Divides shared limits by this number of live workers from now on (with leases: while the store is down);
        promises stay. Returns an alarm text for each limit that is too small; none if the number is as before, or with
        leases.
        """
        if workers == self._workers:
            return []
        self._workers = workers
        for index, (limit, limiters) in enumerate(zip(self._limits, self._limiters, strict=True)):
            if limit.shared:
                for value, limiter in limiters:
                    _resize(limiter, self._make(index, value))
        if self.leases is not None:
            return []
        text = "%s is less than one for each of %d workers: each takes one, together more than declared"
        return [text % (limit, workers) for limit in self.too_small]

    def apply_limits(self, limits: tuple[Limit, ...], now: float) -> None:
        """Replaces the limits. Starts and running handlers stay counted where a new limit has the kind, property, scope
        and lanes of an old one; promises of quotas, and of rates for messages that wait elsewhere, are void. Messages
        that have not started need their limiters anew: see `limiters_of`. `now`: monotonic seconds.
        """
        before = list(zip(self._limits, self._limiters, strict=True))
        self._limits, self._limiters = limits, []
        for place, limit in enumerate(limits):
            at = next((index for index, (old, _) in enumerate(before) if _same(old, limit)), None)
            limiters = Values() if at is None else before.pop(at)[1]
            self._limiters.append(limiters)
            for value, limiter in limiters:
                _resize(limiter, self._make(place, value), now)
        self._settle_in()

    def _settle_in(self) -> None:
        """Lets the limiters of every limit be created as that limit says from now on."""
        self._met.clear()
        for index, (limit, limiters) in enumerate(zip(self._limits, self._limiters, strict=True)):
            limiters.configure(limit.overrides, partial(self._make, index))

    def _make(self, index: int, value: str | None) -> Limiter:
        """Creates the limiter of a value of the limit `index`; None: the one that all other values share."""
        limit = self._limits[index]
        if not limit.shared:
            return _make(limit, value, 1)
        if self.leases is None:
            return _make(limit, value, self._workers)
        twins = sum(_same(other, limit) for other in self._limits[:index])
        kind = f"{kind_of(limit)}{f'@{limit.within}' if limit.within else ''}{twins or ''}"
        name = f"{kind}/others:{limit.by}" if value is None else f"{kind}:{limit.by or ''}:{value}"
        return _make_leased(limit, value, name, self._workers, self.leases)

    @property
    def crowded_limits(self) -> list[Limit]:
        """Limits of which some values share one limiter, because there were too many values at a time."""
        return [
            limit for limit, limiters in zip(self._limits, self._limiters, strict=True) if limiters.others is not None
        ]

    def prune(self, now: float) -> list[str]:
        """Forgets limiters that are as good as new: see `Values.forget` for which. Returns an alarm text for each of
        `crowded_limits`, at each call again.
        """
        for limiters in self._limiters:
            limiters.forget(now)
        return [
            f"{title_of(limit)}: more than {MOST:,} values in a window; all further ones share what is allowed to one"
            for limit in self.crowded_limits
        ]


def _settle(slot_functions: Sequence[Callable[[float], float]], earliest: float) -> float:
    """The first moment from `earliest` on at which no function returns a later one."""
    at, before = earliest, None
    while at != before:  # each step goes to the end of a promise, of which there are finitely many
        at, before = max((slot(at) for slot in slot_functions), default=at), at
    return at


def _of(value: str | None, overrides: Mapping[str, T], default: T) -> T:
    """Size of the limit for a value; None: for any value that the file does not name."""
    return default if value is None else overrides.get(value, default)


def _make(limit: Limit, value: str | None, workers: int) -> Limiter:
    match limit:
        case Rate():
            pace = _of(value, limit.overrides, limit.pace)
            return RateLimiter(pace.period / 1000 / pace.amount * workers, max(1, pace.burst // workers))
        case Concurrency():
            return ConcurrencyLimiter(max(1, _of(value, limit.overrides, limit.limit) // workers))
        case Quota():
            amount, period = _of(value, limit.overrides, (limit.amount, limit.period))
            return QuotaLimiter(max(1, amount // workers), period / 1000)
        case _:
            assert_never(limit)


def _make_leased(limit: Limit, value: str | None, name: str, workers: int, leases: LeaseClient) -> Limiter:
    match limit:
        case Rate():
            pace = _of(value, limit.overrides, limit.pace)
            rate = RateSpec(pace.period / 1000 / pace.amount, pace.burst)
            return LeasedRate(name, rate, workers, leases)
        case Concurrency():
            return LeasedCap(name, ConcurrencySpec(_of(value, limit.overrides, limit.limit)), workers, leases)
        case Quota():
            amount, period = _of(value, limit.overrides, (limit.amount, limit.period))
            return LeasedQuota(name, QuotaSpec(amount, period / 1000), workers, leases)
        case _:
            assert_never(limit)


def _same(one: Limit, other: Limit) -> bool:
    """True if they are one limit, perhaps with another size."""
    alike = one.by == other.by and one.shared == other.shared and one.within == other.within
    return alike and type(one) is type(other)


def _resize(limiter: Limiter, wanted: Limiter, now: float | None = None) -> None:
    """Gives `limiter` the sizes of `wanted`. `now`: the limit itself has changed, and deferred promises are void; None:
    only the number of workers has, and promises stay.
    """
    match limiter, wanted:
        case LeasedLimiter(), LeasedLimiter():
            limiter.apply_limit(wanted)
        case RateLimiter(), RateLimiter():
            limiter.interval, limiter.burst = wanted.interval, wanted.burst
        case ConcurrencyLimiter(), ConcurrencyLimiter():
            limiter.resize(wanted.limit)
        case QuotaLimiter(), QuotaLimiter():
            limiter.amount = wanted.amount
        case _:
            raise AssertionError(limiter, wanted)
    if now is not None and isinstance(limiter, RateLimiter):
        limiter.reset(now)
    elif now is not None and isinstance(limiter, QuotaLimiter):
        assert isinstance(wanted, QuotaLimiter)
        limiter.reshape(wanted.period)


def _smallest(limit: Limit) -> int:
    match limit:
        case Rate():
            return min(pace.burst for pace in (limit.pace, *limit.overrides.values()))
        case Concurrency():
            return min((limit.limit, *limit.overrides.values()))
        case Quota():
            return min((limit.amount, *(amount for amount, _ in limit.overrides.values())))
        case _:
            assert_never(limit)
