"""Graph of lanes and moves (networkx): from which lane a message can go to which, and why.

It is the static half of the consumer's state machine (docs/explanation/consumer.md): moves that are possible, not moves
that happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import networkx as nx

from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.text.formatting import many
from kodoctl.topology import defaults
from kodoctl.topology.change_sources import change_sources
from kodoctl.topology.model.subscription import Limit, QuotaLimit, RateLimit
from kodoctl.topology.names import WAITING_STATES, Level, RouteMoment, State, TopicName, produced_topic
from kodoctl.topology.route_analysis import may_take, points
from kodoctl.topology.route_conditions import in_words
from kodoctl.topology.slot_ranges import limited_lanes

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import GroundTopic, Subscription


_NAMED = 3  # tenants of an exclusive level that an arrow names


class MoveReason(StrEnum):
    """Reason for a move of a message from one lane to another."""

    FAILED = "failed"
    OVER_RATE = "over rate"
    OVER_QUOTA = "over quota"
    EXHAUSTED = "attempts used up"
    ISOLATED = "isolated"
    ROUTE = "route"
    RECALL = "recall"
    PRODUCES = "produces"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A lane: one topic that messages wait in. `level` is None for dead letters and for topics that no file declares;
    `subscription` is None for ready topics; `draining`: nobody writes to it; `declared` False: no file declares it.

    A table of a source is a node, too: `state` is None then, `ground` names the source, and the topic's local name is
    that of the table.
    """

    topic: TopicName
    ground: str
    level: Level | None
    state: State | None
    subscription: str | None = None
    draining: bool = False
    declared: bool = True


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A possible move. `subscription`: the one whose messages move, "" for a source of change data; `label`: text on
    the arrow.
    """

    reason: MoveReason
    subscription: str
    label: str


Edge = tuple[GraphNode, GraphNode, GraphEdge]


def lane_graph(expansions: Iterable[Expansion], ground: str | None = None) -> nx.MultiDiGraph[GraphNode]:
    """Returns all lanes and moves, tables of sources included. With `ground`: only the families of the ground topics
    with that name, the tables that are sent to them, and the topics that their handlers send to, without these topics'
    families.

    Nodes are `GraphNode`s; each edge has its `GraphEdge` as the attribute `move`.
    """
    graph: nx.MultiDiGraph[GraphNode] = nx.MultiDiGraph()
    everything = tuple(expansions)
    declared = _declared_lanes(everything)
    for expansion in everything:
        families, changes = _families(expansion), _changes_by_ground(expansion)
        for name, lanes in families.items():
            if ground in (None, name):
                _add_family(graph, expansion, name, lanes, declared)
        for name, tables in changes.items():
            if ground in (None, name):
                _add_changes(graph, expansion, name, tables, declared)
    return graph


def ground_lane_graphs(expansion: Expansion) -> Iterator[tuple[str, nx.MultiDiGraph[GraphNode]]]:
    """Yields (name, graph) for each ground topic of a topology: the graph is the one that `lane_graph` returns for this
    topology and this ground topic. Faster than a call of `lane_graph` for each topic, because the topology is searched
    once.
    """
    declared, families, changes = _declared_lanes([expansion]), _families(expansion), _changes_by_ground(expansion)
    for ground in expansion.topology.spec.topics:
        graph: nx.MultiDiGraph[GraphNode] = nx.MultiDiGraph()
        _add_family(graph, expansion, ground, families.get(ground, []), declared)
        _add_changes(graph, expansion, ground, changes.get(ground, []), declared)
        yield ground, graph


def _declared_lanes(expansions: Iterable[Expansion]) -> dict[TopicName, GraphNode]:
    return {lane.topic: lane for expansion in expansions for lane in _lanes(expansion)}


def _families(expansion: Expansion) -> dict[str, list[GraphNode]]:
    """The lanes of each ground topic."""
    families: dict[str, list[GraphNode]] = {}
    for lane in _lanes(expansion):
        families.setdefault(lane.ground, []).append(lane)
    return families


def _changes_by_ground(expansion: Expansion) -> dict[str, list[tuple[GraphNode, GraphEdge]]]:
    """The tables of sources, and their moves, by the ground topic that they are sent to."""
    changes: dict[str, list[tuple[GraphNode, GraphEdge]]] = {}
    for table, ground, move in _changes(expansion):
        changes.setdefault(ground, []).append((table, move))
    return changes


def _add_family(
    graph: nx.MultiDiGraph[GraphNode],
    expansion: Expansion,
    ground: str,
    lanes: list[GraphNode],
    declared: Mapping[TopicName, GraphNode],
) -> None:
    graph.add_nodes_from(lanes)
    for source, target, move in _moves(expansion, ground, lanes, declared) if lanes else ():
        graph.add_edge(source, target, move=move)


def _add_changes(
    graph: nx.MultiDiGraph[GraphNode],
    expansion: Expansion,
    ground: str,
    tables: list[tuple[GraphNode, GraphEdge]],
    declared: Mapping[TopicName, GraphNode],
) -> None:
    target = TopicName(expansion.namespace, ground)
    graph.add_edges_from((table, declared[target], {"move": move}) for table, move in tables if target in declared)


def _moves(
    expansion: Expansion, ground: str, lanes: list[GraphNode], declared: Mapping[TopicName, GraphNode]
) -> Iterator[Edge]:
    spec = expansion.topology.spec.topics[ground]
    for name, subscription in spec.subscriptions.items():
        family = _Family(spec, name, subscription, lanes)
        if Level.L1 in family.levels:  # or the file is wrong, and lint says so
            yield from family.moves()
            yield from _produced_edges(expansion, family, declared)


def _changes(expansion: Expansion) -> Iterator[tuple[GraphNode, str, GraphEdge]]:
    """Yields (table, ground topic, move) for the tables of the sources; messages of a source begin in L1."""
    spec = expansion.topology.spec
    for source in change_sources(spec):
        for ground, tables in source.targets(spec).items():
            for table in tables:
                name = TopicName(expansion.namespace, table.name)
                label = "outbox row" if table.spec.outbox else "changed row"
                yield (
                    GraphNode(name, f"source {source.name}", None, None),
                    ground,
                    GraphEdge(MoveReason.CHANGE, "", label),
                )


def _lanes(expansion: Expansion) -> Iterator[GraphNode]:
    for topic in expansion.topics:
        if topic.state is not None:  # audit records are no messages
            draining = expansion.is_draining(topic)
            yield GraphNode(topic.name, topic.ground, topic.level, topic.state, topic.subscription, draining)


class _Family:
    """A topic family as one subscription sees it, and the moves of its messages."""

    def __init__(self, ground: GroundTopic, name: str, subscription: Subscription, lanes: list[GraphNode]) -> None:
        self.ground, self.name, self.subscription = ground, name, subscription
        self.lanes = {(lane.level, lane.state): lane for lane in lanes if lane.subscription in (None, name)}
        self.levels = defaults.read_levels(ground)
        self.dead = self.lanes.get((None, State.DEAD))

    def open(self, level: Level, state: State) -> GraphNode | None:
        """The lane, if messages may be sent there, else None. A draining level uses the waiting states of L1."""
        if state is not State.READY and level in self.ground.draining:
            level = Level.L1
        lane = self.lanes.get((level, state))
        return None if lane is None or lane.draining else lane

    def moves(self) -> Iterator[Edge]:
        """Yields every move between lanes of this family."""
        keeps_order = self.subscription.type != "shared"
        if keeps_order and self.subscription.on_failure != "leave":
            for level in self.levels:
                if self.subscription.on_failure != "block":
                    yield from self.move(self.lanes[level, State.READY], self.dead, MoveReason.EXHAUSTED)
        else:
            for level in self.levels:
                yield from self.failures(level)
        if not keeps_order:
            for level in self.levels:
                yield from self.limits(level)
            yield from self.exclusive_levels()
            yield from self.routes()
        for level in self.levels:
            yield from self.exhausted(level)
        yield from self.recalls()

    def move(self, source: GraphNode, target: GraphNode | None, reason: MoveReason, label: str = "") -> Iterator[Edge]:
        if target is not None and target != source:
            yield source, target, GraphEdge(reason, self.name, label or reason.value)

    def failures(self, level: Level) -> Iterator[Edge]:
        ready = self.lanes[level, State.READY]
        if level.is_backup:
            yield from self.move(ready, self.dead, MoveReason.EXHAUSTED)
        else:
            yield from self.move(ready, self.open(level, State.RETRYING) or self.last_stop(level), MoveReason.FAILED)

    def last_stop(self, level: Level) -> GraphNode | None:
        """Lane for messages that have used up their attempts: B1 if it is active and below `level`, else the dead
        letters; None without both.
        """
        backup = self.open(Level.B1, State.READY)
        return backup if backup is not None and level.rank < Level.B1.rank else self.dead

    def limits(self, level: Level) -> Iterator[Edge]:
        if level.is_backup:
            return
        ready = self.lanes[level, State.READY]
        pending, blocking = self.open(level, State.PENDING), self.open(level, State.BLOCKING)
        kinds = set(self.limits_that_move(ready, pending, blocking))
        over_rate = MoveReason.OVER_RATE.value if RateLimit in kinds else "Pending raised"
        over_quota = MoveReason.OVER_QUOTA.value if QuotaLimit in kinds else "Blocking raised"
        yield from self.move(ready, pending, MoveReason.OVER_RATE, over_rate)
        if blocking is not None or QuotaLimit in kinds:
            yield from self.move(ready, blocking or pending, MoveReason.OVER_QUOTA, over_quota)
        isolation = defaults.isolation(self.ground, self.subscription)
        if isolation is not None:
            to_backup = self.open(Level.B1, State.READY) if level.rank < Level.B1.rank else None
            yield from self.move(ready, to_backup if isolation.to == "B1" else pending, MoveReason.ISOLATED)

    def limits_that_move(
        self, ready: GraphNode, pending: GraphNode | None, blocking: GraphNode | None
    ) -> Iterator[type[Limit]]:
        """Yields the kinds of limits over which messages of a ready lane move to a waiting one. A limit that does not
        apply in that waiting lane too does not move them.
        """
        for limit in self.subscription.limits:
            lanes = limited_lanes(self.ground, self.subscription, limit.in_)
            met = (ready, pending) if isinstance(limit, RateLimit) else (ready, pending, blocking)
            if {(lane.level, lane.state) for lane in met if lane is not None} <= lanes:
                yield type(limit)

    def exhausted(self, level: Level) -> Iterator[Edge]:
        """Yields moves of messages that have used up the attempts of a waiting state, draining states included."""
        retrying = self.open(level, State.RETRYING)
        for state in WAITING_STATES:
            if (lane := self.lanes.get((level, state))) is not None:
                onward = retrying if state is not State.RETRYING else None
                yield from self.move(lane, onward or self.last_stop(level), MoveReason.EXHAUSTED)

    def routes(self) -> Iterator[Edge]:
        """Yields moves by routes: from L1, to which producers send, and from the waiting states and backup levels at
        which a route is evaluated. Messages that already wait in a target are not moved.
        """
        for route in self.subscription.routes:
            target, label = self.open(route.to, State.READY), in_words(route.when)
            if RouteMoment.DISPATCH in route.at:
                yield from self.move(self.lanes[Level.L1, State.READY], target, MoveReason.ROUTE, label)
            with suppress(ConditionError):  # which lint reports
                for point in points(self.ground, self.subscription):
                    if point.moment is not RouteMoment.DISPATCH and may_take(route, point):
                        yield from self.move(self.lanes[point.level, point.state], target, MoveReason.ROUTE, label)

    def exclusive_levels(self) -> Iterator[Edge]:
        """Yields moves from L1, to which producers send, to the levels that are reserved for some tenants."""
        for level, tenants in self.ground.exclusive_levels.items():
            more = f" and {many(len(tenants) - _NAMED, 'tenant')} more" if len(tenants) > _NAMED else ""
            label = f"only {', '.join(tenants[:_NAMED])}{more}"
            yield from self.move(
                self.lanes[Level.L1, State.READY], self.open(level, State.READY), MoveReason.ROUTE, label
            )

    def recalls(self) -> Iterator[Edge]:
        """Yields moves by recalls: to retrying of the level a message died in; without any retrying, to L1 (`--to`)."""
        if self.dead is None:
            return
        lanes = (self.open(level, State.RETRYING) for level in self.levels)
        targets = dict.fromkeys(lane for lane in lanes if lane is not None)
        for target in targets:
            yield from self.move(self.dead, target, MoveReason.RECALL)
        if not targets:
            yield from self.move(self.dead, self.lanes[Level.L1, State.READY], MoveReason.RECALL, "recall --to L1")


def _produced_edges(expansion: Expansion, family: _Family, lanes: Mapping[TopicName, GraphNode]) -> Iterator[Edge]:
    for text in family.subscription.produces:
        name = produced_topic(expansion.namespace, text)
        target = lanes.get(name) or GraphNode(name, name.local, None, State.READY, declared=False)
        source = family.lanes[Level.L1, State.READY]
        yield from family.move(source, target, MoveReason.PRODUCES, f"produces ({family.name})")


def find_rings(flows: Mapping[TopicName, Iterable[TopicName]]) -> list[list[TopicName]]:
    """Returns one ring for each group of topics that can reach each other, and for each topic that leads to itself
    alone, sorted; [] if there is none. A ring is a list of topics in the direction of the flow, which begins at its
    smallest topic. A group (a strongly connected component) may contain further rings. `flows`: topic -> topics that
    its messages lead to.
    """
    graph = nx.DiGraph([(source, target) for source, targets in flows.items() for target in targets])
    rings = []
    for component in nx.strongly_connected_components(graph):
        if len(component) > 1 or any(graph.has_edge(node, node) for node in component):
            ring = [source for source, _ in nx.find_cycle(graph.subgraph(component), min(component))]
            start = ring.index(min(ring))
            rings.append([*ring[start:], *ring[:start]])
    return sorted(rings)
