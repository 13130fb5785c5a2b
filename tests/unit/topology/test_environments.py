"""Environments: a JSON merge patch over the file, with the places of what it brings."""

import json
from typing import Any

import pytest

from kodoctl.topology.environments import apply_overlay, changes_nothing, in_environment
from kodoctl.topology.yaml.nodes import Node, parse
from tests.unit.topology.topology_files import FILE, codes_in, expanded, found_in, loaded


def node_of(value: Any) -> Node:
    root, findings = parse(json.dumps(value).encode(), FILE)
    assert root is not None
    assert not findings
    return root


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # the examples of RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # and one of ours: a word that a map replaces
        ({"dead_letter": False}, {"dead_letter": {"ttl": None, "partitions": 2}}, {"dead_letter": {"partitions": 2}}),
    ],
)
def test_overlays_merge_as_rfc_7396_says(target: Any, patch: Any, result: Any) -> None:
    before, change = node_of(target), node_of(patch)
    assert apply_overlay(before, change).plain() == result
    assert (before.plain(), change.plain()) == (target, patch), "neither argument is changed"


TWO = """\
defaults: {partitions: 4}
topics:
  orders: {subscriptions: {billing: {}}}
environments:
  staging: {}
  prod:
    production: true
    namespace: trade-prod
    defaults:
      partitions: 16
"""


def test_an_environment_sees_the_file_with_its_overlay() -> None:
    base, staging, prod = (loaded(TWO, environment) for environment in (None, "staging", "prod"))
    assert [one.spec.defaults.partitions for one in (base, staging, prod)] == [4, 4, 16]
    assert [one.spec.namespace for one in (base, staging, prod)] == ["trade", "trade", "trade-prod"]
    assert [one.production for one in (base, staging, prod)] == [False, False, True]


def test_a_value_of_an_overlay_has_the_place_where_it_stands() -> None:
    assert str(loaded(TWO, "prod").where("defaults", "partitions")) == f"{FILE}:14:19"
    assert str(loaded(TWO, "staging").where("defaults", "partitions")) == f"{FILE}:5:24"


def test_an_overlay_without_content_changes_nothing() -> None:
    root = loaded(TWO).source.root
    assert changes_nothing(root, "staging")
    assert not changes_nothing(root, "prod")
    assert not changes_nothing(root, "nowhere")
    assert not changes_nothing(None, "staging")
    assert not changes_nothing(node_of([1]), "staging")
    assert not changes_nothing(node_of({"environments": 1}), "staging")


def test_a_file_without_overlay_is_itself() -> None:
    root = node_of([1])
    assert in_environment(root, "prod") == (root, False, [])


@pytest.mark.parametrize(
    ("environments", "finding"),
    [
        ("[prod]", "6:15 K004 environments should be a map from names to overlays, such as {prod: {production: true}}"),
        ("5", "6:15 K004 environments should be a map from names to overlays, such as {prod: {production: true}}"),
        ("{base: {}}", "6:16 K017 'base' names the file without overlay: choose another"),
        ("{prod: }", "6:22 K004 environments.prod should be a map; {} changes nothing (environment prod)"),
        ("{prod: 16}", "6:22 K004 environments.prod should be a map; {} changes nothing (environment prod)"),
        ("{prod: {name: x}}", "6:23 K017 environments.prod.name: name is the same everywhere (environment prod)"),
        ("{prod: {version: 1}}", "6:23 K017 environments.prod.version: version is the same everywhere (environment prod)"),
        ("{prod: {production: yes}}", "6:35 K004 environments.prod.production should be true or false (environment prod)"),
        ("{prod: {defaults: {partitons: 9}}}", "6:34 K003 defaults.partitons: did you mean 'partitions'? (environment prod)"),
        ("{prod: {defaults: {partitions: '9'}}}", "6:46 K004 defaults.partitions: the text '9', should be a whole number (without quotes) (environment prod)"),
        ("{prod: {tenant: null}}", "1:1 K006 tenant is needed: a text such as kodo (environment prod)"),
        ("{prod: {topics: {orders: {levels: [L2]}}}}", "6:41 K103 L1 is missing: it is the ground topic itself, and always part of the list (environment prod)"),
    ],
)  # fmt: skip
def test_a_bad_overlay_is_found_once_with_its_place_and_environment(environments: str, finding: str) -> None:
    found = found_in("topics: {orders: {subscriptions: {billing: {}}}}\nenvironments: " + environments)
    assert [f"{f.where.line}:{f.where.column} {f.code} {f.detail}" for f in found if f.where] == [finding]


def test_a_mistake_of_the_base_is_found_once_however_many_environments_there_are() -> None:
    body = "topics: {orders: {levls: double}}\nenvironments: {staging: {}, prod: {defaults: {partitions: 16}}}"
    assert codes_in(body) == ["K003"]


def test_a_file_must_have_the_environments_of_its_set() -> None:
    first = "topics: {orders: {}}\nenvironments: {staging: {defaults: {partitions: 2}}, prod: {}}\n"
    second = "version: 1\nname: other\ntenant: kodo\nnamespace: other\ntopics: {}\nenvironments: {prod: {}}\n"
    assert [(f.code, f.where and f.where.file) for f in found_in(first, second)] == [("K017", "topologies/other1.yaml")]
    assert not codes_in(first, second.replace("{prod: {}}", "{prod: {}, staging: {}}"))


def test_topics_that_an_overlay_leaves_alone_or_changes_or_drops_or_adds_are_all_right() -> None:
    body = """\
topics:
  kept: {subscriptions: {s: {}}}
  changed: {subscriptions: {s: {}}}
  dropped: {subscriptions: {s: {}}}
environments:
  prod:
    topics:
      changed: {backup: true}
      dropped: null
      added: {}
"""
    assert not codes_in(body)
    assert {topic.name.local for topic in expanded(body, "prod").topics if topic.state == "ready"} == {
        "kept", "changed", "changed-B1", "added",
    }  # fmt: skip


def test_more_environments_than_anybody_has_are_refused() -> None:
    many = "".join(f"  e{number}: {{}}\n" for number in range(65))
    found = found_in("topics: {orders: {}}\nenvironments:\n" + many)
    assert [(f.code, f.detail) for f in found] == [("K008", "65 environments, at most 64: each is checked on its own")]
