"""Alert rules and the dashboard: PromQL that parses, names and labels that are exported, a runbook for each alert."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from kodo_consumer.adapters.metrics.collector import EXPORTED
from kodo_consumer.adapters.metrics.metric import BASE
from kodo_consumer.adapters.metrics.outbox_metrics import METRICS
from kodo_consumer.cli.main import main
from kodo_pipeline.run.pipeline_metrics import PIPELINE_METRICS

from kodoctl.status.status_metrics import STATUS_METRICS
from tests.brokers.workspace import this_process_goes_on

ROOT = Path(__file__).parents[5]
FOLDER = ROOT / "consumer/kodo_consumer/adapters/metrics/dashboards"
RULES = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "consumer.json").read_text("utf-8"))
PANELS = DASHBOARD["panels"]
RUNBOOK = (ROOT / "docs/how-to/alerts.md").read_text("utf-8")
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", [])]


def _labels() -> dict[str, set[str]]:
    """Every series that can be queried, with its labels."""
    found: dict[str, set[str]] = {}
    for one in EXPORTED:
        labels = {*BASE, *one.labels}
        if one.kind == "histogram":
            found |= {f"{one.name}_bucket": labels | {"le"}, f"{one.name}_sum": labels, f"{one.name}_count": labels}
        else:
            found[one.name] = labels
    others = {one.name: set(one.labels) for one in (*STATUS_METRICS, *PIPELINE_METRICS)}
    return found | {metric.name: set() for metric in METRICS} | others


LABELS = _labels()
OF_ALL_WORKERS = {
    f"kodo_consumer_{name}"
    for name in (
        "backlog_entries", "delayed_messages", "unacknowledged_messages", "published_per_second", "lag_entries", "workers",
        "lane_workers", "inbox_rows", "backlog_growth", "backlog_cause", "idle_workers",
    )
}  # fmt: skip
"""Figures of a whole subscription, which each of its workers reports."""


def _selectors(node: Any) -> Iterator[Any]:
    match node:
        case promql_parser.VectorSelector():
            yield node
        case promql_parser.MatrixSelector():
            yield node.vector_selector
        case promql_parser.BinaryExpr():
            yield from _selectors(node.lhs)
            yield from _selectors(node.rhs)
        case promql_parser.Call():
            for argument in node.args:
                yield from _selectors(argument)
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from _selectors(node.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise AssertionError(type(node))


def _aggregations(node: Any) -> Iterator[tuple[set[str], Any]]:
    """(labels kept, expression) of every aggregation."""
    match node:
        case promql_parser.AggregateExpr():
            yield set(node.modifier.labels) if node.modifier else set(), node.expr
            yield from _aggregations(node.expr)
        case promql_parser.BinaryExpr():
            yield from _aggregations(node.lhs)
            yield from _aggregations(node.rhs)
        case promql_parser.Call():
            for argument in node.args:
                yield from _aggregations(argument)


def _problems(expression: str) -> list[str]:
    tree = promql_parser.parse(expression.replace("$__rate_interval", "5m"))
    found = []
    for selector in _selectors(tree):
        if selector.name not in LABELS:
            found.append(f"{selector.name} is not exported")
            continue
        used = {matcher.name for matcher in selector.matchers.matchers}
        found += [f"{selector.name} has no label {label}" for label in used - LABELS[selector.name]]
    for kept, inner in _aggregations(tree):
        for selector in _selectors(inner):
            found += [f"{selector.name} has no label {label}" for label in kept - LABELS.get(selector.name, kept)]
    return found


def test_the_check_itself_sees_wrong_names_and_labels() -> None:
    assert _problems('sum by (nope) (rate(kodo_consumer_done_total{level="L1"}[5m]))')
    assert _problems('kodo_consumer_done_total{reason="x"} > 0')
    assert _problems("kodo_consumer_done > 0")
    assert _problems("histogram_quantile(0.9, sum by (le) (rate(kodo_consumer_attempts_sum[5m])))")
    assert not _problems('sum by (level) (rate(kodo_consumer_done_total{level="L1"}[5m]))')


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_is_exported_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert _problems(rule["expr"]) == []
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert page == "docs/how-to/alerts.md"
    assert anchor == rule["alert"].lower()
    paragraph = re.search(rf"^## {rule['alert']}\n(.+?)(?=\n## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert paragraph is not None
    assert len(paragraph[1].split()) > 10
    kept = {label for found in _aggregations(promql_parser.parse(rule["expr"])) for label in found[0]}
    shown = set(re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())))
    assert shown <= kept


def test_every_alert_and_every_paragraph_has_its_other_half() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    assert sorted(re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)) == sorted(names)
    assert set(re.findall(r"kodo_(?:consumer|outbox|lane|status|pipeline)_[a-z_]+", RUNBOOK)) <= set(LABELS) | {
        one.name for one in EXPORTED
    }


@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_a_panel_asks_for_what_is_exported(title: str, expression: str) -> None:
    assert _problems(expression) == [], title
    whole, narrow = '{namespace=~"$namespace",topic=~"$topic",subscription=~"$subscription"', '{namespace=~"$namespace"'
    for selector in _selectors(promql_parser.parse(expression.replace("$__rate_interval", "5m"))):
        assert f"{selector.name}{whole if 'topic' in LABELS[selector.name] else narrow}" in expression


def test_the_dashboard_is_whole() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    places = [panel["gridPos"] for panel in PANELS]
    for one, other in combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"]
            assert panel["targets"]
            refs = [target["refId"] for target in panel["targets"]]
            assert len(set(refs)) == len(refs)
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS))) - {"__rate_interval"}
    assert used == variables.keys()
    for name in ("namespace", "topic", "subscription"):
        assert name in BASE


def test_every_metric_that_tells_of_trouble_is_on_the_dashboard_or_in_an_alert() -> None:
    asked = " ".join([expression for _, expression in QUERIES] + [rule["expr"] for rule in RULES])
    seldom = {"received", "waited", "let_go", "held_bytes", "delayed_messages", "unacknowledged_messages", "lane_paused",
              "published_per_second", "attempts", "native", "marks"}  # fmt: skip
    left = {one.name for one in EXPORTED if one.name not in asked}
    assert left == {one.name for one in EXPORTED if re.sub(r"^kodo_consumer_|_total$", "", one.name) in seldom}


def test_the_rules_about_lanes_ask_for_all_that_the_exporter_knows_of_trouble() -> None:
    """Depth, age and readers of waiting lanes and dead letters, what is missing, what is unknown, and silence."""
    asked = {selector.name for rule in RULES for selector in _selectors(promql_parser.parse(rule["expr"]))}
    left = {one.name for one in STATUS_METRICS} - asked
    assert left == {"kodo_lane_unacknowledged_messages"}


def test_the_rules_and_the_row_about_the_pipeline_ask_for_all_that_it_exports() -> None:
    trees = [rule["expr"] for rule in RULES] + [one.replace("$__rate_interval", "5m") for _, one in QUERIES]
    asked = {selector.name for tree in trees for selector in _selectors(promql_parser.parse(tree))}
    assert {one.name for one in PIPELINE_METRICS} - asked == {"kodo_pipeline_last_run_timestamp_seconds"}


def test_they_are_written_where_a_user_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(folder: Path) -> object:
        monkeypatch.setattr(sys, "argv", ["kodo-consumer", "dashboards", "--output", str(folder)])
        with pytest.raises(SystemExit) as end, this_process_goes_on():
            main()
        return end.value.code

    assert run(tmp_path / "new") == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "new" / name) for name in ("alerts.yaml", "consumer.json")
    ]
    assert (tmp_path / "new/consumer.json").read_bytes() == (FOLDER / "consumer.json").read_bytes()
    (tmp_path / "file").touch()
    assert run(tmp_path / "file") == 64
    assert "K761" in capsys.readouterr().err


def test_figures_that_every_worker_reports_are_not_added_up() -> None:
    assert LABELS.keys() >= OF_ALL_WORKERS
    queries = [*QUERIES, *((rule["alert"], rule["expr"]) for rule in RULES if "alert" in rule)]
    for title, query in queries:
        for name in re.findall(r"sum[^(]*(?:\([^()]*\))? *\(([a-z_]+)[{)]", query):
            assert name not in OF_ALL_WORKERS, title
