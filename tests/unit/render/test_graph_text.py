"""Mermaid and DOT: golden for a small family, quoted for any name."""

from kodoctl.render.graph_text import dot, mermaid
from kodoctl.topology.graph import lane_graph
from tests.unit.topology.topology_files import expanded

BODY = 'topics: {J: {draining: [L2], message_properties: {"a\\"<b>": optional}, subscriptions: {s: {states: [retrying], produces: [x/y/Z], routes: [{when: {property: "a\\"<b>", exists: true}, to: B1}]}}, backup: true}}'

MERMAID = """\
flowchart LR
  subgraph g0["J"]
    subgraph g0_L2["L2"]
      n0["J-L2 (draining)"]:::ready
      n3["J-L2-s-RETRYING (draining)"]:::retrying
    end
    subgraph g0_L1["L1"]
      n1["J"]:::ready
      n4["J-s-RETRYING"]:::retrying
    end
    subgraph g0_B1["B1"]
      n2["J-B1"]:::ready
    end
    n5["J-s-DLQ"]:::dead
  end
  subgraph g1["Z (declared elsewhere)"]
    n6["Z"]:::ready
  end
  n0 -- "failed" --> n4
  n1 -- "failed" --> n4
  n1 -- "a#quot;#lt;b#gt; exists" --> n2
  n1 -- "produces (s)" --> n6
  n2 -- "attempts used up" --> n5
  n3 -- "attempts used up" --> n2
  n4 -- "attempts used up" --> n2
  n5 -. "recall" .-> n4
"""

DOT = """\
  subgraph cluster_0 {
    label="J"; fontsize=14; fontcolor="#1b1b1b"; style=rounded; color="#c9ced6";
    subgraph cluster_0_L2 {
      label="L2"; fontsize=11; fontcolor="#6b7280"; style="filled,rounded"; fillcolor="#f5f6f8"; color="#e1e4e8";
      n0 [label="J-L2 (draining)", fillcolor="#e3f4e6", color="#2e7d46", style="filled,rounded,dashed"];
      n3 [label="J-L2-s-RETRYING (draining)", fillcolor="#fff3d6", color="#a86a00", style="filled,rounded,dashed"];
    }
"""


def test_mermaid() -> None:
    text = mermaid(lane_graph([expanded(BODY)]))
    assert text.startswith(MERMAID)
    assert text.splitlines()[-5] == "  classDef ready fill:#e3f4e6,stroke:#2e7d46,color:#1b1b1b"


def test_dot() -> None:
    text = dot(lane_graph([expanded(BODY)]))
    assert text.startswith("digraph topology {\n")
    assert DOT in text
    assert '  n1 -> n2 [label="a\\"<b> exists", color="#0b7285", fontcolor="#0b7285"];' in text
    recall = '[label="recall", color="#b3261e", fontcolor="#b3261e", dir=back, style=dashed]'
    assert f"  n4 -> n5 {recall};" in text
    assert text.endswith("}")


def test_moves_between_the_same_two_lanes_share_an_arrow() -> None:
    body = "topics: {J: {fair_by: key, subscriptions: {s: {states: [pending], limits: [{kind: rate, limit: 1/s}, {kind: quota, limit: 1/h}]}, t: {states: []}}}}"
    text = mermaid(lane_graph([expanded(body)]))
    assert 'n0 -- "over rate<br/>over quota<br/>isolated" --> n1' in text


def test_no_text_of_a_file_begins_a_line() -> None:
    """A graph stands in Markdown, between fences."""
    body = 'topics: {J: {subscriptions: {s: {routes: [{when: {property: kind, in: ["x\\n```\\n# y"]}, to: B1}]}}, backup: true}}'
    plain = body.replace("\\n```\\n# y", "")
    for view in (mermaid, dot):
        shown, expected = (view(lane_graph([expanded(one)])) for one in (body, plain))
        assert "```" in shown
        assert len(shown.splitlines()) == len(expected.splitlines())


def test_long_conditions_fill_several_lines_in_a_picture() -> None:
    body = "topics: {J: {levels: [S1, L1], subscriptions: {s: {states: [], routes: [{when: {property: kind, in: [aaaaaaaaaaa, bbbbbbbbbb, cccccccccc]}, to: S1}]}}}}"
    text = dot(lane_graph([expanded(body)]))
    assert '[label="kind is one of aaaaaaaaaaa,\\nbbbbbbbbbb, cccccccccc", ' in text


def test_tables_of_a_source_stand_before_the_topics_they_feed() -> None:
    body = "topics: {J: {}, K: {}}\nsources: {db: {database: DB_URL, tables: {s.a: {topic: J}, s.out: {outbox: {topic: t, payload: p}}}}}"
    text = mermaid(lane_graph([expanded(body)]))
    assert 'subgraph g2["source db"]' in text
    assert '["s.a"]:::table' in text
    assert text.endswith("  classDef table fill:#f1f1ee,stroke:#55554f,color:#1b1b1b")
    assert text.count('-- "changed row" -->') == 1
    assert text.count('-- "outbox row" -->') == 2
    of_one = dot(lane_graph([expanded(body)], "K"))
    assert 's.a"' not in of_one
    assert '[label="s.out", fillcolor="#f1f1ee", color="#55554f"]' in of_one
