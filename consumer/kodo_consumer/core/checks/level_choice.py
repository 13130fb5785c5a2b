"""Level choice: the level where a message belongs, by a move by hand, else exclusive levels, else routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.envelope import FRESH, State, message_identity
from kodo_consumer.core.values.outcomes import Deferred, Routed
from kodo_consumer.core.values.route_table import MAX_ROUTES
from kodoctl.topology.route_facts import RouteFacts

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.policy import Policy

_SLOW: Final = 30_000  # ms on a level that does not admit a message which routes have moved as often as they may


def choose_level(in_flight: InFlight, policy: Policy, wall: int) -> Routed | Deferred | None:
    """Chooses another level for a message whose handler could run now. Returns Routed with that level, None if the
    message stays, or Deferred if it must leave, but later. Counts each route, and each route that was stopped, in the
    message's lane. `wall`: ms since the epoch.

    A move of the tenant by hand comes first: a message that it takes goes to its level, and one on its level stays,
    whatever routes and exclusive levels say. Routes are evaluated at the first receipt from a ready lane (the sender
    may have evaluated them before), and whenever a wait in a waiting state or a backup level is over. Headers of a
    first delivery do not count, because any sender may write them. A message with MAX_ROUTES (8) such moves, or without
    a hop left, stays. But a message that exclusive levels send away from its level leaves even after MAX_ROUTES moves,
    then only 30 s after its publish time, or at once if that is 30 s in the future: workers with different files would
    otherwise send it to and fro without a pause.
    """
    lane, headers, tenant = in_flight.lane.lane, in_flight.headers, in_flight.tenant
    move = policy.moves.get(tenant) if policy.moves else None
    if move is not None:
        if lane.level is move.to:
            return None
        if move.takes(lane.level, lane.state, headers, in_flight.delivery.publish_time):
            return _limit_moves(in_flight, policy, Routed(move.to, move.name), "by hand")
    table, exclusive = policy.route_table, policy.exclusive
    belongs = exclusive.level_of(tenant, lane.level) if exclusive.tenants else lane.level
    if not table.rules and belongs is lane.level:
        return None
    first = lane.state is State.READY and headers.first_receipt and not headers.backup
    waited = lane.state is not State.READY or (lane.level.is_backup and (headers.backup or headers.due is not None))
    route = None
    if table.rules and (first or waited):
        route = _route(in_flight, policy, first=first)
    if route is not None and belongs is lane.level:
        return _limit_moves(in_flight, policy, route, route.route)
    if route is None and belongs is not lane.level:
        route = Routed(belongs, exclusive.rule_for(tenant, lane.level))
    if route is None:
        return None
    on_level = wall - in_flight.delivery.publish_time  # negative if the clock of the worker that sent it is ahead
    if headers.routes >= MAX_ROUTES and abs(on_level) < _SLOW:
        in_flight.lane.count("route_stopped", "exclusive")
        return Deferred("moved too often")
    in_flight.lane.count("routed", "exclusive level")
    return route


def _route(in_flight: InFlight, policy: Policy, *, first: bool) -> Routed | None:
    """Returns the choice of the route table, None: the message stays. Counts routes that cannot be evaluated."""
    lane, headers, delivery, table = in_flight.lane.lane, in_flight.headers, in_flight.delivery, policy.route_table
    believed = FRESH if first else headers
    facts = RouteFacts(
        delivery.properties,
        delivery.key,
        policy.tenant(delivery.properties, delivery.key),
        message_identity(delivery, headers),
        len(delivery.payload or b""),
        lane.level,
        lane.state,
        (believed.retrying, believed.pending, believed.blocking, believed.backup),
        believed.reason,
    )
    choice = table.on_dispatch(facts) if first else table.on_leaving(facts)
    for name in choice.unknown:
        in_flight.lane.count("route_unknown", name)
    if choice.circular:
        in_flight.lane.count("route_stopped", "circular")
    return None if choice.to is None else Routed(choice.to, choice.route)


def _limit_moves(in_flight: InFlight, policy: Policy, route: Routed, name: str) -> Routed | None:
    """Returns the route, or None after too many moves. Counts either in the lane; `name`: the route in that counter."""
    headers = in_flight.headers
    if headers.routes >= MAX_ROUTES or headers.hop >= policy.max_hops + headers.postponed:
        in_flight.lane.count("route_stopped", "used up")
        return None
    in_flight.lane.count("routed", name)
    return route
