"""Levels, states and flows as networkx graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx

from kodoctl.topology.names import TopicName


def find_rings(flows: Mapping[TopicName, Iterable[TopicName]]) -> list[list[TopicName]]:
    """Every ring in the flow of messages, each once, beginning at its smallest topic."""
    graph = nx.DiGraph([(source, target) for source, targets in flows.items() for target in targets])
    rings = []
    for component in nx.strongly_connected_components(graph):
        if len(component) > 1 or any(graph.has_edge(node, node) for node in component):
            ring = [source for source, _ in nx.find_cycle(graph.subgraph(component), min(component))]
            start = ring.index(min(ring))
            rings.append([*ring[start:], *ring[:start]])
    return sorted(rings)
