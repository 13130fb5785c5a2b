"""Analysis of a route table, as far as the file alone shows it: lanes that a route is evaluated in, routes in a
circle.

A lane determines a message's level, state and, at dispatch, attempts; all other facts may have any value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.expressions import ast
from kodoctl.expressions.evaluator import evaluate
from kodoctl.topology import defaults
from kodoctl.topology.model.subscription import RouteCondition
from kodoctl.topology.names import Level, RouteMoment, State
from kodoctl.topology.route_conditions import condition_of, exclude, share_of
from kodoctl.topology.route_facts import RouteFacts

if TYPE_CHECKING:
    from kodoctl.topology.model.subscription import Route
    from kodoctl.topology.model.topology import GroundTopic, Subscription
    from kodoctl.topology.route_conditions import Condition

_ANY: Final = frozenset[bool | None]({True, False, None})
_ATTEMPTS: Final = ("attempts", "attempts_retrying", "attempts_pending", "attempts_blocking", "attempts_backup")


@dataclass(frozen=True, slots=True, order=True)
class RoutePoint:
    """A lane and a moment at which routes are evaluated: for messages that the lane stores, or for messages
    sent to it.
    """

    level: Level
    moment: RouteMoment

    @property
    def state(self) -> State:
        """State of the lane."""
        waiting = self.moment not in (RouteMoment.DISPATCH, RouteMoment.BACKUP)
        return State(self.moment.value) if waiting else State.READY

    def after(self, level: Level) -> RoutePoint:
        """The next point of evaluation after a route sends a message to `level`. A message that is being sent
        is evaluated at once; any other when it fails there as it failed before.
        """
        waits_in_backup = level.is_backup and self.moment is not RouteMoment.DISPATCH
        return RoutePoint(level, RouteMoment.BACKUP if waits_in_backup else self.moment)


def points(ground: GroundTopic, subscription: Subscription) -> list[RoutePoint]:
    """Every point there is in the lanes of a subscription."""
    found = []
    for level in defaults.read_levels(ground):
        states = () if level.is_backup else defaults.read_states(subscription)
        moments = [RouteMoment.DISPATCH, *([RouteMoment.BACKUP] if level.is_backup else map(RouteMoment, states))]
        found += [RoutePoint(level, moment) for moment in moments]
    return found


def may_take(route: Route, point: RoutePoint) -> bool:
    """True if a route can take a message at a point."""
    return point.moment in route.at and True in _truths(condition_of(route.when), _lane_facts(point))


def circle(routes: Sequence[Route], where: Iterable[RoutePoint]) -> tuple[list[int], list[Level]] | None:
    """Routes (their indices) that send a message round in a circle, and its levels; None where none do.

    For one or two routes whose conditions hold as far as the lane leaves them open, while all other open ones do not.
    """
    starts = list(where)
    chosen = [(index,) for index in range(len(routes))]
    pairs = [
        (one, other) for one, other in combinations(range(len(routes)), 2) if not exclude(routes[one], routes[other])
    ]
    for some in [*chosen, *pairs]:
        for start in starts:
            if (found := _round(routes, frozenset(some), start)) is not None:
                return found
    return None


def _round(routes: Sequence[Route], holding: frozenset[int], start: RoutePoint) -> tuple[list[int], list[Level]] | None:
    levels, followed, point = [start.level], [], start
    while (index := _first(routes, holding, point)) is not None and (to := routes[index].to) is not point.level:
        followed.append(index)
        if to in levels:
            first = levels.index(to)
            return sorted(followed[first:]), [*levels[first:], to]
        levels.append(to)
        point = point.after(to)
    return None


def _first(routes: Sequence[Route], holding: frozenset[int], point: RoutePoint) -> int | None:
    """Index of the first route that takes a message at a point."""
    known = _lane_facts(point)
    for index, route in enumerate(routes):
        if point.moment not in route.at:
            continue
        truths = _truths(condition_of(route.when), known)
        sure = truths == {True} and share_of(route) == 1
        if sure or (True in truths and index in holding):
            return index
    return None


class _LaneFacts(NamedTuple):
    """Facts that all messages at a point share. `names`: the facts that are the same for all of them."""

    names: frozenset[str]
    facts: RouteFacts


def _lane_facts(point: RoutePoint) -> _LaneFacts:
    fresh = point.moment is RouteMoment.DISPATCH
    names = frozenset({"level", "state", *(_ATTEMPTS if fresh else ())})
    return _LaneFacts(names, RouteFacts({}, "", "", "", 0, point.level, point.state))


def _truths(condition: Condition, known: _LaneFacts) -> frozenset[bool | None]:
    """Values that a condition may have if only these facts are fixed."""
    match condition:
        case RouteCondition():
            return _ANY
        case ast.Logic(operator, parts):
            return _join_truths([_truths(part, known) for part in parts], decisive=operator == "OR")
        case ast.Not(part):
            return frozenset(None if value is None else not value for value in _truths(part, known))
        case _ if all(isinstance(read, ast.Field) and read.name in known.names for read in ast.references(condition)):
            found = evaluate(condition, known.facts)
            return frozenset({None if found is None else found is True})
        case _:
            return _ANY


def _join_truths(parts: list[frozenset[bool | None]], *, decisive: bool) -> frozenset[bool | None]:
    """AND (decisive: false) or OR (decisive: true)."""
    return frozenset(_values(parts, decisive=decisive))


def _values(parts: list[frozenset[bool | None]], *, decisive: bool) -> Iterator[bool | None]:
    if any(decisive in part for part in parts):
        yield decisive
    if all(part - {decisive} for part in parts):
        if any(None in part for part in parts):
            yield None
        if all((not decisive) in part for part in parts):
            yield not decisive
