"""The machine form of an expansion: every resource by address, and where each value comes from."""

import json
from pathlib import Path
from typing import Any

import pytest

from kodoctl.topology.expansion_json import expansion_document
from tests.unit.topology.topology_files import FILE, expanded

BODY = """\
namespace_policies: {retention: {time: 3d, size: 20GiB}, backlog_quota: {size: 5GiB}, ttl: 1d}
namespace_grants: {planner: [consume]}
create_tenant: {clusters: [b, a]}
description: Orders
defaults: {policies: {retention: {time: 1d}}}
topics:
  J:
    description: one for each order
    partitions: 4
    ignore: [publish_rate]
    policies: {retention: {size: 1GiB}, max_producers: 5}
    subscriptions:
      s: {audit: true, workers: [w], lookahead: {messages: 70000}, states: [retrying], draining: [pending]}
environments: {prod: {production: true, topics: {J: {partitions: 8}}}}
"""


def document(environment: str | None = None, *, explain: bool = False) -> dict[str, Any]:
    return expansion_document([expanded(BODY, environment)], environment, explain=explain)


def resource(address: str, environment: str | None = None, *, explain: bool = False) -> dict[str, Any]:
    return document(environment, explain=explain)["resources"][address]


def test_the_document_is_json_with_a_version_and_the_environment() -> None:
    base, prod = document(), document("prod")
    assert json.loads(json.dumps(base)) == base
    assert (base["format_version"], base["environment"], prod["environment"]) == (1, "base", "prod")
    assert base["topologies"] == [
        {
            "name": "trade",
            "file": FILE,
            "description": "Orders",
            "owners": [],
            "labels": {},
            "namespace": "kodo/trade",
            "production": False,
            "topics": {"J": "one for each order"},
            "sources": {},
        }
    ]
    assert prod["topologies"][0]["production"] is True


def test_each_kind_of_resource_says_what_it_is() -> None:
    assert resource("tenant.kodo") == {
        "kind": "tenant",
        "name": "kodo",
        "clusters": ["a", "b"],
        "admin_roles": [],
        "topology": "trade",
        "where": {"file": FILE, "line": 7, "column": 1},
    }
    assert resource("grant.kodo/trade/planner")["actions"] == ["consume"]
    topic = resource("topic.persistent://kodo/trade/J-s-RETRYING")
    assert {key: topic[key] for key in ("kind", "topic", "ground", "level", "state", "subscription", "partitions", "draining", "ignore")} == {
        "kind": "topic", "topic": "J-s-RETRYING", "ground": "J", "level": "L1", "state": "retrying", "subscription": "s", "partitions": 4, "draining": False, "ignore": ["publish_rate"],
    }  # fmt: skip
    assert resource("topic.persistent://kodo/trade/J-s-PENDING")["draining"] is True
    audit = resource("topic.persistent://kodo/trade/J-s-AUDIT")
    assert (audit["state"], audit["level"]) == ("audit", None)
    holder = resource("subscription.persistent://kodo/trade/J-s-DLQ/kodo-hold")
    assert (holder["kind"], holder["name"], holder["start"]) == ("subscription", "kodo-hold", "earliest")


def test_a_schema_is_shown_as_the_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topologies").mkdir()
    Path("topologies/o.json").write_text('"string"')
    found = expansion_document([expanded("topics: {J: {payload: {type: avro, schema: o.json}}}")], None)
    assert found["resources"]["schema.persistent://kodo/trade/J"]["definition"] == "string"


def line(number: int, column: int) -> dict[str, Any]:
    return {"file": FILE, "line": number, "column": column}


def test_settings_of_a_function_are_shown_as_a_map() -> None:
    body = "topics: {J: {}}\nfunctions: {f: {package: 'builtin://f', inputs: [J], config: {a: {b: 1}}}}\n"
    assert expansion_document([expanded(body)], None)["resources"]["function.kodo/trade/f"]["config"] == {"a": {"b": 1}}


def test_every_value_has_a_line_or_a_reason() -> None:
    assert resource("topic.persistent://kodo/trade/J", explain=True)["explain"] == {
        "partitions": line(13, 17),
        "max_producers": line(15, 56),
        "max_unacked_per_consumer": {"derived": "the look-ahead needs more than the broker's default"},
        "retention.time": line(9, 41),
        "retention.size": line(15, 34),
    }
    assert resource("topic.persistent://kodo/trade/J", "prod", explain=True)["explain"]["partitions"]["line"] == 18
    assert resource("namespace.kodo/trade", explain=True)["explain"] == {
        "backlog_quota.size": line(5, 80),
        "backlog_quota.when_full": {"derived": "the default within backlog_quota"},
        "retention.time": line(5, 40),
        "retention.size": line(5, 50),
        "ttl": line(5, 92),
    }
    dead = resource("topic.persistent://kodo/trade/J-s-DLQ", explain=True)["explain"]
    assert dead["partitions"] == {"derived": "the default"}
    assert dead["ttl"] == {"derived": "dead letters wait for people"}
    assert dead["backlog_quota.when_full"] == {"derived": "the default within backlog_quota"}
    assert dead["retention.time"] == line(9, 41)


@pytest.mark.parametrize("state", ["RETRYING", "PENDING", "DLQ", "AUDIT"])
def test_no_value_is_unexplained(state: str) -> None:
    entry = resource(f"topic.persistent://kodo/trade/J-s-{state}", explain=True)
    explained = {path.partition(".")[0] for path in entry["explain"]}
    assert explained == {"partitions", *entry["policies"]}
    assert all("line" in source or source["derived"] for source in entry["explain"].values())


def test_without_being_asked_nothing_is_explained() -> None:
    assert not any("explain" in entry for entry in document()["resources"].values())


@pytest.mark.parametrize("first", [0, 1])
def test_a_grant_of_two_files_has_the_actions_of_both(first: int) -> None:
    sends = expanded("topics: {J: {subscriptions: {s: {workers: [w], produces: [kodo/other/K]}}}}")
    reads = expanded(
        "version: 1\nname: other\ntenant: kodo\nnamespace: other\ntopics: {K: {subscriptions: {t: {workers: [w]}}}}"
    )
    files = [sends, reads] if first == 0 else [reads, sends]
    grant = expansion_document(files, None)["resources"]["grant.persistent://kodo/other/K/w"]
    assert grant["actions"] == ["consume", "produce"]
    assert grant["topology"] == files[0].name
