"""What a file becomes: names, partitions, merged policies, subscriptions, grants, schemas, and the places of each."""

import json
from pathlib import Path
from typing import Any

import pytest

from kodoctl.topology.expand import Expansion
from kodoctl.topology.model.policies import to_json
from kodoctl.topology.names import HOLDER, NamespaceName, TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)
from tests.unit.topology.topology_files import FILE, expanded

SHAPES = {
    "simplest": ("", "states: [], dead_letter: false", "J"),
    "simple": ("", "states: [retrying]", "J J-s-RETRYING J-s-DLQ"),
    "single level": ("", "", "J J-s-RETRYING J-s-PENDING J-s-BLOCKING J-s-DLQ"),
    "single level with backup": ("backup: true, ", "", "J J-B1 J-s-RETRYING J-s-PENDING J-s-BLOCKING J-s-DLQ"),
    "double level with backup": (
        "levels: double, backup: true, ",
        "",
        "J-L2 J J-B1 J-L2-s-RETRYING J-s-RETRYING J-L2-s-PENDING J-s-PENDING J-L2-s-BLOCKING J-s-BLOCKING J-s-DLQ",
    ),
}


def family(topic: str = "", subscription: str = "", rest: str = "") -> Expansion:
    return expanded(f"{rest}topics: {{J: {{{topic}subscriptions: {{s: {{{subscription}}}}}}}}}")


def topic_of(expansion: Expansion, local: str) -> TopicResource:
    return next(topic.resource for topic in expansion.topics if topic.name.local == local)


