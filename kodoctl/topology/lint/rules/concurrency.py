"""K103, K217, K218: limits, and slots of states and levels, that name no lane, contradict each other, or change
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from kodoctl.errors import Severity
from kodoctl.topology import defaults
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.subscription import ConcurrencyLimit, Limit, QuotaLimit, RateLimit
from kodoctl.topology.names import LEVELS_CONTRADICT, State
from kodoctl.topology.slot_conflicts import SlotConflict, conflicts, idle
from kodoctl.topology.slot_ranges import (
    ADAPTIVE_SLOTS,
    declared_slots,
    lanes_of,
    limited_lanes,
    total_slots,
)

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.yaml.nodes import Path

TOGETHER = "limits or slots that cannot hold together"
NOTHING = "a limit or slots that change nothing"
AT = "concurrency"


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def lanes_of_limits(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds limits whose `in` names a state or a level that workers do not read, or no lane at all."""
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
    """Finds slots in `concurrency` that are declared for a state, a level or a lane that workers do not read."""
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
    """Finds kept slots (`min`) that exceed the total, their own maximum or one around them, or that leave no slot to
    lanes for which none are kept.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        groups = [one for one in declared_slots(ground, subscription) if one.lanes]
        found = conflicts(groups, total_slots(subscription) or ADAPTIVE_SLOTS, lanes_of(ground, subscription))
        yield from (_match(expansion, path, one) for one in found)


def _match(expansion: Expansion, path: Path, found: SlotConflict) -> RuleMatch:
    at = (*path, AT, *found.path)
    place = expansion.topology.where(*at, found.bound) if found.bound else expansion.topology.where_key(*at)
    return RuleMatch(place, found.detail)


@rule("K217", Severity.ERROR, TOGETHER)
def limits_together(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds concurrency limits without `by` that are lower than all slots that workers keep for their lanes, and
    quotas that apply in other lanes than the first one: a message that one quota has counted passes all of them.
    """
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
                inside = [(one.name, one.slots.min or 0) for one in keeping if one.lanes <= lanes]
                if limit.limit < sum(kept for _, kept in inside) * workers:
                    keepers = " and ".join(f"{name} keeps {kept} slots" for name, kept in inside)
                    detail = (
                        f"{limit.limit} at once in {workers} worker{'s' * (workers != 1)}, and {keepers} in each:"
                        " slots would be kept that nothing may use"
                    )
                    yield RuleMatch(expansion.topology.where(*at, "limit"), detail)


@rule("K218", Severity.WARNING, NOTHING)
def idle_slots(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds slots with neither `min` nor `max`, and maximums without effect, because the total or a maximum around them
    is reached first.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        groups = [one for one in declared_slots(ground, subscription) if one.lanes]
        found = idle(groups, total_slots(subscription) or ADAPTIVE_SLOTS)
        yield from (_match(expansion, path, one) for one in found)


@rule("K218", Severity.WARNING, NOTHING)
def idle_limits(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds an `in` without states and levels, and a limit that never counts, because another one of its kind, property
    and scope is as strict or stricter for all of its messages.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where_key
        for index, limit in enumerate(subscription.limits):
            if limit.in_ is not None and limit.in_.states is None and limit.in_.levels is None:
                detail = "`in` names neither states nor levels: the limit holds in every lane, as without it"
                yield RuleMatch(where(*path, "limits", index, "in"), detail)
        lanes = [limited_lanes(ground, subscription, limit.in_) for limit in subscription.limits]
        idle_ones: set[int] = set()
        for first, second in combinations(range(len(lanes)), 2):
            for strict, weak in ((first, second), (second, first)):
                fits = lanes[weak] and lanes[weak] <= lanes[strict] and not idle_ones & {strict, weak}
                if fits and _is_stricter(subscription.limits[strict], subscription.limits[weak]):
                    idle_ones.add(weak)
                    detail = f"it never counts: limit {strict + 1} is as strict or stricter, for all of these messages"
                    yield RuleMatch(where(*path, "limits", weak), detail)


def _is_stricter(one: Limit, other: Limit) -> bool:
    """True if every message that passes the limit `one` passes `other` too, for each value of the same property."""
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
