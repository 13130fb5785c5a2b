"""K109: exclusive levels that cannot work: no such level, no tenants, a tenant of two levels, a route into one, order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.errors import Severity
from kodoctl.topology import defaults
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.names import Level

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import GroundTopic

TITLE = "exclusive levels that cannot be"


@rule("K109", Severity.ERROR, TITLE)
def exclusive_levels(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds exclusive levels that are no active level of their topic, or are L1 or a backup; tenants that are listed
    twice in such levels; and topics with exclusive levels but without `fair_by`.
    """
    for expansion, path, ground in scope.grounds():
        at, where_key = (*path, "exclusive_levels"), expansion.topology.where_key
        if ground.exclusive_levels and ground.fair_by is None:
            yield RuleMatch(where_key(*at), "there are no tenants: write `fair_by`, which names them")
        first: dict[str, Level] = {}
        for level, tenants in ground.exclusive_levels.items():
            if problem := _unfit(ground, level):
                yield RuleMatch(where_key(*at, level.value), problem)
            for index, tenant in enumerate(tenants):
                if tenant in first:
                    detail = f"{tenant} has {first[tenant]}: a tenant has one exclusive level"
                    where = expansion.topology.where(*at, level.value, index)
                    yield RuleMatch(where, f"{tenant} is listed twice" if first[tenant] is level else detail)
                first.setdefault(tenant, level)


@rule("K109", Severity.ERROR, TITLE)
def exclusive_readers(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds subscriptions of topics with exclusive levels whose type is not `shared`, because a move to another level
    would break the order that they keep; and routes that lead into an exclusive level.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        if ground.exclusive_levels and subscription.type != "shared":
            detail = (
                f"{', '.join(ground.exclusive_levels)}: on another level a message would overtake others of its key"
            )
            yield RuleMatch(expansion.topology.where(*path, "type"), detail)
        for index, route in enumerate(subscription.routes):
            if route.to in ground.exclusive_levels:
                only = ", ".join(ground.exclusive_levels[route.to])
                detail = f"{route.to} admits only {only}, who are sent there without a route: take the route out"
                yield RuleMatch(expansion.topology.where(*path, "routes", index, "to"), detail)


def _unfit(ground: GroundTopic, level: Level) -> str:
    active = defaults.active_levels(ground)
    if level is Level.L1:
        return "L1 is the ground topic itself, where everybody else goes: name another level"
    if level.is_backup:
        return f"{level} is a backup, the last stop of all levels: name another level"
    if level in ground.draining:
        return f"{level} is draining and takes no messages: take it out here, too"
    return "" if level in active else f"{level} is no level of this topic: write it into the list `levels`"
