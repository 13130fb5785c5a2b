"""Lease allocator: the half of shared limits that runs in a store, with one account for each limit and value.

Pure: time is passed in, in seconds.

A *rate* is a row of slots, one each interval. Each slot goes to one worker and is used up within (burst - 1) intervals,
or never: so in any window w at most burst + rate·w are used, wherever the workers are and however slow they are. If
that is too short a time for a worker to get the slot, it lasts longer: 2 % more may be used in a window, and for what
is beyond that the next slots come later. A *quota* counts a token in the last part of its window in which it may still
be used. A *cap* (concurrency limit) leases permits until further notice: each worker reports its permits in use, no
worker gets those of another, and a worker that sends no request for `HOLD` seconds loses its permits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Final, assert_never

from kodo_consumer.core.values.lease_protocol import (
    HOLD,
    ConcurrencySpec,
    LeaseGrant,
    LeaseRequest,
    QuotaSpec,
    RateSpec,
    Terms,
    TokenRange,
)

AHEAD: Final = 0.5
"""Seconds of a rate's slots that are granted before they are due."""
PARTS: Final = 240
"""Steps in which a quota's window slides. So starts are never above the limit, and at most 2 % below it, with the time
that tokens may stay unused.
"""
_PATIENCE: Final = 0.05  # seconds a token lasts at least: answers and timers are late by milliseconds
_LATENCIES: Final = 1.5  # that a token lasts at least, because the next answer may take longer
_LONGEST: Final = 1.0  # seconds that a token of a slow rate lasts where that costs no pace
_AT_HAND: Final = 0.25  # seconds a token of a quota lasts at least
_SHARING: Final = 1.0  # seconds after which who does not ask shares no more
_QUANTUM: Final = 2.0  # seconds that the odd permits stay with a worker while others wait for them
_JUMP: Final = 1.0  # seconds that a clock goes back beyond which it was set, not corrected
_DEBT: Final = 5.0  # seconds of a rate that starts without a token cost at most
_TOLERATED: Final = 0.0196  # 2 % above the law, as a part of what passed
_MOST_BACK: Final = 1_000
_TINY: Final = 1e-6


@dataclass(slots=True)
class LeaseHolder:
    """Record of a worker in an account. `seen`: time of its last request, which wanted `wanted`. Only for concurrency:
    `in_use`, permits that it holds; `turn`, time when these last became more.
    """

    seen: float
    wanted: int = 0
    in_use: int = 0
    turn: float = 0.0


