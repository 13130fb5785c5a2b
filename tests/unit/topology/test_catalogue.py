"""The document of a catalogue: everything that a file declares, with the origin of each value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kodoctl.topology.catalogue import catalogue_document
from kodoctl.topology.expand import expand
from kodoctl.topology.payload_schemas import PayloadFile
from tests.unit.topology.topology_files import FILE, expanded, loaded

BODY = """\
description: Orders
formerly: shop
namespace_policies: {retention: {time: 3d, size: 20GiB}, ttl: 1d}
namespace_grants: {planner: [consume]}
defaults: {policies: {max_producers: 5}}
topics:
  J:
    description: one for each order
    levels: double
    backup: true
    exclusive_levels: {L2: [u7]}
    payload: {type: json, schema: j.json}
    payloads: {keep: 7d}
    message_properties: {uid: required}
    fair_by: uid
    ignore: [publish_rate]
    policies: {retention: {time: 7d}}
    producers: [checkout]
    subscriptions:
      s:
        states: [retrying]
        audit: true
        workers: [w]
        recall: [r]
        produces: [K]
        retrying: {delays: [1s, 1m], attempts: 3, by_code: {busy: [5s]}}
        limits: [{kind: rate, by: uid, limit: 10/s}]
        routes: [{when: {property: uid, equals: u7}, to: L2}]
  K: {subscriptions: {t: {states: [], dead_letter: false}}}
sources: {db: {database: DB_URL, tables: {s.a: {topic: K}}}}
create_tenant: {clusters: [standalone]}
"""


def topology(body: str = BODY) -> dict[str, Any]:
    document = catalogue_document([expanded(body)], None)
    assert json.loads(json.dumps(document)) == document
    found: dict[str, Any] = document["topologies"][0]
    return found


def topic(name: str, body: str = BODY) -> dict[str, Any]:
    return next(one for one in topology(body)["topics"] if one["name"] == name)


def at(line: int) -> dict[str, Any]:
    return {"file": FILE, "line": line}


def is_at(place: dict[str, Any], line: int) -> bool:
    return {name: place[name] for name in ("file", "line")} == at(line)


def test_the_head_of_a_topology() -> None:
    found = topology()
    assert {name: found[name] for name in ("name", "formerly", "description", "namespace", "production")} == {
        "name": "trade",
        "formerly": ["shop"],
        "description": "Orders",
        "namespace": "kodo/trade",
        "production": False,
    }
    assert [(one["role"], one["actions"]) for one in found["grants"]] == [("planner", ["consume"])]
    assert found["sources"]["db"]["slot"] == "kodo_trade_db"


def test_topics_inherit_owners_and_labels() -> None:
    body = """
owners: shop
labels: {tier: gold, cost-center: "4711"}
topics:
  J: {}
  K: {owners: [billing, audit], labels: {tier: bronze}}
