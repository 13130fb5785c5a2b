"""expand and graph at the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert "derived: recall sends here, and what it sends twice is dropped" in table


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
        ("g.svg", b"<?xml"),
        ("g.png", b"\x89PNG"),
        ("g.txt", b"flowchart LR\n"),
    ],
)
def test_graph_takes_the_format_from_the_files_ending(name: str, begins: bytes) -> None:
    ran = kodoctl("graph", "--output", name)
    assert (ran.code, ran.out) == (0, "")
    assert Path(name).read_bytes().startswith(begins)


def test_graph_writes_pictures_to_a_pipe_but_not_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kodoctl("graph", "--format", "png").raw.startswith(b"\x89PNG")
    monkeypatch.setattr("kodoctl.cli.expansion_commands.is_output_terminal", lambda: True)
    ran = kodoctl("graph", "--format", "png")
    assert ran.code == 64
    assert "name a file: --output FILE" in ran.err


def test_graph_says_why_it_cannot_write() -> None:
    ran = kodoctl("graph", "--output", "no/where.svg")
    assert ran.code == 64
    assert "no/where.svg: No such file or directory" in ran.err


def test_without_matplotlib_a_picture_says_what_to_install() -> None:
    hide = "import sys; sys.modules['matplotlib'] = None; sys.argv[0] = 'kodoctl'; from kodoctl.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "graph", "--format", "svg"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 64
    assert "pip install '.[draw]' in a clone of kodoctl" in done.stderr
    done = subprocess.run([sys.executable, "-c", hide, "graph"], capture_output=True, text=True, check=False)
    assert done.returncode == 0


def test_a_wide_terminal_gets_wider_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = kodoctl("expand", "--explain").out
    monkeypatch.setattr("kodoctl.cli.expansion_commands.is_output_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert len(kodoctl("expand", "--explain").out.splitlines()) < len(narrow.splitlines())
    assert max(map(len, narrow.splitlines())) <= 80
