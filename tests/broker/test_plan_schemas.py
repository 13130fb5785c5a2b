"""Payload schemas of type avro in plans: uploaded once, and compared with all versions that a topic has."""

from __future__ import annotations

import json
from typing import Any

from tests.brokers.workspace import Workspace

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def test_a_schema_is_uploaded_once_and_a_version_that_the_topic_has_already_is_settled(workspace: Workspace) -> None:
    """Pulsar keeps one version of each text: going back to an earlier one uploads nothing, and was an update for ever."""
    file = workspace.folder / "topologies" / "order.avsc"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(ORDER), encoding="utf-8")
    workspace.topology("{orders: {payload: {type: avro, schema: order.avsc}}}")
    workspace.apply()
    workspace.assert_settled()
    schema = f"schema.{workspace.full('orders')}"
    file.write_text(json.dumps({**ORDER, "fields": [*ORDER["fields"], NOTE]}), encoding="utf-8")
    (change,) = (one for one in workspace.plan_json()["changes"] if one["action"] != "unchanged")
    assert (change["action"], change["address"]) == ("update", schema)
    workspace.apply()
    workspace.assert_settled()
    file.write_text(json.dumps(ORDER), encoding="utf-8")
    workspace.assert_settled()


def test_a_schema_of_somebody_else_is_an_update(workspace: Workspace) -> None:
    file = workspace.folder / "topologies" / "order.avsc"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**ORDER, "fields": [*ORDER["fields"], NOTE]}), encoding="utf-8")
    workspace.topology("{orders: {payload: {type: avro, schema: order.avsc}}}")
    workspace.run("apply", "--auto-approve", "--exclude", "schema.*")
    workspace.admin("POST", f"schemas/{workspace.namespace}/orders/schema", _upload(ORDER))
    workspace.apply("--adopt", f"schema.{workspace.full('orders')}")
    workspace.assert_settled()


def _upload(definition: dict[str, Any]) -> dict[str, Any]:
    return {"type": "AVRO", "schema": json.dumps(definition), "properties": {}}