"""
    assert (topology(body)["owners"], topology(body)["labels"]["tier"]) == (["shop"], "gold")
    assert (topic("J", body)["owners"], topic("J", body)["labels"]["tier"]) == (["shop"], "gold")
    assert topic("K", body)["owners"] == ["billing", "audit"]
    assert topic("K", body)["labels"] == {"tier": "bronze", "cost-center": "4711"}


def test_topologies_are_sorted_by_name() -> None:
    other = expanded("version: 1\nname: a\ntenant: t\nnamespace: n\ntopics: {J: {}}")
    found = catalogue_document([expanded(BODY), other], "prod")
    assert [one["name"] for one in found["topologies"]] == ["a", "trade"]
    assert found["environment"] == "prod"


def test_each_policy_has_its_origin() -> None:
    ready, *others = topic("J")["groups"]
    assert ready["policies"] == {"max_producers": 5, "retention": {"time": "7d"}}
    assert is_at(ready["explain"]["retention.time"], 21)
    assert is_at(ready["explain"]["max_producers"], 9)
    assert ready["explain"]["partitions"] == {"derived": "the default"}
    assert ready["inherited"]["policies"] == {"ttl": "1d"}
    assert is_at(ready["inherited"]["explain"]["ttl"], 7)
    assert "backlog_quota" in ready["unset"]
    assert not {"ttl", "retention", "publish_rate"} & {*ready["unset"]}
    assert ready["ignore"] == ["publish_rate"]
    dead = next(group for group in others if group["lanes"][0]["state"] == "dead")
    assert dead["explain"]["ttl"] == {"derived": "dead letters wait for people"}
    assert dead["inherited"]["policies"] == {}


def test_without_the_namespace_in_a_file_its_policies_are_not_known() -> None:
    group = topic("J", "topics: {J: {}}")["groups"][0]
    assert not group["is_namespace_declared"]
    assert group["inherited"] == {"policies": {}, "explain": {}}


def test_lanes_of_all_levels_and_states() -> None:
    lanes = [lane for group in topic("J")["groups"] for lane in group["lanes"]]
    assert [(lane["topic"], lane["level"], lane["state"]) for lane in lanes] == [
        ("J-L2", "L2", "ready"),
        ("J", "L1", "ready"),
        ("J-B1", "B1", "ready"),
        ("J-L2-s-RETRYING", "L2", "retrying"),
        ("J-s-RETRYING", "L1", "retrying"),
        ("J-s-DLQ", "", "dead"),
        ("J-s-AUDIT", "", "audit"),
    ]


def test_states_with_the_same_policies_are_one_group() -> None:
    groups = topic("J", "topics: {J: {subscriptions: {s: {}, t: {}}}}")["groups"]
    assert [len(group["lanes"]) for group in groups] == [1, 6, 2]


def test_a_subscription_has_its_settings_and_the_defaults_in_effect() -> None:
    found = topic("J")["subscriptions"][0]
    settings = {one["name"]: one for one in found["settings"]}
    assert settings["retrying"]["value"] == {
        "delays": ["1s", "1m"],
        "attempts": 3,
        "total": 121_000,
        "by_code": {"busy": ["5s"]},
    }
    assert is_at(settings["retrying"]["where"], 30)
    assert settings["type"] == {"name": "type", "value": "shared", "where": None}
    assert settings["backup"]["value"]["attempts"] == 24
    assert "pending" not in settings, "a state that is off"
    assert found["routes"][0]["when"] == "uid is u7"
    assert found["limits"][0]["limit"] == "10/s"
    assert (found["workers"], found["recall"], found["produces"]) == (["w"], ["r"], ["K"])


def test_waits_of_any_backup_level_are_shown() -> None:
    settings = topic("K", "topics: {K: {levels: [L1, B2], subscriptions: {t: {}}}}")["subscriptions"][0]["settings"]
    assert [one["value"]["attempts"] for one in settings if one["name"] == "backup"] == [24]


def test_a_setting_in_the_file_is_shown_even_if_it_is_the_default() -> None:
    settings = topic("K", "topics: {K: {subscriptions: {t: {states: [], backup: {attempts: 2}}}}}")["subscriptions"][0]
    assert [one["name"] for one in settings["settings"] if one["where"]] == ["backup"]


def payload_fields(kind: str, definition: Any) -> list[tuple[str, str, bool, str]]:
    base = loaded(f"topics: {{J: {{payload: {{type: {kind}, schema: j.json}}}}}}")
    file = PayloadFile(kind, Path("j.json"), definition)
    document = catalogue_document([expand(replace(base, payloads={"J": file}))], None)
    fields = document["topologies"][0]["topics"][0]["payload"]["fields"]
    return [(one["name"], one["type"], one["required"], one["description"]) for one in fields]


def test_fields_of_a_json_schema() -> None:
    definition = {
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "description": "A"},
            "b": {"type": ["null", "integer"]},
            "c": {"type": {"type": "array", "items": "string"}, "description": 3},
            "d": True,
            "e": {"$ref": "#/x"},
        },
    }
    assert payload_fields("json", definition) == [
        ("a", "string", True, "A"),
        ("b", "null or integer", False, ""),
        ("c", "array of string", False, ""),
        ("d", "", False, ""),
        ("e", "#/x", False, ""),
    ]


def test_fields_of_an_avro_record() -> None:
    definition = {
        "type": "record",
        "fields": [
            {"name": "a", "type": "string", "doc": "A"},
            {"name": "b", "type": ["null", {"type": "record", "name": "Item"}], "default": None},
            {"name": "c", "type": {"type": "map", "values": "long"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal"}},
            {"name": "e", "type": {"type": "array", "items": {}}},
            "no field",
        ],
    }
    assert payload_fields("avro", definition) == [
        ("a", "string", True, "A"),
        ("b", "null or Item", False, ""),
        ("c", "map of long", True, ""),
        ("d", "bytes", True, ""),
        ("e", "array", True, ""),
    ]


@pytest.mark.parametrize(
    ("kind", "definition"), [("json", True), ("json", {"properties": 3}), ("avro", {"fields": 3}), ("avro", "string")]
)
def test_a_schema_of_another_form_has_no_fields(kind: str, definition: Any) -> None:
    assert payload_fields(kind, definition) == []


def test_a_schema_that_cannot_be_read_says_why() -> None:
    assert topic("J")["payload"]["problem"] == "No such file or directory"
    assert topic("K")["payload"] is None


def test_topics_whose_partitions_come_from_other_lines_are_no_group() -> None:
    body = """topics:
  J:
    subscriptions:
      a: {states: [], dead_letter: {partitions: 3}}
      b: {states: [], dead_letter: {partitions: 3}}
      c: {states: []}
      d: {states: []}
"""
    groups = [group for group in topic("J", body)["groups"] if group["lanes"][0]["state"] == "dead"]
    lanes = [[lane["topic"] for lane in group["lanes"]] for group in groups]
    assert lanes == [["J-a-DLQ"], ["J-b-DLQ"], ["J-c-DLQ", "J-d-DLQ"]]
    first, second, default = (group["explain"]["partitions"] for group in groups)
    assert is_at(first, 8)
    assert is_at(second, 9)
    assert default == {"derived": "the default"}
