"""The differences that a catalogue shows to another revision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kodoctl.topology.catalogue import catalogue_document
from kodoctl.topology.catalogue_changes import with_changes
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.payload_schemas import PayloadFile
from tests.unit.topology.topology_files import expanded

THEN = (
    "topics: {J: {policies: {retention: {time: 1d}}, subscriptions: {s: {limits: [{kind: rate, limit: 1/s}]}}}, K: {}}"
)
NOW = (
    "topics: {J: {policies: {retention: {time: 2d}}, subscriptions: {s: {limits: [{kind: rate, limit: 2/s}]}}}, L: {}}"
)


def changes(now: Expansion, *then: Expansion) -> dict[str, Any]:
    return with_changes(catalogue_document([now], None), [now], then, "main", "c0ffee")


def named(body: str, name: str) -> Expansion:
    return expanded(f"version: 1\nname: {name}\ntenant: kodo\nnamespace: trade\n{body}")


def test_each_key_that_differs_is_one_change() -> None:
    document = changes(expanded(NOW), expanded(THEN))
    rate = {"kind": "rate"}
    assert document["topologies"][0]["changes"] == [
        ["topics.J.policies.retention.time", "1d", "2d"],
        ["topics.J.subscriptions.s.limits", [{**rate, "limit": "1/s"}], [{**rate, "limit": "2/s"}]],
        ["topics.K", {}, None],
        ["topics.L", None, {}],
    ]
    assert document["against"] == {"ref": "main", "commit": "c0ffee", "removed": []}


def test_the_same_file_has_no_changes_and_environments_are_none() -> None:
    assert changes(expanded(f"{NOW}\nenvironments: {{a: {{}}}}"), expanded(NOW))["topologies"][0]["changes"] == []


def test_new_renamed_and_removed_topologies() -> None:
    new = changes(named(NOW, "depot"), named(NOW, "trade"))
    assert new["topologies"][0]["changes"] is None
    assert [one["name"] for one in new["against"]["removed"]] == ["trade"]
    renamed = changes(named(f"{NOW}\nformerly: trade", "depot"), named(NOW, "trade"))
    assert renamed["topologies"][0]["changes"] == [["name", "trade", "depot"], ["formerly", None, ["trade"]]]
    assert renamed["against"]["removed"] == []


def test_a_payload_schema_is_compared_by_its_content() -> None:
    body = "topics: {J: {payload: {type: json, schema: j.json}}}"
    topology = expanded(body).topology

    def of(kind: str) -> Expansion:
        payload = PayloadFile("json", Path("j.json"), {"type": kind})
        return expand(replace(topology, payloads={"J": payload}))

    found = changes(of("object"), of("string"))["topologies"][0]["changes"]
    assert found == [["topics.J.payload.definition.type", "string", "object"]]


@pytest.mark.parametrize(
    ("before", "after", "differs"), [(True, 1, True), ([0], [False], True), (float("nan"), float("nan"), False)]
)
def test_values_that_only_python_calls_equal_differ(before: Any, after: Any, differs: bool) -> None:
    topology = expanded("topics: {J: {payload: {type: json, schema: j.json}}}").topology

    def of(value: Any) -> Expansion:
        return expand(replace(topology, payloads={"J": PayloadFile("json", Path("j.json"), {"const": value})}))

    found = changes(of(after), of(before))["topologies"][0]["changes"]
    assert [path for path, *_ in found] == (["topics.J.payload.definition.const"] if differs else [])
