"""Flow between senders, ground topics and consumers, as a graph of networkx: who sends to which topic, and who reads
it.

It is the view from outside of a topic family. The lanes within one are in kodoctl.topology.graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import networkx as nx

from kodoctl.topology.change_sources import change_sources
from kodoctl.topology.names import produced_topic

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion


class FlowKind(StrEnum):
    """Kind of a node: a role that sends, a table of a source, a ground topic, a subscription, or a topic that no file
    declares.
    """

    PRODUCER = "producer"
    TABLE = "table"
    TOPIC = "topic"
    CONSUMER = "consumer"
    ELSEWHERE = "declared elsewhere"


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A node of the flow. `file`: the topology file that declares it (a role in two files is two nodes), "" for a topic
    that no file declares; `ground`: the ground topic that a subscription reads, "" for other kinds; `name`: as in the
    file, of a table `SOURCE: TABLE`, of a topic that no file declares its full name without `persistent://`.
    """

    kind: FlowKind
    file: str
    name: str
    ground: str = ""


def flow_graph(expansions: Iterable[Expansion]) -> nx.DiGraph[FlowNode]:
    """Returns the flow of all topologies, with edges from producers and tables to ground topics, from these to their
    subscriptions, and from subscriptions to the topics that their handlers send to. Functions and connectors are left
    out.
    """
    graph: nx.DiGraph[FlowNode] = nx.DiGraph()
    everything = tuple(expansions)
    declared = {
        topic.name: FlowNode(FlowKind.TOPIC, one.topology.source.name, topic.ground)
        for one in everything
        for topic in one.topics
    }
    for one in everything:
        graph.add_nodes_from(
            FlowNode(FlowKind.TOPIC, one.topology.source.name, name) for name in one.topology.spec.topics
        )
        graph.add_edges_from(_edges_into(one))
        for name, ground in one.topology.spec.topics.items():
            topic = FlowNode(FlowKind.TOPIC, one.topology.source.name, name)
            for reader, subscription in ground.subscriptions.items():
                consumer = FlowNode(FlowKind.CONSUMER, topic.file, reader, name)
                graph.add_edge(topic, consumer)
                for target in subscription.produces:
                    found = produced_topic(one.namespace, target)
                    graph.add_edge(
                        consumer,
                        declared.get(found, FlowNode(FlowKind.ELSEWHERE, "", found.full.removeprefix("persistent://"))),
                    )
    return graph


def _edges_into(expansion: Expansion) -> Iterator[tuple[FlowNode, FlowNode]]:
    """Yields the edges from roles and tables to the ground topics of a file."""
    spec, file = expansion.topology.spec, expansion.topology.source.name
    for name, ground in spec.topics.items():
        for role in ground.producers:
            yield FlowNode(FlowKind.PRODUCER, file, role), FlowNode(FlowKind.TOPIC, file, name)
    for source in change_sources(spec):
        for name, tables in source.targets(spec).items():
            for table in tables:
                yield (
                    FlowNode(FlowKind.TABLE, file, f"{source.name}: {table.name}"),
                    FlowNode(FlowKind.TOPIC, file, name),
                )


def flow_of(graph: nx.DiGraph[FlowNode], file: str) -> nx.DiGraph[FlowNode]:
    """The part of a flow with the nodes of one file and their direct neighbours, of other files or of none."""
    own = [node for node in graph if node.file == file]
    part: nx.DiGraph[FlowNode] = nx.DiGraph()
    part.add_nodes_from(own)
    part.add_edges_from((*graph.in_edges(own), *graph.out_edges(own)))
    return part


def flow_between(graph: nx.DiGraph[FlowNode]) -> list[tuple[str, str]]:
    """(file that sends, other file that declares the topic) for each such pair of topology files, once, in the order of
    the flow.
    """
    pairs = ((source.file, target.file) for source, target in graph.edges if source.file and target.file)
    return list(dict.fromkeys((source, target) for source, target in pairs if source != target))
