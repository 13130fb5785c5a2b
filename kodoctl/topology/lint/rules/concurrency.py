"""K103, K217, K218: limits of some lanes and slots of states and levels that name nothing, contradict each other, or
change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from kodoctl.errors import Severity
from kodoctl.topology import defaults
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.subscription import ConcurrencyLimit, Limit, QuotaLimit, RateLimit
from kodoctl.topology.names import State
from kodoctl.topology.slot_ranges import (
    ADAPTIVE_SLOTS,
    DeclaredSlots,
    declared_slots,
    lanes_of,
    limited_lanes,
    total_slots,
)
from kodoctl.topology.yaml.validation_errors import LEVELS_CONTRADICT

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import GroundTopic, Subscription

TOGETHER = "limits or slots that cannot hold together"
NOTHING = "a limit or slots that change nothing"
AT = "concurrency"


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def lanes_of_limits(scope: LintScope) -> Iterator[RuleMatch]:
    """A limit names states and levels that workers read, and at least one lane of them."""
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where
        levels, states = defaults.read_levels(ground), (State.READY, *defaults.read_states(subscription))
        for index, limit in enumerate(subscription.limits):
            if limit.in_ is None:
                continue
            at = (*path, "limits", index, "in")
            off = [one for one in enumerate(limit.in_.states or ()) if one[1] not in states]
            unknown = [one for one in enumerate(limit.in_.levels or ()) if one[1] not in levels]
            for place, state in off:
                yield RuleMatch(
                    where(*at, "states", place), f"{state} is off: the limit can never apply there{_there(states)}"
                )
            for place, level in unknown:
                yield RuleMatch(where(*at, "levels", place), f"{level} is no level of this topic{_there(levels)}")
            if not (off or unknown or limited_lanes(ground, subscription, limit.in_)):
                detail = "no lane has these states and levels: the limit can never apply; a backup level has its ready lane alone"
                yield RuleMatch(expansion.topology.where_key(*at), detail)


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def lanes_of_slots(scope: LintScope) -> Iterator[RuleMatch]:
    """Slots are those of states, levels and lanes that workers read."""
    for expansion, path, ground, subscription in scope.subscriptions():
        there = {
            "states": (State.READY, *defaults.read_states(subscription)),
            "levels": defaults.read_levels(ground),
            "lanes": tuple("/".join(lane) for lane in lanes_of(ground, subscription)),
        }
        for one in declared_slots(ground, subscription):
            if not one.lanes:
                kind, name = one.path
                detail = f"{name} is none of the {kind} that workers read{_there(there[kind])}"
                yield RuleMatch(expansion.topology.where_key(*path, AT, *one.path), detail)


def _there(names: tuple[str, ...]) -> str:
    return f"; there is {', '.join(names)}"


@rule("K217", Severity.ERROR, TOGETHER)
def slots_together(scope: LintScope) -> Iterator[RuleMatch]:
    """Slots that are kept fit into the total, into every maximum around them, and leave one to lanes that keep none."""
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where
        groups = [one for one in declared_slots(ground, subscription) if one.lanes]
        keeping = [one for one in groups if one.slots.min]
        total = total_slots(subscription) or ADAPTIVE_SLOTS
        kept = sum(one.slots.min or 0 for one in keeping)
        sums = " + ".join(f"{one.name} {one.slots.min}" for one in keeping)
        if kept > total:
            detail = f"{sums}: {kept} slots are kept of {total}; raise `total`, or lower a min"
            yield RuleMatch(expansion.topology.where_key(*path, AT), detail)
        elif kept == total and (bare := _lanes_beside(keeping, ground, subscription)):
            detail = f"{sums}: no slot is left for {', '.join(bare)}; raise `total`, lower a min, or keep some for them as well"
            yield RuleMatch(expansion.topology.where_key(*path, AT), detail)
        for one in groups:
            most = one.slots.max
            if most is None:
                continue
            inside = [other for other in keeping if other is not one and other.lanes <= one.lanes]
            if (one.slots.min or 0) > most:
                detail = f"min {one.slots.min} is more than max {most}: slots would be kept that nothing may use"
                yield RuleMatch(where(*path, AT, *one.path, "min"), detail)
            if sum(other.slots.min or 0 for other in inside) > most:
                sums_inside = " + ".join(f"{other.name} {other.slots.min}" for other in inside)
                detail = f"max {most} is less than what is kept inside of it ({sums_inside}): slots would be kept that nothing may use"
                yield RuleMatch(where(*path, AT, *one.path, "max"), detail)


def _lanes_beside(keeping: list[DeclaredSlots], ground: GroundTopic, subscription: Subscription) -> list[str]:
    """Lanes for which nothing is kept."""
    covered = frozenset[tuple[str, str]]().union(*(one.lanes for one in keeping))
    return ["/".join(lane) for lane in lanes_of(ground, subscription) if lane not in covered]


@rule("K217", Severity.ERROR, TOGETHER)
def limits_together(scope: LintScope) -> Iterator[RuleMatch]:
    """No limit is below what is kept for its lanes, and all quotas hold in the same lanes: a message counts once for all."""
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where_key
        quotas = []
        keeping = [one for one in declared_slots(ground, subscription) if one.lanes and one.slots.min]
        for index, limit in enumerate(subscription.limits):
            lanes = limited_lanes(ground, subscription, limit.in_)
            at = (*path, "limits", index)
            if isinstance(limit, QuotaLimit):
                quotas.append((index, lanes))
                first, other = quotas[0]
                if lanes != other:
                    detail = (
                        f"this quota holds in other lanes than that of limit {first + 1}, and a message that one of them has"
                        " counted passes both: write the same `in` for both"
                    )
                    yield RuleMatch(where(*at), detail)
            if isinstance(limit, ConcurrencyLimit) and limit.by is None:
                workers = subscription.expected_workers if limit.scope == "subscription" else 1
                for one in keeping:
                    if one.lanes <= lanes and limit.limit < (one.slots.min or 0) * workers:
                        detail = (
                            f"{limit.limit} at once in {workers} worker{'s' * (workers != 1)}, and {one.name} keeps {one.slots.min}"
                            " slots in each: slots would be kept that nothing may use"
                        )
                        yield RuleMatch(expansion.topology.where(*at, "limit"), detail)


@rule("K218", Severity.WARNING, NOTHING)
def idle_slots(scope: LintScope) -> Iterator[RuleMatch]:
    """A range has a number, and a maximum is below the total and below every maximum around it."""
    for expansion, path, ground, subscription in scope.subscriptions():
        total = total_slots(subscription) or ADAPTIVE_SLOTS
        groups = [one for one in declared_slots(ground, subscription) if one.lanes]
        for number, one in enumerate(groups):
            most = one.slots.max
            if most is None:
                if one.slots.min is None:
                    detail = "neither `max` nor `min`: it changes nothing"
                    yield RuleMatch(expansion.topology.where_key(*path, AT, *one.path), detail)
                continue
            around = [other for other in groups if other is not one and other.lanes >= one.lanes]
            wider = next((other for other in around if _counts_before(other, one, groups[:number])), None)
            if most >= total:
                detail = f"max {most} of {total} slots changes nothing: write less than {total}, or take it out"
                yield RuleMatch(expansion.topology.where(*path, AT, *one.path, "max"), detail)
            elif wider is not None:
                detail = f"max {most} never counts: {wider.name} has max {wider.slots.max}, for all of these lanes"
                yield RuleMatch(expansion.topology.where(*path, AT, *one.path, "max"), detail)


def _counts_before(other: DeclaredSlots, one: DeclaredSlots, earlier: list[DeclaredSlots]) -> bool:
    """True if the maximum of `other`, whose lanes are those of `one` or more, is reached first. Of equal ones the earlier is."""
    most, limit = one.slots.max, other.slots.max
    assert most is not None
    return limit is not None and (limit < most or (limit == most and (other.lanes != one.lanes or other in earlier)))


@rule("K218", Severity.WARNING, NOTHING)
def idle_limits(scope: LintScope) -> Iterator[RuleMatch]:
    """`in` names something, and of two limits of a kind and property for the same messages the wider is not the stricter."""
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where_key
        for index, limit in enumerate(subscription.limits):
            if limit.in_ is not None and limit.in_.states is None and limit.in_.levels is None:
                detail = "`in` names neither states nor levels: the limit holds in every lane, as without it"
                yield RuleMatch(where(*path, "limits", index, "in"), detail)
        lanes = [limited_lanes(ground, subscription, limit.in_) for limit in subscription.limits]
        idle: set[int] = set()
        for first, second in combinations(range(len(lanes)), 2):
            for strict, weak in ((first, second), (second, first)):
                fits = lanes[weak] and lanes[weak] <= lanes[strict] and not idle & {strict, weak}
                if fits and _is_stricter(subscription.limits[strict], subscription.limits[weak]):
                    idle.add(weak)
                    detail = f"it never counts: limit {strict + 1} is as strict or stricter, for all of these messages"
                    yield RuleMatch(where(*path, "limits", weak), detail)


def _is_stricter(one: Limit, other: Limit) -> bool:
    """True if whatever passes the limit `one` passes `other` as well, for each value of the same property."""
    if one.by != other.by or one.scope != other.scope:
        return False
    values = (None, *one.overrides, *other.overrides)
    if isinstance(one, RateLimit) and isinstance(other, RateLimit):
        return all(
            _pace(one, value) <= _pace(other, value) and _burst(one, value) <= _burst(other, value) for value in values
        )
    if isinstance(one, ConcurrencyLimit) and isinstance(other, ConcurrencyLimit):
        return all(
            one.overrides.get(value or "", one.limit) <= other.overrides.get(value or "", other.limit)
            for value in values
        )
    if isinstance(one, QuotaLimit) and isinstance(other, QuotaLimit):
        pairs = [
            (one.overrides.get(value or "", one.limit), other.overrides.get(value or "", other.limit))
            for value in values
        ]
        return all(mine.amount <= its.amount and mine.period >= its.period for mine, its in pairs)
    return False


def _pace(limit: RateLimit, value: str | None) -> float:
    return float(limit.overrides.get(value or "", limit.limit).per_second)


def _burst(limit: RateLimit, value: str | None) -> int:
    return limit.burst or max(1, int(_pace(limit, value)))
