"""Route table: the first route that holds for a message says to which level it goes. Evaluated by senders and workers.

A choice at dispatch comes to rest: where the level that a route names would send the message on at once, the choice is
the last level; where that leads in a circle, the message stays. So a message that a sender sent straight there is at
rest for the worker that receives it, which need not believe that anybody evaluated the table before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_consumer.core.values.exclusive_levels import EVERYBODY
from kodoctl.topology.names import RouteMoment

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Level
    from kodo_consumer.core.values.exclusive_levels import ExclusiveLevels
    from kodoctl.topology.route_facts import RouteFacts

MAX_ROUTES: Final = 8
"""Moves of one message by routes; after them it stays in the lane that it is in, and is handled there."""
_DISPATCH: Final = frozenset({RouteMoment.DISPATCH})


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A route to the level `to`. `holds`: whether its condition holds for the facts of a message; None: this cannot be
    evaluated, and the route does not count. `at`: moments at which it is evaluated. It takes a `share` (0 to 1) of the
    messages for which it holds, chosen by `salt` and their message key, so that all of a key go or none; those without
    a key by their identity. `name`: for people, unlike that of any other route.
    """

    holds: Callable[[RouteFacts], bool | None] = field(compare=False)
    to: Level
    at: frozenset[RouteMoment] = _DISPATCH
    share: float = 1.0
    salt: str = ""
    name: str = ""


class RouteChoice(NamedTuple):
    """Choice of the routes. `to`: level, None: the message stays. `route`: the reason why an exclusive level took the
    message, if one did so before any route; else name of the first route that took it. `unknown`: names of routes that
    could not be evaluated. `circular`: the routes lead in a circle, so none counts; `to` is the level where the message
    belongs by exclusive levels (None: it is there), and `route` one in the circle.
    """

    to: Level | None = None
    route: str = ""
    unknown: tuple[str, ...] = ()
    circular: bool = False


@dataclass(frozen=True)
class RouteTable:
    """The routes of one subscription in their order. `closed`: levels that take no messages. If the first route that
    takes a message leads to one of these, or to the level of the message, no route moves the message. `exclusive`: a
    message that no route moves goes to the level where it belongs by these; at dispatch, routes judge it as if it were
    there already. Only routes count for which `ExclusiveLevels.routes_to` is true.
    """

    rules: tuple[RouteRule, ...] = ()
    closed: frozenset[Level] = frozenset()
    exclusive: ExclusiveLevels = EVERYBODY

    @cached_property
    def moments(self) -> frozenset[RouteMoment]:
        """Moments at which there is a route to evaluate."""
        return frozenset(moment for rule in self.rules for moment in rule.at)

    def on_dispatch(self, facts: RouteFacts) -> RouteChoice:
        """Choice for a message that is sent to `facts.level`, or received there for the first time: the level at the
        end of the chain, if routes of the chosen level would send it on. Only routes at dispatch count.
        """
        unknown: list[str] = []
        sent_to = facts.level
        belongs, route = self._place(facts)
        seen = [belongs]
        facts = replace(facts, level=belongs) if belongs is not sent_to else facts
        while (rule := self._first(facts, RouteMoment.DISPATCH, unknown)) is not None:
            if rule.to in seen:
                to, names = None if belongs is sent_to else belongs, tuple(dict.fromkeys(unknown))
                return RouteChoice(to, rule.name, names, circular=True)
            route = route or rule.name
            seen.append(rule.to)
            facts = replace(facts, level=rule.to)
        return RouteChoice(None if seen[-1] is sent_to else seen[-1], route, tuple(dict.fromkeys(unknown)))

    def on_leaving(self, facts: RouteFacts) -> RouteChoice:
        """Choice for a message whose wait in a waiting state, or in a backup level, is over: one step, because the
        level that it names evaluates no more routes. Raises ValueError for a ready lane of no backup level.
        """
        unknown: list[str] = []
        moment = RouteMoment.BACKUP if facts.level.is_backup else RouteMoment(facts.state.value)
        rule = self._first(facts, moment, unknown)
        belongs, route = self._place(facts)
        to, route = (belongs, route) if rule is None else (rule.to, rule.name)
        return RouteChoice(None if to is facts.level else to, route, tuple(unknown))

    def _place(self, facts: RouteFacts) -> tuple[Level, str]:
        """Level where the message belongs before any route counts, and why, where it is another one."""
        if not self.exclusive.tenants:
            return facts.level, ""
        belongs = self.exclusive.level_of(facts.tenant, facts.level)
        return belongs, "" if belongs is facts.level else self.exclusive.rule_for(facts.tenant, facts.level)

    def _first(self, facts: RouteFacts, moment: RouteMoment, unknown: list[str]) -> RouteRule | None:
        """The first route that takes the message; None where it is to stay, as there is none, or as it leads there.
        Names of routes that cannot be evaluated are added to `unknown`.
        """
        for rule in self.rules:
            if moment not in rule.at or not self.exclusive.routes_to(facts.tenant, rule.to):
                continue
            holds = rule.holds(facts)
            if holds is None:
                unknown.append(rule.name)
            elif holds and facts.chosen(rule.salt, rule.share):
                return None if rule.to is facts.level or rule.to in self.closed else rule
        return None


@dataclass(frozen=True)
class DispatchTable:
    """The tables of all subscriptions of a ground topic, as its senders evaluate them for the level they send to.

    Every subscription reads each message: only if all tables choose one level, it is sent there. Else it stays on its
    level, or goes where exclusive levels send its tenant, and each subscription's workers route it.
    """

    tables: tuple[RouteTable, ...]

    def choose(self, facts: RouteFacts) -> Level:
        """Level to which the sender publishes a message: `facts.level`, to which it was to go, unless all tables choose
        another one or an exclusive level decides.
        """
        chosen = {table.on_dispatch(facts).to for table in self.tables}
        if len(chosen) == 1:
            return chosen.pop() or facts.level
        return self.tables[0].exclusive.level_of(facts.tenant, facts.level) if self.tables else facts.level
