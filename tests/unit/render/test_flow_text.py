"""DOT of the flow: boxes that link to sections, and no text of a file that ends its label."""

from __future__ import annotations

from kodoctl.render.flow_text import flow_dot, map_dot
from kodoctl.topology.flow_graph import FlowKind, flow_graph
from tests.unit.topology.topology_files import expanded

BODY = 'topics: {J: {producers: ["<b>\\"\\n]"], subscriptions: {s: {produces: [x/y/Z]}}}}'


def test_boxes_have_a_name_a_caption_and_a_link() -> None:
    text = flow_dot(
        flow_graph([expanded(BODY)]),
        lambda node: "" if node.kind is FlowKind.ELSEWHERE else f"t.html#{node.name[:1]}",
        lambda node: node.kind.value,
    )
    assert text.startswith("digraph flow {\n  rankdir=LR;")
    assert '[label=<<B>J</B><BR/><FONT POINT-SIZE="9">topic</FONT>>, URL="t.html#J", ' in text
    assert "<B>&lt;b&gt;&quot;\\n]</B>" in text, "no line break, no tag"
    assert 'URL="", fillcolor="#ffffff", color="#6b7280", style="filled,rounded,dashed"];' in text
    assert text.count(" -> ") == 3


def test_long_names_are_cut() -> None:
    body = f"topics: {{{'a' * 60}: {{}}}}"
    text = flow_dot(flow_graph([expanded(body)]), lambda _: "", lambda _: "")
    assert f"<B>{'a' * 39}…</B>" in text


def test_the_map_names_topologies_and_links_to_their_pages() -> None:
    text = map_dot(
        [("a.yaml", "b.yaml"), ("c.yaml", "b.yaml")], lambda file: f"<{file[0]}>", lambda file: f"{file}.html"
    )
    assert '  n1 [label=<<B>&lt;b&gt;</B>>, URL="b.yaml.html", ' in text
    assert text.endswith("  n0 -> n1;\n  n2 -> n1;\n}")
