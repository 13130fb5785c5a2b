"""Lanes and moves as Mermaid and DOT text: Mermaid shows in pull requests and wikis, DOT goes to Graphviz."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

import networkx as nx

from kodoctl.text.escaping import printable
from kodoctl.topology.graph import GraphEdge, GraphNode, MoveReason
from kodoctl.topology.names import State

Graph = nx.MultiDiGraph  # of GraphNode, with a GraphEdge on each edge

FILLS: Final = {
    State.READY: ("#e3f4e6", "#2e7d46"),
    State.RETRYING: ("#fff3d6", "#a86a00"),
    State.PENDING: ("#e1eefc", "#1f5fa8"),
    State.BLOCKING: ("#eee7fb", "#6a3fb0"),
    State.DEAD: ("#fde4e2", "#b3261e"),
    None: ("#f1f1ee", "#55554f"),
}
"""State, None for a table of a source -> (fill, line): colours that also differ in brightness, for readers who cannot
tell colours apart.
"""

ARROW_COLOURS: Final = {
    MoveReason.FAILED: "#a86a00",
    MoveReason.EXHAUSTED: "#7a4d00",
    MoveReason.OVER_RATE: "#1f5fa8",
    MoveReason.OVER_QUOTA: "#6a3fb0",
    MoveReason.ISOLATED: "#0b7285",
    MoveReason.ROUTE: "#0b7285",
    MoveReason.RECALL: "#b3261e",
    MoveReason.PRODUCES: "#2e7d46",
    MoveReason.CHANGE: "#55554f",
}

FONT: Final = 'fontname="Helvetica,Arial,sans-serif"'
"""Attribute of DOT graphs, nodes and edges."""
_DOT_DEFAULTS: Final = (
    f"  rankdir=LR; nodesep=0.3; ranksep=0.6; labeljust=l; {FONT};",
    f'  node [shape=box, style="filled,rounded", penwidth=1.2, {FONT}, fontsize=10, fontcolor="#1b1b1b"];',
    f"  edge [arrowsize=0.7, {FONT}, fontsize=9];",
)
_DOT_GROUND: Final = 'fontsize=14; fontcolor="#1b1b1b"; style=rounded; color="#c9ced6";'
_DOT_LEVEL: Final = 'fontsize=11; fontcolor="#6b7280"; style="filled,rounded"; fillcolor="#f5f6f8"; color="#e1e4e8";'
_LABEL_WIDTH: Final = 32  # letters on a line beside an arrow


def arrows(graph: Graph[GraphNode]) -> list[tuple[GraphNode, GraphNode, list[GraphEdge]]]:
    """(source, target, moves) of each arrow: one arrow for all moves from one lane to another, except recalls, which
    have an arrow of their own. Moves of an arrow with the same label are listed once.
    """
    together: dict[tuple[GraphNode, GraphNode, bool], list[GraphEdge]] = {}
    edges: Iterable[tuple[GraphNode, GraphNode, GraphEdge]] = graph.edges(data="move")
    for source, target, move in edges:
        same = together.setdefault((source, target, move.reason is MoveReason.RECALL), [])
        if move.label not in [known.label for known in same]:
            same.append(move)
    return [(source, target, moves) for (source, target, _), moves in together.items()]


def groups(lanes: Iterable[GraphNode]) -> list[tuple[str, dict[str, list[GraphNode]]]]:
    """(ground topic, its lanes by level) for each ground topic, in the order of `lanes`. Lanes without a level have the
    level ""; the name of a topic of another file ends with ` (declared elsewhere)`.
    """
    found: dict[str, dict[str, list[GraphNode]]] = {}
    for lane in lanes:
        ground = lane.ground if lane.declared else f"{lane.ground} (declared elsewhere)"
        found.setdefault(ground, {}).setdefault(lane.level.value if lane.level else "", []).append(lane)
    return list(found.items())


def mermaid(graph: Graph[GraphNode]) -> str:
    """Text of a Mermaid flowchart: a frame for each ground topic, with one for each level in it; a box for each lane,
    coloured by state. An arrow is for all moves from one box to another; recalls have an arrow of their own.
    """
    ids = {lane: f"n{number}" for number, lane in enumerate(graph)}
    lines = ["flowchart LR"]
    for number, (ground, levels) in enumerate(groups(graph)):
        lines.append(f'  subgraph g{number}["{_escape_mermaid(ground)}"]')
        for level, lanes in levels.items():
            inside = "    "
            if level:
                lines.append(f'    subgraph g{number}_{level}["{level}"]')
                inside = "      "
            lines += [f'{inside}{ids[lane]}["{_escape_mermaid(_name(lane))}"]:::{_kind(lane.state)}' for lane in lanes]
            lines += ["    end"] if level else []
        lines.append("  end")
    for source, target, moves in arrows(graph):
        arrow = "-." if moves[0].reason is MoveReason.RECALL else "--"
        head = ".->" if arrow == "-." else "-->"
        label = "<br/>".join(_escape_mermaid(move.label) for move in moves)
        lines.append(f'  {ids[source]} {arrow} "{label}" {head} {ids[target]}')
    for state in dict.fromkeys([*State, *(lane.state for lane in graph)]):
        fill, line = FILLS[state]
        lines.append(f"  classDef {_kind(state)} fill:{fill},stroke:{line},color:#1b1b1b")
    return "\n".join(lines)


def _escape_mermaid(text: str) -> str:
    return printable(text).replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _kind(state: State | None) -> str:
    return "table" if state is None else state.value


def _name(lane: GraphNode) -> str:
    return f"{lane.topic.local}{' (draining)' if lane.draining else ''}"


def dot(graph: Graph[GraphNode]) -> str:
    """Text of a DOT digraph: a frame for each ground topic, with one for each level in it; boxes coloured by state. An
    arrow is for all moves from one box to another, and has the colour of the first. Recalls have an arrow of their own,
    whose edge is written from the target to the source, with `dir=back`.
    """
    ids = {lane: f"n{number}" for number, lane in enumerate(graph)}
    lines = ["digraph topology {", *_DOT_DEFAULTS]
    for number, (ground, levels) in enumerate(groups(graph)):
        lines += [f"  subgraph cluster_{number} {{", f'    label="{escape_dot(ground)}"; {_DOT_GROUND}']
        for level, lanes in levels.items():
            if level:
                lines += [f"    subgraph cluster_{number}_{level} {{", f'      label="{level}"; {_DOT_LEVEL}']
            lines += [f"      {ids[lane]} {_dot_node(lane)};" for lane in lanes]
            lines += ["    }"] if level else []
        lines.append("  }")
    for source, target, moves in arrows(graph):
        colour = ARROW_COLOURS[moves[0].reason]
        label = "\\n".join(escape_dot(line) for move in moves for line in textwrap.wrap(move.label, _LABEL_WIDTH))
        ends, style = (source, target), ""
        if moves[0].reason is MoveReason.RECALL:  # drawn from the other end: dead letters stand behind all else
            ends, style = (target, source), ", dir=back, style=dashed"
        arrow = " -> ".join(ids[lane] for lane in ends)
        lines.append(f'  {arrow} [label="{label}", color="{colour}", fontcolor="{colour}"{style}];')
    return "\n".join([*lines, "}"])


def _dot_node(lane: GraphNode) -> str:
    fill, line = FILLS[lane.state]
    style = ', style="filled,rounded,dashed"' if lane.draining or not lane.declared else ""
    return f'[label="{escape_dot(_name(lane))}", fillcolor="{fill}", color="{line}"{style}]'


def escape_dot(text: str) -> str:
    """Text for a quoted DOT string, which it cannot end. Graphviz shows the text as it is, but characters that are not
    printable as escapes (`printable`).
    """
    return printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
