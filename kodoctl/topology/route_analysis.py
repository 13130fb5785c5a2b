"""Analysis of the routes of a file: lanes that a route is evaluated in, routes that lead in a circle.

A lane determines a message's level, state and, at dispatch, attempts. All other facts may have any value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, combinations
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
_NEVER: Final = frozenset[bool | None]({False, None})
_ATTEMPTS: Final = ("attempts", "attempts_retrying", "attempts_pending", "attempts_blocking", "attempts_backup")


@dataclass(frozen=True, slots=True, order=True)
class RoutePoint:
    """A place and a moment at which routes are evaluated: for a message that is sent to `level` (`moment` is dispatch),
    or whose wait ends in the lane of `level` and the state that `moment` names (`backup`: in that backup level).
    """

    level: Level
    moment: RouteMoment

    @property
    def state(self) -> State:
        """State of the lane."""
        waiting = self.moment not in (RouteMoment.DISPATCH, RouteMoment.BACKUP)
        return State(self.moment.value) if waiting else State.READY

    def after(self, level: Level, known: Iterable[RoutePoint]) -> list[RoutePoint]:
        """The points at which routes may be evaluated next, after a route at this point sent a message to `level`. At
        dispatch: that level at dispatch, at once. Otherwise the message is handled there, and if that fails: `backup`
        in a backup level, else the end of a wait in the same state. A message that comes out of a backup level may wait
        in any state: then these are the points of `level`, among all points of the subscription (`known`), at the end
        of a wait.
        """
        if level.is_backup and self.moment is not RouteMoment.DISPATCH:
            return [RoutePoint(level, RouteMoment.BACKUP)]
        if self.moment is RouteMoment.BACKUP:
            return [one for one in known if one.level is level and one.moment is not RouteMoment.DISPATCH]
        return [RoutePoint(level, self.moment)]


def points(ground: GroundTopic, subscription: Subscription) -> list[RoutePoint]:
    """All points at which routes are evaluated for a subscription, highest level first: dispatch on each level that is
    read, and the end of a wait in each of its waiting states or, on a backup level, in that level.
    """
    found = []
    for level in defaults.read_levels(ground):
        states = () if level.is_backup else defaults.read_states(subscription)
        moments = [RouteMoment.DISPATCH, *([RouteMoment.BACKUP] if level.is_backup else map(RouteMoment, states))]
        found += [RoutePoint(level, moment) for moment in moments]
    return found


def may_take(route: Route, point: RoutePoint) -> bool:
    """True if a route is evaluated at a point and can match a message there. Raises ConditionError for a condition that
    cannot be parsed.
    """
    return point.moment in route.at and True in _truths(condition_of(route.when), _lane_facts(point))


def circle(routes: Sequence[Route], where: Iterable[RoutePoint]) -> tuple[list[int], list[Level]] | None:
    """(indices of its routes, levels) of the first circle in which routes send a message; None if none is found. The
    levels begin and end with the same one. `where`: all points of the subscription, at each of which a message may
    begin. The search assumes that one or two routes match wherever the lane does not exclude that, and all others only
    where the lane makes them match. Raises ConditionError for a condition that cannot be parsed.
    """
    starts, indices = list(where), range(len(routes))
    takers = cache(partial(_takers, routes))
    kinds = [(route.to, *(index in takers(point)[0] for point in starts)) for index, route in enumerate(routes)]
    tried = set()  # routes of the same kinds lead the same way: hundreds of routes are mostly of a few kinds
    for some in chain(combinations(indices, 1), combinations(indices, 2)):
        alike = tuple(kinds[index] for index in some)
        if alike in tried or (len(some) == 2 and exclude(*(routes[index] for index in some))):
            continue
        tried.add(alike)
        for start in starts:
            if (found := _round(routes, takers, frozenset(some), starts, start)) is not None:
                return found
    return None


def _round(
    routes: Sequence[Route],
    takers: Callable[[RoutePoint], tuple[frozenset[int], int]],
    holding: frozenset[int],
    known: Sequence[RoutePoint],
    start: RoutePoint,
) -> tuple[list[int], list[Level]] | None:
    """The circle from `start` if the routes in `holding` match wherever they may; None if there is none."""
    ways: list[tuple[list[RoutePoint], list[int]]] = [([start], [])]
    while ways:
        passed, followed = ways.pop()
        point = passed[-1]
        possible, sure = takers(point)
        index = min(sure, *(holding & possible), len(routes))
        if index == len(routes) or (to := routes[index].to) is point.level:
            continue
        followed = [*followed, index]
        for following in point.after(to, known):
            if following in passed:
                first = passed.index(following)
                return sorted(followed[first:]), [*(one.level for one in passed[first:]), to]
            ways.append(([*passed, following], followed))
    return None


def _takers(routes: Sequence[Route], point: RoutePoint) -> tuple[frozenset[int], int]:
    """(indices of routes that may take a message at a point, index of the route that certainly takes it there if no
    earlier one does; `len(routes)` without one). Later routes than that one are left out.
    """
    known = _lane_facts(point)
    possible = set()
    for index, route in enumerate(routes):
        truths = _truths(condition_of(route.when), known) if point.moment in route.at else _NEVER
        if True in truths:
            possible.add(index)
        if truths == {True} and share_of(route) == 1:
            return frozenset(possible), index
    return frozenset(possible), len(routes)


class _LaneFacts(NamedTuple):
    """Facts of a message at a point. `names`: those that are the same for all messages there; the others are dummies."""

    names: frozenset[str]
    facts: RouteFacts


def _lane_facts(point: RoutePoint) -> _LaneFacts:
    fresh = point.moment is RouteMoment.DISPATCH
    names = frozenset({"level", "state", *(_ATTEMPTS if fresh else ())})
    return _LaneFacts(names, RouteFacts({}, "", "", "", 0, point.level, point.state))


def _truths(condition: Condition, known: _LaneFacts) -> frozenset[bool | None]:
    """Values that a condition may have if only the facts in `known.names` are fixed."""
    match condition:
        case RouteCondition(in_=()):
            return _NEVER
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
    """Possible values of AND (`decisive` False) or OR (`decisive` True) of parts with these possible values."""
    return frozenset(_values(parts, decisive=decisive))


def _values(parts: list[frozenset[bool | None]], *, decisive: bool) -> Iterator[bool | None]:
    if any(decisive in part for part in parts):
        yield decisive
    if all(part - {decisive} for part in parts):
        if any(None in part for part in parts):
            yield None
        if all((not decisive) in part for part in parts):
            yield not decisive