def policies_of(expansion: Expansion, local: str) -> dict[str, Any]:
    return {name: to_json(value) for name, value in topic_of(expansion, local).policies.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_five_shapes_expand_to_exactly_the_topics_of_the_design(shape: str) -> None:
    topic, subscription, names = SHAPES[shape]
    assert [one.name.local for one in family(topic, subscription).topics] == names.split()


def test_every_other_combination_of_levels_works_as_well() -> None:
    expansion = family(
        "levels: [D1, S1, L1, B2], draining: [L3], ", "states: [pending], draining: [blocking], audit: true"
    )
    assert [topic.name.local for topic in expansion.topics] == [
        "J-S1",
        "J-L3",
        "J",
        "J-B2",
        "J-D1",
        "J-S1-s-PENDING",
        "J-L3-s-PENDING",
        "J-s-PENDING",
        "J-D1-s-PENDING",
        "J-S1-s-BLOCKING",
        "J-L3-s-BLOCKING",
        "J-s-BLOCKING",
        "J-D1-s-BLOCKING",
        "J-s-DLQ",
        "J-s-AUDIT",
    ]


def test_the_whole_family_has_the_partitions_of_the_ground_and_dead_letters_their_own() -> None:
    expansion = family("partitions: 6, ", "audit: true, dead_letter: {partitions: 2}", "defaults: {partitions: 3}\n")
    partitions = {topic.name.local: topic.resource.partitions for topic in expansion.topics}
    assert {local: number for local, number in partitions.items() if number != 6} == {"J-s-DLQ": 2}
    assert topic_of(family(), "J").partitions == 1
    assert topic_of(family(rest="defaults: {partitions: 3}\n"), "J-s-PENDING").partitions == 3
    assert topic_of(family(rest="defaults: {partitions: 3}\n"), "J-s-DLQ").partitions == 1


def test_a_plain_topic_makes_its_family_plain_and_dead_letters_say_their_own() -> None:
    expansion = family("partitioned: false, ", "audit: true", "defaults: {partitions: 3}\n")
    partitions = {topic.name.local: topic.resource.partitions for topic in expansion.topics}
    assert {local: number for local, number in partitions.items() if number} == {"J-s-DLQ": 1}
    both = family("partitions: 2, ", "dead_letter: {partitioned: false}")
    assert topic_of(both, "J").partitions == 2
    assert topic_of(both, "J-s-DLQ").partitions == 0
    paths = {topic.name.local: plain.partitions_path(topic) for plain in (expansion, both) for topic in plain.topics}
    assert paths["J-s-RETRYING"] == ("topics", "J", "partitions")
    assert paths["J-s-AUDIT"] == ("topics", "J", "partitioned")
    assert paths["J-s-DLQ"] == ("topics", "J", "subscriptions", "s", "dead_letter", "partitioned")


MERGING = """\
defaults:
  policies: {max_producers: 1, ttl: 1d, deduplication: false, retention: {time: 1d, size: 1GiB}, schema_validation: true}
  state_policies: {max_producers: 3, deduplication: false}
topics:
  J:
    policies: {max_producers: 2, max_consumers: 2, retention: {time: 2d}}
    state_policies: {max_producers: 4, max_subscriptions: 4}
    subscriptions:
      s: {audit: {max_consumers: 6}, dead_letter: {max_producers: 5, ttl: 30d}}
"""


@pytest.mark.parametrize(
    ("local", "policies"),
    [
        ("J", {"max_producers": 2, "max_consumers": 2, "ttl": "1d", "deduplication": False, "schema_validation": True, "retention": {"time": "2d", "size": "1GiB"}}),
        ("J-s-PENDING", {"max_producers": 4, "max_consumers": 2, "max_subscriptions": 4, "ttl": "1d", "deduplication": False, "schema_validation": False, "retention": {"time": "2d", "size": "1GiB"}}),
        ("J-s-RETRYING", {"max_producers": 4, "max_consumers": 2, "max_subscriptions": 4, "ttl": "1d", "deduplication": False, "schema_validation": False, "retention": {"time": "2d", "size": "1GiB"}}),
        ("J-s-DLQ", {"max_producers": 5, "max_consumers": 2, "ttl": "30d", "deduplication": False, "schema_validation": False, "retention": {"time": "2d", "size": "1GiB"}, "backlog_quota": {"size": "unlimited", "time": "unlimited", "when_full": "hold_producers"}, "subscription_expiry": "unlimited", "inactive_topic": {"delete": "never"}}),
        ("J-s-AUDIT", {"max_producers": 2, "max_consumers": 6, "ttl": "unlimited", "deduplication": False, "schema_validation": True, "retention": {"time": "7d", "size": "unlimited"}, "backlog_quota": {"size": "unlimited", "time": "unlimited", "when_full": "hold_producers"}, "inactive_topic": {"delete": "never"}}),
    ],
)  # fmt: skip
def test_policies_merge_in_the_order_of_the_design(local: str, policies: dict[str, Any]) -> None:
    assert policies_of(expanded(MERGING), local) == policies


def test_inherit_drops_what_a_default_or_derivation_set() -> None:
    body = (
        "defaults: {policies: {ttl: 1d}}\n"
        "topics: {J: {policies: {ttl: inherit}, state_policies: {deduplication: inherit}, "
        "subscriptions: {s: {dead_letter: {backlog_quota: inherit, ttl: inherit}}}}}"
    )
    expansion = expanded(body)
    assert policies_of(expansion, "J") == {}
    assert policies_of(expansion, "J-s-RETRYING") == {"schema_validation": False}
    assert {"ttl", "backlog_quota"}.isdisjoint(policies_of(expansion, "J-s-DLQ"))


def test_an_inactive_topic_default_does_not_leave_a_time_at_dead_letters_that_are_never_deleted() -> None:
    expansion = family(rest="defaults: {policies: {inactive_topic: {delete: no_subscriptions, after: 1h}}}\n")
    assert policies_of(expansion, "J-s-DLQ")["inactive_topic"] == {"delete": "never"}


def test_waiting_topics_are_deduplicated_and_state_topics_take_any_schema_version() -> None:
    expansion = family("", "states: [retrying, pending, blocking]")
    for state in ("RETRYING", "PENDING", "BLOCKING"):
        assert policies_of(expansion, f"J-s-{state}") == {"deduplication": True, "schema_validation": False}
    assert "deduplication" not in policies_of(expansion, "J-s-DLQ")
    assert policies_of(expansion, "J") == {}


@pytest.mark.parametrize(
    ("lookahead", "workers", "budget"),
    [(50_000, 2, {}), (60_000, 1, {"max_unacked_per_consumer": 60_000}), (50_000, 3, {"max_unacked_per_subscription": 300_000}), (100_000, 4, {"max_unacked_per_consumer": 100_000, "max_unacked_per_subscription": 800_000}), (1_000, 100, {})],
)  # fmt: skip
def test_unacknowledged_limits_follow_the_look_ahead_only_above_the_brokers_defaults(
    lookahead: int, workers: int, budget: dict[str, int]
) -> None:
    expansion = family("", f"lookahead: {{messages: {lookahead}}}, expected_workers: {workers}")
    assert policies_of(expansion, "J") == budget
    assert policies_of(expansion, "J-s-PENDING") == {**budget, "schema_validation": False, "deduplication": True}


def test_ready_topics_serve_the_largest_look_ahead_of_their_subscriptions() -> None:
    body = "topics: {J: {policies: {max_unacked_per_subscription: 9}, subscriptions: {a: {lookahead: {messages: 70000}}, b: {lookahead: {messages: 90000}}}}}"
    assert policies_of(expanded(body), "J") == {"max_unacked_per_consumer": 90_000, "max_unacked_per_subscription": 9}


def test_ignored_policies_are_left_out_of_the_whole_family() -> None:
    expansion = family("ignore: [ttl, schema_validation], policies: {ttl: 1d, max_producers: 1}, ")
    assert all({"ttl", "schema_validation"}.isdisjoint(topic.resource.policies) for topic in expansion.topics)
    assert policies_of(expansion, "J") == {"max_producers": 1}


def test_replication_may_stand_on_the_topic() -> None:
    expansion = family("replication: [east, west], ")
    assert {tuple(policies_of(expansion, topic.name.local)["replication"]) for topic in expansion.topics} == {
        ("east", "west")
    }
    assert str(expansion.topology.where("topics", "J", "replication")) == f"{FILE}:5:14"


def test_subscriptions_stand_on_every_topic_they_read_and_a_holder_keeps_dead_letters() -> None:
    expansion = expanded(
        "topics: {J: {levels: double, subscriptions: {a: {start: latest, states: [retrying], audit: true}, b: {states: [], dead_letter: false}}}}"
    )
    found = {
        (one.topic.local, one.name, one.start)
        for one in expansion.resources.values()
        if isinstance(one, SubscriptionResource)
    }
    assert found == {
        ("J", "a", "latest"), ("J-L2", "a", "earliest"), ("J", "b", "earliest"), ("J-L2", "b", "earliest"),
        ("J-a-RETRYING", "a", "earliest"), ("J-L2-a-RETRYING", "a", "earliest"), ("J-a-DLQ", HOLDER, "earliest"),
    }  # fmt: skip


GRANTS = """\
namespace_grants: {planner: [consume], both: [consume, produce]}
topics:
  J:
    producers: [shop]
    backup: true
    subscriptions:
      s: {states: [retrying, pending], audit: true, workers: [w], recall: [sre], produces: [K, x/y/z]}
  K: {subscriptions: {t: {states: [], dead_letter: false, workers: [w]}}}
"""


def test_roles_get_what_they_need_and_nothing_else() -> None:
    grants = [one for one in expanded(GRANTS).resources.values() if isinstance(one, GrantResource)]
    found: dict[str, dict[str, str]] = {}
    for grant in grants:
        local = grant.target.local if isinstance(grant.target, TopicName) else str(grant.target)
        found.setdefault(local, {})[grant.role] = " ".join(sorted(grant.actions))
    assert found == {
        "kodo/trade": {"planner": "consume", "both": "consume produce"},
        "J": {"shop": "produce", "w": "consume produce", "sre": "produce"},
        "J-B1": {"shop": "produce", "w": "consume produce", "sre": "produce"},
        "J-s-RETRYING": {"w": "consume produce", "sre": "produce"},
        "J-s-PENDING": {"w": "consume produce"},
        "J-s-DLQ": {"w": "produce", "sre": "consume"},
        "J-s-AUDIT": {"w": "produce"},
        "K": {"w": "consume produce"},
        "z": {"w": "produce"},
    }


def test_namespace_and_tenant_are_resources_of_the_file_that_declares_them() -> None:
    expansion = family(
        rest="create_tenant: {clusters: [a, b], admin_roles: [ops]}\nnamespace_policies: {max_topics: 5, ttl: inherit}\n"
    )
    tenant, namespace = expansion.frame
    assert tenant == TenantResource("kodo", frozenset({"a", "b"}), frozenset({"ops"}))
    assert namespace == NamespaceResource(
        NamespaceName("kodo", "trade"), {"max_topics": 5}, frozenset({"max_topics", "ttl"})
    )
    assert not list(family().frame)


def test_an_avro_schema_goes_to_the_ready_topics_and_a_json_one_to_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topologies").mkdir()
    Path("topologies/order.json").write_text(json.dumps({"type": "record", "name": "Order", "fields": []}))
    for kind, topics in (("avro", {"J", "J-L2"}), ("json", set())):
        expansion = family(f"levels: double, payload: {{type: {kind}, schema: order.json}}, ")
        found = [one for one in expansion.resources.values() if isinstance(one, SchemaResource)]
        assert {one.topic.local for one in found} == topics
        assert {one.definition for one in found} <= {'{"fields":[],"name":"Order","type":"record"}'}


def test_a_schema_file_that_is_missing_declares_no_schema() -> None:
    expansion = family("payload: {type: avro, schema: nowhere.json}, ")
    assert not [one for one in expansion.resources.values() if isinstance(one, SchemaResource)]


def test_every_address_has_the_place_of_the_entry_that_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topologies").mkdir()
    Path("topologies/order.json").write_text('{"type": "record", "name": "Order", "fields": []}')
    body = (
        "create_tenant: {clusters: [a]}\nnamespace_policies: {}\nnamespace_grants: {p: [consume]}\ntopics:\n"
        "  J:\n    payload: {type: avro, schema: order.json}\n    producers: [shop]\n"
        "    subscriptions:\n      s: {workers: [w], produces: [x/y/z]}\n"
    )
    expansion = expanded(body)
    assert expansion.places.keys() == expansion.resources.keys()
    lines = {address: (where.line, where.column) for address, where in expansion.places.items()}
    topic = "persistent://kodo/trade/J"
    assert lines["tenant.kodo"] == (5, 1)
    assert lines["namespace.kodo/trade"] == (6, 1)
    assert lines["grant.kodo/trade/p"] == (7, 1)
    assert lines[f"topic.{topic}"] == (9, 3)
    assert lines[f"schema.{topic}"] == (10, 5)
    assert lines[f"grant.{topic}/shop"] == (9, 3)
    assert lines[f"subscription.{topic}/s"] == (13, 7)
    assert lines[f"topic.{topic}-s-DLQ"] == lines[f"subscription.{topic}-s-DLQ/kodo-hold"] == (13, 7)
    assert lines["grant.persistent://x/y/z/w"] == (8, 1)


def test_families_are_listed_by_ground_also_when_they_have_no_level() -> None:
    expansion = expanded("topics: {a: {levels: []}, b: {}}")
    assert {ground: [topic.name.local for topic in topics] for ground, topics in expansion.by_ground().items()} == {
        "a": [],
        "b": ["b"],
    }
    assert expansion.name == "trade"
