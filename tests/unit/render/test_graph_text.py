"""Mermaid and DOT: golden for a small family, quoted for any name."""

from kodoctl.render.graph_text import dot, mermaid
from kodoctl.topology.graph import lane_graph
from tests.unit.topology.making import expanded

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
    label="J"; color="#999999";
    subgraph cluster_0_L2 {
      label="L2"; color="#cccccc";
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
    assert '  n1 -> n2 [label="a\\"<b> exists"];' in text
    assert '  n5 -> n4 [label="recall", style=dashed, color="#b3261e"];' in text
    assert text.endswith("}")


def test_moves_between_the_same_two_lanes_share_an_arrow() -> None:
    body = "topics: {J: {fair_by: key, subscriptions: {s: {states: [pending], limits: [{kind: rate, limit: 1/s}, {kind: quota, limit: 1/h}]}, t: {states: []}}}}"
    text = mermaid(lane_graph([expanded(body)]))
    assert 'n0 -- "over rate<br/>over quota<br/>isolated" --> n1' in text
