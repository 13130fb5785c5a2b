"""Where a key that is left out has its value from: what `explain` says, held against what files stand for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kodoctl.topology.expand import Expansion
from kodoctl.topology.model.policies import to_json
from kodoctl.topology.policy_layers import inherited_from, value_origins
from tests.unit.topology.topology_files import HEAD, expanded

SUBSCRIPTION = "topics.J.subscriptions.s"
POLICIES = [
    ("topics.J.policies.max_producers", "J", 4),
    ("topics.J.state_policies.max_producers", "J-s-RETRYING", 7),
    (f"{SUBSCRIPTION}.dead_letter.max_producers", "J-s-DLQ", 6),
    (f"{SUBSCRIPTION}.audit.max_producers", "J-s-AUDIT", 6),
]


def _file(places: list[str]) -> str:
    """A file with a value of its own at each of the places."""
    root: dict[str, Any] = {**yaml.safe_load(HEAD), "topics": {"J": {"subscriptions": {"s": {"audit": True}}}}}
    for number, place in enumerate(places):
        *above, last = place.split(".")
        here = root
        for word in above:
            below = here.get(word)
            here[word] = below if isinstance(below, dict) else {}
            here = here[word]
        here[last] = 10 + number
    return yaml.safe_dump(root, sort_keys=False)


def _origin(expansion: Expansion, local: str) -> str:
    """The place of the policy's value: a path of the file, "" for a derived or absent one."""
    topic = next(topic for topic in expansion.topics if topic.name.local == local)
    return ".".join(value_origins(topic.layers, "max_producers").get("", ()))


@pytest.mark.parametrize(("path", "local", "number"), POLICIES)
def test_a_policy_is_inherited_from_the_places_in_their_order(path: str, local: str, number: int) -> None:
    chain = [path, *inherited_from(path.split("."))]
    assert len(chain) == number
    places = [place for place in chain if "." in place and " " not in place and "namespace" not in place]
    for left_out in range(len(places)):
        assert _origin(expanded(_file(places[left_out:])), local) == places[left_out]


def test_maps_of_a_policy_merge_by_their_entries_at_every_depth() -> None:
    """The map of the topic replaced that of the defaults, and the file's other limits vanished without a word."""
    text = """
defaults:
  policies:
    subscription_rates: {billing: {messages: 100}, shipping: {messages: 5}}
    offload: {driver: filesystem, settings: {fileSystemURI: "hdfs://a:9000", fileSystemProfilePath: p.xml}}
topics:
  J:
    policies:
      subscription_rates: {billing: {size: 1MiB}, crm: {messages: 7}}
      offload: {settings: {fileSystemURI: "hdfs://b:9000"}}
"""
    (topic,) = expanded(text).topics
    rates, offload = (to_json(topic.resource.policies[name]) for name in ("subscription_rates", "offload"))
    assert {name: (rate["messages"], rate["size"]) for name, rate in rates.items()} == {
        "billing": (100, "1MiB"), "crm": (7, "unlimited"), "shipping": (5, "unlimited")
    }  # fmt: skip
    assert offload["settings"] == {"fileSystemURI": "hdfs://b:9000", "fileSystemProfilePath": "p.xml"}
    origins = {name: ".".join(path) for name, path in value_origins(topic.layers, "subscription_rates").items()}
    assert origins == {
        "billing": "topics.J.policies.subscription_rates.billing",
        "crm": "topics.J.policies.subscription_rates.crm",
        "shipping": "defaults.policies.subscription_rates.shipping",
    }


def test_values_that_kodoctl_derives_for_dead_letters_are_over_those_of_the_topic() -> None:
    chain = inherited_from(f"{SUBSCRIPTION}.dead_letter.ttl".split("."))
    assert chain[:2] == ("what kodoctl derives for such a topic", "topics.J.policies.ttl")
    topics = expanded("topics: {J: {policies: {ttl: 1h}, subscriptions: {s: {}}}}").topics
    layers = next(topic.layers for topic in topics if topic.name.local == "J-s-DLQ")
    assert value_origins(layers, "ttl") == {"": ()}


def test_derived_limits_are_under_the_defaults_of_ready_topics_alone() -> None:
    """The chain of a waiting topic named the derived values twice, and that of `deduplication` never."""
    derived = "what kodoctl derives for such a topic"
    for policy in ("max_unacked_per_consumer", "deduplication"):
        assert inherited_from(["topics", "J", "policies", policy])[:2] == (f"defaults.policies.{policy}", derived)
        for above in ("topics.J.state_policies", "defaults.state_policies", f"{SUBSCRIPTION}.dead_letter"):
            chain = inherited_from([*above.split("."), policy])
            assert chain.count(derived) == 1
            assert chain.index(derived) < chain.index(f"defaults.policies.{policy}")


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("topics.J.partitions", ["defaults.partitions"]),
        ("topics.J.payloads.keep", ["payloads"]),
        ("topics.J.owners", ["owners"]),
        ("topics.J.labels.tier", ["labels.tier"]),
        ("topics.J.replication", ["defaults.policies.replication", "namespace_policies.replication"]),
        ("topics.J.policies.retention.time", ["defaults.policies.retention.time", "namespace_policies.retention.time"]),
        ("defaults.policies.ttl", ["namespace_policies.ttl"]),
        ("defaults.state_policies.ttl", ["what kodoctl derives for such a topic", "topics.NAME.policies.ttl"]),
        ("defaults.policies.max_unacked_per_consumer", ["what kodoctl derives for such a topic"]),
        ("namespace_policies.ttl", ["the broker's setting"]),
        (f"{SUBSCRIPTION}.audit.mode", []),
        (f"{SUBSCRIPTION}.in_place", []),
        ("name", []),
    ],
)
def test_other_keys_are_inherited_from_where_the_design_says(path: str, places: list[str]) -> None:
    chain = inherited_from(path.split("."))
    assert list(chain[: len(places)]) == places
    assert bool(chain) == bool(places)