@dataclass(slots=True)
class LimitAccount:
    """Keeps the granted tokens or permits of one limit, for one value of its property. All times are seconds of the
    store's clock.

    `at`: the account's present time (see `grant`). Rate: `next`, time of the next new slot; `back`, times of slots that
    workers gave back and that may be granted again. Quota: `parts`, numbers of tokens that count in the window (starts
    without a token, too), by number of the last part of time in which they may be used (time divided by `width`,
    rounded down); `width`, seconds of a part, 0 before the first request. All kinds: `holders`, by run: workers whose
    last request was lately, and which wanted or had tokens or permits then. Those that wanted some share the limit.
    """

    at: float = 0.0
    next: float = 0.0
    back: list[float] = field(default_factory=list)
    width: float = 0.0
    parts: dict[int, int] = field(default_factory=dict)
    holders: dict[str, LeaseHolder] = field(default_factory=dict)

    def to_json(self) -> str:
        """Account as JSON text, for a column of a table."""
        holders = {run: [who.seen, who.wanted, who.in_use, who.turn] for run, who in self.holders.items()}
        return json.dumps([self.at, self.next, self.back, self.width, list(self.parts.items()), holders])

    @classmethod
    def from_json(cls, text: str) -> LimitAccount:
        """Account of a text by `to_json`; an empty text is a new account. Any other text is not checked: it may raise
        some error, such as ValueError, TypeError or AttributeError, here or in `grant`.
        """
        if not text:
            return cls()
        at, following, back, width, parts, holders = json.loads(text)
        return cls(at, following, back, width, dict(parts), {run: LeaseHolder(*of) for run, of in holders.items()})

    def grant(self, run: str, request: LeaseRequest, now: float) -> LeaseGrant:
        """Answers a request of the worker `run`, and changes the account accordingly. `now`: seconds of the store's
        clock. If the clock was set back by more than 1 s, all times of the account move back by the same amount, those
        of a quota only by whole parts of its window. After a smaller step back, the latest time given so far counts.

        The account forgets each worker whose last request is more than 1 s old (for concurrency 5 s; its permits are
        then free). It also forgets this worker if the request neither wants nor has tokens or permits.
        """
        now = self._come_to(now)
        patience = HOLD if isinstance(request.terms, ConcurrencySpec) else _SHARING
        self.holders = {name: who for name, who in self.holders.items() if who.seen + patience >= now}
        mine = self.holders.setdefault(run, LeaseHolder(now))
        mine.seen, mine.wanted = now, request.wanted
        if not (request.wanted or request.in_use):
            del self.holders[run]
        match request.terms:
            case RateSpec():
                return self._grant_rate(request, request.terms, now)
            case QuotaSpec():
                return self._grant_quota(request, request.terms, now)
            case ConcurrencySpec():
                return self._grant_cap(run, request, request.terms.limit, now)
            case _:
                assert_never(request.terms)

    def _come_to(self, now: float) -> float:
        """Returns the account's time at `now`. If the clock was set back, moves all times back as well: else every
        worker would wait until the old time comes again.
        """
        gone_back = self.at - now
        if gone_back > _JUMP:
            self.next -= gone_back
            self.back = [slot - gone_back for slot in self.back]
            for who in self.holders.values():
                who.seen, who.turn = who.seen - gone_back, who.turn - gone_back
            if self.parts:
                steps = floor(gone_back / self.width)
                self.parts = {part - steps: count for part, count in self.parts.items()}
            self.at = now
        self.at = max(self.at, now)
        return self.at

    def kept_until(self, terms: Terms) -> float:
        """Time until which a store has to keep the account after a request with these terms; later it may delete it."""
        match terms:
            case RateSpec():
                return max(self.at, self.next) + terms.burst * terms.interval + _DEBT + 60.0
            case QuotaSpec():
                return self.at + terms.period * (1 + 2 / PARTS) + _LATENCIES * HOLD
            case ConcurrencySpec():
                return self.at + 2 * HOLD
            case _:
                assert_never(terms)

    @property
    def _sharers(self) -> int:
        return max(1, sum(1 for who in self.holders.values() if who.wanted))

    # ---- rates

    def _grant_rate(self, request: LeaseRequest, terms: RateSpec, now: float) -> LeaseGrant:
        saved = (terms.burst - 1) * terms.interval
        tolerated = _TOLERATED * (terms.burst + 1) * terms.interval
        patience = _patience(request)
        least = max(saved, _PATIENCE, min(tolerated, _LONGEST))
        lasts = max(least, patience) if request.latency > saved else least
        excess = max(0.0, lasts - saved - tolerated)  # seconds more that lie before the `burst`-th slot after each
        pace = terms.interval + excess / terms.burst
        since = now - max(0.0, saved - patience)  # older slots would be over before they arrive
        if request.spent:  # since it was asked last
            self.next = max(self.next, min(self.next + request.spent * pace, now + _DEBT))
        self.next = max(self.next, since)
        self.back = sorted(slot for slot in (*self.back, *request.back) if since <= slot < self.next)[:_MOST_BACK]
        usable = self.back if lasts == least else []  # else the slots after one of them may lie too near
        ahead = len(usable) + max(0, floor((now + AHEAD - self.next) / pace + _TINY) + 1)
        count = min(request.wanted, ceil(ahead / self._sharers))
        if request.wanted and not request.in_use:
            count = max(count, 1)  # however far ahead: everybody gets its turn
        taken = usable[:count]
        self.back = self.back[len(taken) :]
        runs = [TokenRange(slot, 1, slot - now, slot - now + lasts, pace) for slot in taken]
        if fresh := count - len(taken):
            after = self.next - now
            runs.append(TokenRange(self.next, fresh, after, after + lasts, pace))
            self.next += fresh * pace + excess - excess / terms.burst
        return LeaseGrant(request.name, tuple(runs), self._sharers)

    # ---- quotas

    def _grant_quota(self, request: LeaseRequest, terms: QuotaSpec, now: float) -> LeaseGrant:
        width = terms.period / PARTS
        if width != self.width:  # as late as it may have been
            self.parts = _sum_by_part([(floor((part + 1) * self.width / width), n) for part, n in self.parts.items()])
            self.width = width
        self.parts = {part: n for part, n in self.parts.items() if (part + PARTS + 1) * width > now + _TINY}
        for mark in request.back:
            if self.parts.get(round(mark), 0) > 0:
                self.parts[round(mark)] -= 1
        last = floor((now + max(width, _AT_HAND, _patience(request))) / width)
        self.parts = _sum_by_part([*self.parts.items(), (last, request.spent)])
        room = terms.amount - sum(self.parts.values())
        count = max(0, min(request.wanted, ceil(room / (2 * self._sharers))))
        runs: tuple[TokenRange, ...] = ()
        if count:
            self.parts = _sum_by_part([*self.parts.items(), (last, count)])
            runs = (TokenRange(float(last), count, 0.0, (last + 1) * width - now),)
        leaving: tuple[tuple[float, int], ...] = ()
        if request.wanted and room <= 0:
            leaving = tuple(((part + PARTS + 1) * width - now, n) for part, n in sorted(self.parts.items()))
        return LeaseGrant(request.name, runs, self._sharers, leaving)

    # ---- concurrency

    def _grant_cap(self, run: str, request: LeaseRequest, limit: int, now: float) -> LeaseGrant:
        mine = self.holders.get(run)
        if mine is None:
            return LeaseGrant(request.name)
        fair = _fair(self.holders, limit, now)[run]
        others = sum(who.in_use for name, who in self.holders.items() if name != run)
        before = mine.in_use
        mine.in_use = max(request.in_use, min(request.wanted, limit - others, fair))
        if mine.in_use > before:
            mine.turn = now
        return LeaseGrant(request.name, sharers=len(self.holders), permits=mine.in_use, fair=fair)


