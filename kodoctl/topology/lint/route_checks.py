"""Checks of the subscriptions that have routes: conditions, routes that never match or overlap, and circles.

The lint rules import this module, and the condition language with it, only if a file has routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.topology.lint.registry import RuleMatch
from kodoctl.topology.route_analysis import circle, may_take, points
from kodoctl.topology.route_conditions import condition_of, properties_of, taken_values, takes_all

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.lint.registry import DeclaredSubscription
    from kodoctl.topology.model.subscription import Route
    from kodoctl.topology.model.topology import GroundTopic


def unreadable(subscriptions: Iterable[DeclaredSubscription]) -> Iterator[RuleMatch]:
    """Finds route conditions in text that are not of the condition language, or too long."""
    for expansion, path, _, subscription in subscriptions:
        for index, route in enumerate(subscription.routes):
            try:
                condition_of(route.when)
            except ConditionError as problem:
                for finding in problem.diagnostics:
                    lines = [line for line in finding.detail.splitlines() if not line.startswith("  ")]
                    yield RuleMatch(expansion.topology.where(*path, "routes", index, "when"), "; ".join(lines))


def dead_routes(subscriptions: Iterable[DeclaredSubscription]) -> Iterator[RuleMatch]:
    """Finds routes for a moment that has no lane, routes that cannot match in any of their lanes, and routes that
    follow a route that takes all their messages.
    """
    for expansion, path, ground, subscription in subscriptions:
        where, lanes = expansion.topology.where, points(ground, subscription)
        readable = _readable(subscription.routes)
        for index, route in readable.items():
            for moment in route.at:
                if all(point.moment is not moment for point in lanes):
                    at = where(*path, "routes", index, "at", route.at.index(moment))
                    what = "a backup level" if moment == "backup" else f"the state {moment}"
                    yield RuleMatch(at, f"it takes no message at {moment}: there is no lane of {what}")
            evaluated = [point for point in lanes if point.moment in route.at]
            if evaluated and not any(may_take(route, point) for point in evaluated):
                detail = f"it can never match: not at {', '.join(route.at)}"
                yield RuleMatch(where(*path, "routes", index, "when"), detail)
                continue
            for earlier in _before(index, readable, ground):
                if takes_all(readable[earlier], route):
                    detail = f"it can never match: route {earlier + 1} matches all of it first"
                    yield RuleMatch(where(*path, "routes", index, "when"), detail)
                    break


def overlapping(subscriptions: Iterable[DeclaredSubscription]) -> Iterator[RuleMatch]:
    """Finds values in the list of a route that never matter, because an earlier route takes all messages with them."""
    for expansion, path, ground, subscription in subscriptions:
        readable = _readable(subscription.routes)
        for index, route in readable.items():
            for earlier in _before(index, readable, ground):
                values = taken_values(readable[earlier], route)
                if values and not takes_all(readable[earlier], route):
                    detail = f"route {earlier + 1} takes {', '.join(values)} first"
                    yield RuleMatch(expansion.topology.where(*path, "routes", index, "when"), detail)


def _before(index: int, readable: dict[int, Route], ground: GroundTopic) -> list[int]:
    """Indices of the routes before one that count for every tenant for which that one counts. For tenants with an
    exclusive level only routes to backup levels count.
    """
    late = bool(ground.exclusive_levels) and readable[index].to.is_backup
    return [one for one in readable if one < index and (readable[one].to.is_backup or not late)]


def circles(subscriptions: Iterable[DeclaredSubscription]) -> Iterator[RuleMatch]:
    """Finds routes that send a message from level to level back to a level where it was, as `circle` does: one such
    circle at most for a subscription, and none if one of its conditions cannot be parsed.
    """
    for expansion, path, ground, subscription in subscriptions:
        readable = _readable(subscription.routes)
        if len(readable) < len(subscription.routes):
            continue
        if (found := circle(subscription.routes, points(ground, subscription))) is not None:
            indices, levels = found
            names = " and ".join(str(index + 1) for index in indices)
            detail = f"route{'s' * (len(indices) > 1)} {names}: {' → '.join(levels)}"
            yield RuleMatch(expansion.topology.where(*path, "routes", indices[-1], "to"), detail)


def _readable(routes: tuple[Route, ...]) -> dict[int, Route]:
    """Index -> route, of the routes whose condition can be parsed."""
    found = {}
    for index, route in enumerate(routes):
        try:
            condition_of(route.when)
        except ConditionError:
            continue
        found[index] = route
    return found


def undeclared_properties(subscriptions: Iterable[DeclaredSubscription]) -> Iterator[tuple[Where, str, GroundTopic]]:
    """Yields (place, property, ground topic) for each property that a route reads and that the ground topic does not
    declare. Conditions that cannot be parsed are left out.
    """
    for expansion, path, ground, subscription in subscriptions:
        for index, route in _readable(subscription.routes).items():
            for name in sorted(properties_of(condition_of(route.when)) - {*ground.message_properties}):
                simple = () if isinstance(route.when, str) else ("property",)
                yield expansion.topology.where(*path, "routes", index, "when", *simple), name, ground
