"""Flow of messages as DOT text, whose nodes are links to the sections of a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from kodoctl.render.graph_text import FONT, escape_dot
from kodoctl.text.escaping import printable
from kodoctl.topology.flow_graph import FlowKind

if TYPE_CHECKING:
    import networkx as nx

    from kodoctl.topology.flow_graph import FlowNode

COLOURS: Final = {
    FlowKind.PRODUCER: ("#e1eefc", "#1f5fa8"),
    FlowKind.TABLE: ("#f1f1ee", "#55554f"),
    FlowKind.TOPIC: ("#e3f4e6", "#2e7d46"),
    FlowKind.CONSUMER: ("#fff3d6", "#a86a00"),
    FlowKind.ELSEWHERE: ("#ffffff", "#6b7280"),
}
"""Kind of a node -> (fill, line)."""
_LONGEST: Final = 40  # characters of a name in a box
_DEFAULTS: Final = (
    f"  rankdir=LR; nodesep=0.2; ranksep=0.5; {FONT};",
    f'  node [shape=box, style="filled,rounded", penwidth=1.2, height=0.5, {FONT}, fontsize=12, fontcolor="#1b1b1b"];',
    '  edge [arrowsize=0.7, color="#6b7280"];',
)


def flow_dot(graph: nx.DiGraph[FlowNode], link: Callable[[FlowNode], str], caption: Callable[[FlowNode], str]) -> str:
    """Text of a DOT digraph. `link`: returns the address that a node leads to, "" for none; `caption`: returns the
    small text below its name. Name and caption are cut to 40 characters.
    """
    ids = {node: f"n{number}" for number, node in enumerate(graph)}
    lines = ["digraph flow {", *_DEFAULTS]
    for node, name in ids.items():
        fill, line = COLOURS[node.kind]
        dashed = ', style="filled,rounded,dashed"' if node.kind is FlowKind.ELSEWHERE else ""
        label = f'<B>{_text(node.name)}</B><BR/><FONT POINT-SIZE="9">{_text(caption(node))}</FONT>'
        lines.append(
            f'  {name} [label=<{label}>, URL="{escape_dot(link(node))}", fillcolor="{fill}", color="{line}"{dashed}];'
        )
    lines += [f"  {ids[source]} -> {ids[target]};" for source, target in graph.edges]
    return "\n".join([*lines, "}"])


def map_dot(pairs: Sequence[tuple[str, str]], names: Callable[[str], str], link: Callable[[str], str]) -> str:
    """Text of a DOT digraph of topologies, with an arrow for each pair. `pairs`: (file that sends, file that gets the
    messages); `names`: returns the name of the topology in a file, which is cut to 40 characters; `link`: returns the
    address of its page.
    """
    ids = {file: f"n{number}" for number, file in enumerate(dict.fromkeys(file for pair in pairs for file in pair))}
    fill, line = COLOURS[FlowKind.TOPIC]
    lines = ["digraph map {", *_DEFAULTS]
    for file, name in ids.items():
        label, url = f"<B>{_text(names(file))}</B>", escape_dot(link(file))
        lines.append(f'  {name} [label=<{label}>, URL="{url}", fillcolor="{fill}", color="{line}"];')
    lines += [f"  {ids[source]} -> {ids[target]};" for source, target in pairs]
    return "\n".join([*lines, "}"])


def _text(text: str) -> str:
    """A text for a label in Graphviz's markup, cut to the width of a box."""
    return escape(printable(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"))