def _patience(request: LeaseRequest) -> float:
    """Seconds that a token lasts at least, so that it comes to the worker in time."""
    return max(_PATIENCE, _LATENCIES * min(request.latency, HOLD))


def _fair(holders: Mapping[str, LeaseHolder], limit: int, now: float) -> dict[str, int]:
    """Max-min fair shares by worker. Permits that cannot be divided evenly go to workers in turn: a worker keeps one
    for a while, then it goes to the one that has waited longest.
    """
    level = _level(sorted(who.wanted for who in holders.values()), limit)
    fair = {run: min(who.wanted, level) for run, who in holders.items()}
    over = limit - sum(fair.values())

    def rank(run: str) -> tuple[bool, float, str]:
        who = holders[run]
        keeps_it = who.in_use > level and now - who.turn < _QUANTUM
        return not keeps_it, who.turn, run

    for run in sorted((run for run, who in holders.items() if who.wanted > level), key=rank)[:over]:
        fair[run] += 1
    return fair


def _level(wants: list[int], limit: int) -> int:
    left = limit
    for index, want in enumerate(wants):
        sharing = len(wants) - index
        if want * sharing > left:
            return left // sharing
        left -= want
    return wants[-1]


def _sum_by_part(counts: list[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for part, count in counts:
        if count:
            found[part] = found.get(part, 0) + count
    return found
