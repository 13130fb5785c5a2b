"""expand and graph at the command line."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import networkx as nx
import pytest

from kodoctl.cli.topology.graphviz import draw
from kodoctl.render.graph_text import dot
from kodoctl.text.escaping import printable
from kodoctl.topology.graph import GraphEdge, GraphNode, MoveReason
from kodoctl.topology.names import Level, NamespaceName, State, TopicName
from tests.services.programs import system_program
from tests.unit.cli.running import kodoctl

TRADE = """\
version: 1
name: trade
description: Orders
tenant: kodo
namespace: trade
namespace_policies: {retention: {time: 3d, size: 20GiB}}
topics:
  orders:
    backup: true
    subscriptions:
      billing: {states: [retrying], workers: [w], produces: [shipments]}
  shipments: {}
environments:
  prod: {production: true, defaults: {partitions: 16}}
"""


SVG = "{http://www.w3.org/2000/svg}"


def svg_texts(picture: bytes) -> list[str]:
    return ["".join(text.itertext()).replace("\xa0", " ") for text in ET.fromstring(picture).iter(f"{SVG}text")]


@pytest.fixture
def graphviz() -> str:
    return system_program("graphviz", "dot")


@pytest.fixture(autouse=True)
def trade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("topologies").mkdir()
    Path("topologies/trade.yaml").write_text(TRADE)


def test_expand_shows_a_tree_of_the_base_and_says_that_there_are_environments() -> None:
    ran = kodoctl("expand")
    assert ran.code == 0
    assert ran.err == "Shown without environment; --env has prod.\n"
    assert ran.out.startswith("trade: kodo/trade (topologies/trade.yaml, base)\n│  Orders\n├─ around the topics\n")
    assert ran.out.endswith("1 namespace, 5 topics with 5 partitions, 4 subscriptions, 5 grants.\n")


def test_expand_in_an_environment() -> None:
    ran = kodoctl("expand", "--env", "prod", "--format", "table")
    assert (ran.code, ran.err) == (0, "")
    assert "orders-billing-RETRYING  L1     retrying  16          billing" in ran.out.splitlines()
    assert kodoctl("expand", "--env", "base").err == ""


def test_expand_explains_every_value() -> None:
    assert "retention.time  3d     topologies/trade.yaml:6" in kodoctl("expand", "--explain").out
    table = kodoctl("expand", "--explain", "--format", "table").out
    assert "derived: recalls and releases send here, and what they send twice is dropped" in table


def test_expand_for_machines() -> None:
    found = json.loads(kodoctl("expand", "--format", "json", "--env", "prod").out)
    assert (found["format_version"], found["environment"]) == (1, "prod")
    assert found["resources"]["topic.persistent://kodo/trade/orders-B1"]["partitions"] == 16


def test_expand_refuses_files_with_errors_and_unknown_environments() -> None:
    assert kodoctl("expand", "--env", "qa").code == 64
    Path("topologies/trade.yaml").write_text(TRADE.replace("backup", "backups"))
    ran = kodoctl("expand")
    assert (ran.code, ran.out) == (1, "")
    assert "did you mean 'backup'?" in ran.err


def test_graph_prints_mermaid_by_itself() -> None:
    out = kodoctl("graph").out
    assert out.startswith('flowchart LR\n  subgraph g0["orders"]\n')
    assert '-- "produces (billing)" -->' in out


def test_graph_writes_over_no_topology_that_it_draws() -> None:
    (file,) = Path("topologies").glob("*.yaml")
    before = file.read_bytes()
    ran = kodoctl("graph", "--out", f"./{file}")
    assert (ran.code, file.read_bytes()) == (64, before)
    assert "file exists [K021]" in ran.err


@pytest.mark.parametrize("command", [("graph",), ("graph", "--format", "dot"), ("schema",)])
def test_drawings_and_schemas_replace_their_own_files_but_neither_yaml_nor_plans(command: tuple[str, ...]) -> None:
    kept = {"other.yaml": "a: 1\n", "plan.json": '{"format_version": 1, "kodoctl_version": "1", "cluster": {}}'}
    for name, text in kept.items():
        Path(name).write_text(text)
        ran = kodoctl(*command, "--out", name)
        assert (ran.code, Path(name).read_text()) == (64, text)
        assert "file exists [K021]" in ran.err
    for name in ("made.json", "lanes.svg.txt", "empty.yaml"):
        Path(name).write_text("" if name == "empty.yaml" else "{}")
        assert kodoctl(*command, "--out", name).code == 0
        assert kodoctl(*command, "--out", f"{name}.txt").code == 0


def test_graph_of_one_topic() -> None:
    orders = kodoctl("graph", "--topic", "orders").out
    assert orders.count('"shipments"') == 2, "only the topic it sends to, with its frame"
    assert "orders" not in kodoctl("graph", "--topic", "shipments").out
    ran = kodoctl("graph", "--topic", "order")
    assert ran.code == 64
    assert "'order': these files have orders, shipments" in ran.err


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("g.mmd", b"flowchart LR\n"),
        ("g.dot", b"digraph topology {\n"),
        ("g.txt", b"flowchart LR\n"),
    ],
)
def test_graph_takes_the_format_from_the_files_ending(name: str, begins: bytes) -> None:
    ran = kodoctl("graph", "--output", name)
    assert (ran.code, ran.out) == (0, "")
    assert Path(name).read_bytes().startswith(begins)


@pytest.mark.parametrize(("name", "begins"), [("g.svg", b"<?xml"), ("g.png", b"\x89PNG")])
def test_graph_draws_pictures(graphviz: str, name: str, begins: bytes) -> None:
    ran = kodoctl("graph", "--output", name)
    assert (ran.code, ran.out) == (0, "")
    picture = Path(name).read_bytes()
    assert picture.startswith(begins)
    kodoctl("graph", "--output", name)
    assert Path(name).read_bytes() == picture, "the same graph gives the same picture"


def test_an_svg_keeps_its_texts_as_texts(graphviz: str) -> None:
    texts = svg_texts(kodoctl("graph", "--format", "svg").raw)
    assert {"orders-billing-DLQ", "attempts used up", "produces (billing)"} <= set(texts)


def test_graph_writes_pictures_to_a_pipe_but_not_to_a_terminal(graphviz: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kodoctl("graph", "--format", "png").raw.startswith(b"\x89PNG")
    monkeypatch.setattr("kodoctl.cli.topology.expansion_commands.is_output_terminal", lambda: True)
    ran = kodoctl("graph", "--format", "png")
    assert ran.code == 64
    assert "name a file: --out FILE" in ran.err


def test_graph_prints_no_source_on_a_terminal_that_did_not_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = kodoctl("graph").out
    assert piped.startswith("flowchart")
    monkeypatch.setattr("kodoctl.cli.topology.expansion_commands.is_output_terminal", lambda: True)
    hint = "A picture: kodoctl graph --out lanes.svg"
    assert kodoctl("graph").out.startswith(hint)
    assert kodoctl("graph", "--format", "mermaid").out == piped


def test_graph_says_why_it_cannot_write() -> None:
    ran = kodoctl("graph", "--output", "no/where.dot")
    assert ran.code == 64
    assert "no/where.dot: No such file or directory" in ran.err


def test_without_graphviz_a_picture_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    ran = kodoctl("graph", "--format", "svg")
    assert (ran.code, ran.out) == (64, "")
    assert "Graphviz is missing [K027]" in ran.err
    assert "apt-get install graphviz" in ran.err
    assert kodoctl("graph").code == 0


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("#!/bin/sh\necho 'no layout' >&2\nexit 3\n", "ended with 3: no layout"),
        ("#!/bin/sh\nexit 1\n", "ended with 1: it printed no reason"),
        ("#!/bin/sh\nexec sleep 60\n", "took longer than 0.2 s"),
        ("#!/no/such/shell\n", "No such file or directory"),
    ],
)
def test_graphviz_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    (tmp_path / "dot").write_text(program)
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if "sleep" in program:
        monkeypatch.setattr("kodoctl.cli.topology.graphviz.TIMEOUT", 0.2)
    ran = kodoctl("graph", "--format", "png")
    assert (ran.code, ran.raw) == (64, b"")
    assert "Graphviz cannot draw this [K027]" in ran.err
    assert reason in " ".join(ran.err.split())


HOSTILE = [
    'x"]; evil [label="y', "end\\", "\\N \\G \\L", "<b>bold</b>", "<<b>bold</b>>", "a\nb", "&lt;&nbsp;&#60;", "}", "\x00", "\ud800", '\\"]; evil',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_gets_out_of_its_quotes(graphviz: str, text: str) -> None:
    topic = TopicName(NamespaceName("kodo", "trade"), text)
    one, other = (GraphNode(topic, f"{ground}{text}", Level.L1, State.READY) for ground in "ab")
    graph: nx.MultiDiGraph[GraphNode] = nx.MultiDiGraph()
    graph.add_edge(one, other, move=GraphEdge(MoveReason.ROUTE, "s", text))
    picture = draw(dot(graph), "svg")
    groups = [group.get("class") or "" for group in ET.fromstring(picture).iter(f"{SVG}g")]
    assert sorted(groups) == ["cluster"] * 4 + ["edge", "graph", "node", "node"]
    shown, arrow = printable(text), printable(" ".join(text.split()))
    assert sorted(svg_texts(picture)) == sorted([f"a{shown}", f"b{shown}", "L1", "L1", shown, shown, arrow])


def test_a_wide_terminal_gets_wider_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = kodoctl("expand", "--explain").out
    monkeypatch.setattr("kodoctl.cli.topology.expansion_commands.is_output_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert len(kodoctl("expand", "--explain").out.splitlines()) < len(narrow.splitlines())
    assert max(map(len, narrow.splitlines())) <= 80
