"""Limits of a policy as data: rates, concurrency and quotas, by a property's value or for all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_set import ALL_LANES, LaneSet

NOBODY: Final = "(none)"  # tenant of messages without the fair_by property


@dataclass(frozen=True, slots=True)
class Pace:
    """Pace of a rate: `amount` starts per `period` ms, up to `burst` at once after a pause."""

    amount: int
    period: int
    burst: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit on handler starts. `by`: property ("key": the message key) with one limit for each value, and one for all
    messages without it, or with an empty one; None: one limit for all. Beyond 100,000 values further ones share one.
    `overrides`: paces by value, in place of `pace`; "(none)" for messages without one. `shared`: one limit for all
    workers together, else one for each worker. `within`: lanes whose messages it is about.
    """

    by: str | None
    pace: Pace
    shared: bool
    overrides: Mapping[str, Pace] = field(default_factory=dict)
    within: LaneSet = ALL_LANES


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Concurrency limit: at most `limit` messages at once that handlers work on or have deferred. `overrides`: limits
    of single values. Other fields as in Rate.
    """

    by: str | None
    limit: int
    shared: bool
    overrides: Mapping[str, int] = field(default_factory=dict)
    within: LaneSet = ALL_LANES


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota: handlers of at most `amount` messages start in any window of `period` ms; retries do not count again.
    `overrides`: (amount, period) of single values. Other fields as in Rate.
    """

    by: str | None
    amount: int
    period: int
    shared: bool
    overrides: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # value -> (amount, period)
    within: LaneSet = ALL_LANES


Limit = Rate | Concurrency | Quota
WAITS_OF: Final[Mapping[type[Limit], Sequence[State]]] = {
    Rate: (State.PENDING,),
    Concurrency: (),
    Quota: (State.BLOCKING, State.PENDING),
}
"""Waiting states to which a refused message may go, the first that is there."""


def kind_of(limit: Limit) -> str:
    """Kind of a limit: `rate`, `concurrency` or `quota`."""
    return type(limit).__name__.lower()


def title_of(limit: Limit) -> str:
    """Title for people, such as `rate by uid in L2/retrying`."""
    return f"{kind_of(limit)} by {limit.by or 'none'}{f' in {limit.within}' if limit.within else ''}"


def value_of(by: str, properties: Mapping[str, str], key: str) -> str:
    """The value of the property `by`, or the message key if `by` is "key"; NOBODY if it is missing or empty."""
    if by == "key":
        return key or NOBODY
    return properties.get(by) or NOBODY
