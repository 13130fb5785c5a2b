"""Answers of the broker in our types: stats of a topic, what kind of broker it is, records of our own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kodoctl.errors import ClusterError
from kodoctl.plan.importing.import_planner import import_namespace
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.admin.admin import (
    AdminError,
    Reply,
    RequestCount,
    must,
    partition_path,
    schema_path,
    subscription_path,
    topic_path,
)
from kodoctl.pulsar.admin.broker_info import read_bookies, read_server, read_version
from kodoctl.pulsar.admin.omitted_partitions import NotAwaitedError
from kodoctl.pulsar.admin.topic_stats import parse, read_plain_topic, read_same_kind, read_topic
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.pulsar.control.control_namespace import read_control_namespace
from kodoctl.pulsar.inventory import topic_policy_reader
from kodoctl.pulsar.inventory.live_inventory import (
    grants_of,
    list_topics,
    read_live,
)
from kodoctl.pulsar.inventory.read_scope import ReadScope
from kodoctl.pulsar.inventory.schema_reader import read_schema
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, encode, read_ledgers
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import PLAIN, NamespaceName, TopicName
from kodoctl.topology.resources import SchemaResource, TopicResource
from kodoctl.topology.target_flags import TargetFlags
from tests.samples.inventories import HERE

J, K = TopicName(HERE, "J"), TopicName(HERE, "K")


class Book:
    """An admin port that answers GETs from a table; anything else is 404, or `otherwise`."""

    def __init__(self, otherwise: int = 404, **answers: Any) -> None:
        self.answers, self.otherwise = answers, otherwise
        self.traffic = RequestCount()
        self.waits = WaitMonitor()
        self.asked: list[str] = []

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Reply:
        self.asked.append(path)
        answer = self.answers.get(path.replace("/", "_"), self.otherwise)
        return Reply(method, path, answer, None, "no") if isinstance(answer, int) else Reply(method, path, 200, answer)


# --- names in paths


def test_names_are_encoded_as_often_as_pulsar_decodes_them_and_nothing_in_them_leads_elsewhere() -> None:
    odd = TopicName(HERE, "a b%41#?/../x")
    assert topic_path(odd) == "persistent/acme/ns/a%20b%2541%23%3F%2F..%2Fx"
    assert schema_path(odd) == "schemas/acme/ns/a%2520b%252541%2523%253F%252F..%252Fx"
    assert schema_path(J) == "schemas/acme/ns/J"
    assert partition_path(J, 2) == "persistent/acme/ns/J-partition-2"
    assert subscription_path(J, "s/t\n") == "persistent/acme/ns/J/subscription/s%252Ft%250A"
    assert subscription_path(J, "a+b", 2) == "persistent/acme/ns/J-partition-2/subscription/a%252Bb"


# --- topics that others made


def test_whoever_may_produce_chooses_names_and_each_is_listed() -> None:
    """`..` is a topic like others to a broker; of one with a NUL no broker can be asked, so that only its name is known."""
    here = "persistent://acme/ns/"
    partitioned = [f"{here}{name}" for name in ("J", "..", ".", "a b", "n\0l", "__change_events")]
    plain = [f"{name}-partition-0" for name in partitioned] + [f"{here}p", f"{here}../x"]
    admin = Book(persistent_acme_ns_partitioned=partitioned, persistent_acme_ns=plain)
    asked, named = list_topics(admin, HERE)
    assert [topic.local for topic in asked] == [".", "..", "J", "a b"]
    assert [topic.local for topic in named] == ["../x", "n\0l", "p"]


def test_topics_of_clients_whose_names_look_like_those_of_pulsar_are_listed_for_an_import_alone() -> None:
    names = (
        "__consumer_offsets",
        "__change_events",
        "__change_events-partition-0",
        "J-s__transaction_pending_ack",
        "J",
    )
    plain = [f"persistent://acme/ns/{name}" for name in names]
    admin = Book(persistent_acme_ns_partitioned=[], persistent_acme_ns=plain)
    assert [topic.local for topic in list_topics(admin, HERE)[1]] == ["J", "J-s__transaction_pending_ack"]
    assert [topic.local for topic in list_topics(admin, HERE, with_underscores=True)[1]] == ["J", "__consumer_offsets"]


def test_a_grant_on_a_topic_of_any_name_is_read() -> None:
    dump = {"auth_policies": {"destination_auth": {"persistent://acme/ns/..": {"anna": ["produce"]}}}}
    assert [grant.address for grant in grants_of(HERE, dump)] == ["grant.persistent://acme/ns/../anna"]


# --- stats


def _part(subscriptions: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"subscriptions": subscriptions or {}, "publishers": [], "storageSize": 0, "backlogSize": 0, **more}


def _stats(*parts: dict[str, Any] | None, **metadata: Any) -> dict[str, Any]:
    named = {f"persistent://acme/ns/J-partition-{index}": part for index, part in enumerate(parts) if part is not None}
    return {"metadata": {"partitions": len(parts), **metadata}, "partitions": named}


def _book_of_plain(**answers: Any) -> Book:
    part = _part({"s": {"msgBacklog": 2, "consumers": [{}]}}, storageSize=100)
    found = {"partitions": {"partitions": 0}, "stats": part, "properties": {"kodoctl": "trade"}, **answers}
    return Book(**{f"persistent_acme_ns_J_{name}": answer for name, answer in found.items()})


def test_a_plain_topic_is_read_as_one_partition_with_its_name() -> None:
    admin = _book_of_plain()
    for found in (read_topic(admin, J), read_plain_topic(admin, J), read_plain_topic(admin, J, of=frozenset())):
        assert found is not None
        assert (found.partitions, found.marker, found.missing) == (0, "trade", ())
        assert [(one.name, one.missing_on, one.facts.backlog_entries) for one in found.subscriptions] == [("s", (), 2)]
        assert (found.facts.storage_bytes, found.facts.busy_partitions) == (100, (PLAIN,))


def test_properties_of_others_and_replicated_positions_are_read() -> None:
    sub = {"subscriptionProperties": {"team": "a", "kodoctl": "trade", "kodo-steer": "x"}, "isReplicated": True}
    found = parse(
        J, _stats(_part({"s": sub}), _part({"s": {}, "t": {}}), properties={"kodoctl": "trade", "owner": "web"})
    )
    assert found.properties == {"owner": "web"}
    assert [(one.name, dict(one.properties), one.is_replicated) for one in found.subscriptions] == [
        ("s", {"team": "a"}, True),
        ("t", {}, False),
    ]


@pytest.mark.parametrize("gone", ["partitions", "stats", "properties"])
def test_a_plain_topic_that_goes_meanwhile_is_absent(gone: str) -> None:
    assert read_topic(_book_of_plain(**{gone: 404}, persistent=[]), J) is None


def test_a_plain_topic_that_is_not_ours_is_not_waited_for() -> None:
    with pytest.raises(NotAwaitedError, match="nothing is known of it"):
        read_plain_topic(_book_of_plain(stats=500), J, of=frozenset({"trade"}))


def test_a_topic_of_the_other_kind_in_its_place_is_another_topic() -> None:
    assert read_same_kind(_book_of_plain(), TopicResource(J, 1, {})) is None
    assert read_same_kind(_book_of_plain(), TopicResource(J, 0, {})) is not None


def test_sizes_backlogs_and_clients_are_summed_over_partitions() -> None:
    sub = {"msgBacklog": 2, "backlogSize": 10, "consumers": [{}], "subscriptionProperties": {"kodoctl": "trade"}}
    one = _part({"s": sub}, publishers=[{}], storageSize=100, backlogSize=10, lastPublishTimeStamp=5)
    other = _part({"s": {**sub, "consumers": []}}, storageSize=50, backlogSize=20, lastPublishTimeStamp=9)
    found = parse(J, _stats(one, other, _part({"s": sub}), properties={"kodoctl": "trade"}))
    assert (found.partitions, found.marker, found.missing) == (3, "trade", ())
    facts = found.facts
    assert (facts.storage_bytes, facts.backlog_bytes, facts.last_publish) == (150, 30, 9)
    assert (facts.producers, facts.consumers, facts.busy_partitions) == (1, 1, (0, 2))
    [reading] = found.subscriptions
    assert (reading.name, reading.marker, reading.missing_on) == ("s", "trade", ())
    assert (reading.facts.backlog_entries, reading.facts.backlog_bytes, reading.facts.consumers) == (6, 30, 1)


def test_a_subscription_on_one_partition_of_four_lacks_the_others() -> None:
    found = parse(J, _stats(_part(), _part({"s": {}}), _part(), _part()))
    assert [(s.name, s.missing_on) for s in found.subscriptions] == [("s", (0, 2, 3))]


def test_a_partition_that_is_not_there_is_missing_and_no_subscription_lacks_it() -> None:
    found = parse(J, _stats(_part({"s": {}}), None, _part({"s": {}})))
    assert found.missing == (1,)
    assert [(s.name, s.missing_on) for s in found.subscriptions] == [("s", ())]


@pytest.mark.parametrize("key", ["isDurable", "durable"])
def test_readers_leave_nothing_that_counts(key: str) -> None:
    found = parse(J, _stats(_part({"reader-1": {key: False, "msgBacklog": 9}, "s": {key: True}})))
    assert [s.name for s in found.subscriptions] == ["s"]


def test_the_brokers_own_cursor_of_a_compacted_topic_is_nobodys_subscription() -> None:
    reading = parse(J, _stats(_part({"__compaction": {"isDurable": True, "msgBacklog": 3}, "s": {}})))
    assert [s.name for s in reading.subscriptions] == ["s"]


def test_live_orders_to_workers_are_seen_and_kept() -> None:
    found = parse(J, _stats(_part({"s": {"subscriptionProperties": {"kodo-steer": "pause"}}})))
    assert found.subscriptions[0].facts.steered == "pause"


def test_an_answer_without_most_of_its_members_is_an_empty_topic() -> None:
    found = parse(J, {})
    assert (found.partitions, found.marker, found.subscriptions) == (0, None, ())
    assert parse(J, {"metadata": None, "partitions": None}).facts.producers == 0


# --- the broker


CONFIG = {
    "clusterName": "east",
    "defaultRetentionTimeInMinutes": "60",
    "defaultRetentionSizeInMB": "-1",
    "ttlDurationDefaultInSeconds": "0",
    "subscriptionExpirationTimeMinutes": "5",
    "backlogQuotaDefaultLimitBytes": "1024",
    "brokerDeleteInactiveTopicsEnabled": "true",
    "brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up",
    "brokerDeleteInactiveTopicsFrequencySeconds": "120",
    "isSchemaValidationEnforced": "true",
    "managedLedgerDefaultEnsembleSize": "3",
    "allowAutoTopicCreation": "false",
}


def test_a_super_user_learns_the_cluster_and_the_brokers_defaults() -> None:
    server = read_server(Book(clusters=["east", "west"], brokers_configuration_runtime=CONFIG, brokers_version="4.2.4"))
    assert (server.cluster, server.version) == ("east", (4, 2, 4))
    expected = {
        "retention": {"time": "1h", "size": "unlimited"},
        "ttl": "unlimited",
        "subscription_expiry": "5m",
        "backlog_quota": {"size": "1KiB", "time": "unlimited"},
        "inactive_topic": {"delete": "caught_up", "after": "2m"},
        "auto_topic_creation": False,
        "persistence": {"ensemble": 3, "write_quorum": 2, "ack_quorum": 2},
        "schema_validation": True,
    }
    assert server.defaults == {name: from_json(name, value) for name, value in expected.items()}
    assert not server.unsupported


def test_others_know_the_cluster_when_there_is_one_and_no_defaults() -> None:
    server = read_server(Book(clusters=["east", "global"], brokers_configuration_runtime=401))
    assert (server.cluster, dict(server.defaults)) == ("east", {})


def test_several_clusters_cannot_be_told_apart_without_a_super_user() -> None:
    with pytest.raises(ClusterError, match="knows east, west and only a super-user"):
        read_server(Book(clusters=["east", "west"], brokers_configuration_runtime=401))


def test_something_else_that_answers_is_not_taken_for_pulsar() -> None:
    with pytest.raises(ClusterError) as caught:
        read_server(Book(clusters={"hello": "world"}))
    assert caught.value.diagnostics[0].code == "K523"


@pytest.mark.parametrize(
    ("text", "version"), [("4.0.7", (4, 0, 7)), ("5.1-SNAPSHOT", (5, 1, 0)), ("unknown", ()), ("", ())]
)
def test_a_version_is_read_or_unknown(text: str, version: tuple[int, ...]) -> None:
    assert read_version(Book(brokers_version=text)) == version
    assert read_version(Book()) == ()


def test_an_old_broker_does_not_have_every_policy() -> None:
    assert read_server(Book(clusters=["x"], brokers_version="4.0.7")).unsupported == {"subscription_expiry"}


def test_inactive_topics_that_are_never_deleted_are_told() -> None:
    server = read_server(
        Book(clusters=["x"], brokers_configuration_runtime={"brokerDeleteInactiveTopicsEnabled": "false"})
    )
    assert server.defaults["inactive_topic"] == from_json("inactive_topic", {"delete": "never"})


# --- records of our own


def test_the_control_namespace_holds_the_uuid_and_where_topologies_live() -> None:
    properties = {"kodoctl.uuid": "11", "kodoctl.index/trade": json.dumps(["acme/a", "acme/b"]), "other": "x"}
    found = read_control_namespace(Book(namespaces_acme_kodoctl={"properties": properties}), "acme")
    assert found.uuid == "11"
    assert found.index == {"trade": (NamespaceName("acme", "a"), NamespaceName("acme", "b"))}


def test_who_may_produce_to_the_control_namespace_or_a_topic_in_it_may_write_journals() -> None:
    topic = {"persistent://acme/kodoctl/lease": {"ben": ["produce", "consume"], "cy": ["consume"]}}
    grants = {"namespace_auth": {"anna": ["produce"], "dan": ["consume"]}, "destination_auth": topic}
    found = read_control_namespace(Book(namespaces_acme_kodoctl={"auth_policies": grants}), "acme")
    assert found.producers == {"anna", "ben"}
    assert not read_control_namespace(Book(namespaces_acme_kodoctl={"auth_policies": None}), "acme").producers


def test_a_place_is_a_property_of_its_own_beside_lists_of_earlier_times() -> None:
    properties = {"kodoctl.index/trade": '["acme/a"]', "kodoctl.place/trade/b": "1", "kodoctl.place/other/a": "1"}
    found = read_control_namespace(Book(namespaces_acme_kodoctl={"properties": properties}), "acme")
    a, b = NamespaceName("acme", "a"), NamespaceName("acme", "b")
    assert found.index == {"trade": (a, b), "other": (a,)}


def test_before_the_first_apply_there_is_neither() -> None:
    assert read_control_namespace(Book(), "acme").uuid is None
    assert read_control_namespace(Book(namespaces_acme_kodoctl={}), "acme").uuid is None


@pytest.mark.parametrize("text", ["no json", "5", '["no namespace"]', "null", '["bank/payments"]'])
def test_a_damaged_index_is_told_and_never_guessed_at(text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        read_control_namespace(Book(namespaces_acme_kodoctl={"properties": {"kodoctl.index/trade": text}}), "acme")
    assert caught.value.diagnostics[0].code == "K522"


def test_a_ledger_that_cannot_be_read_stops_the_command() -> None:
    with pytest.raises(ClusterError):
        read_ledgers(HERE, {"properties": {f"{LEDGER_PREFIX}trade": "damaged"}})
    assert read_ledgers(HERE, {"properties": {"something": "else"}}) == {}
    assert read_ledgers(HERE, {}) == {}
    assert isinstance(Ledger("x", HERE).owned, dict)


def test_grants_stand_on_namespaces_and_on_persistent_topics() -> None:
    auth = {
        "namespace_auth": {"anna": ["consume"]},
        "destination_auth": {
            "persistent://acme/ns/J": {"ben": ["produce"]},
            "non-persistent://acme/ns/x": {"cleo": ["produce"]},
        },
    }
    found = {grant.address: grant.actions for grant in grants_of(HERE, {"auth_policies": auth})}
    assert found == {"grant.acme/ns/anna": {"consume"}, "grant.persistent://acme/ns/J/ben": {"produce"}}
    assert not list(grants_of(HERE, {}))


def test_a_refused_request_says_what_it_was_for() -> None:
    with pytest.raises(ClusterError, match=r"listing topics: GET x answered 500 \(no\)"):
        must(Reply("GET", "x", 500, None, "no"), "listing topics")


@pytest.mark.parametrize("status", [412, 500, 503])
def test_a_broker_without_time_has_not_said_that_nothing_is_configured(status: int) -> None:
    for path in ("brokers_configuration_runtime", "brokers_version"):
        with pytest.raises(AdminError, match=f"answered {status}"):
            read_server(Book(clusters=["x"], **{path: status}))
    with pytest.raises(AdminError, match=f"answered {status}"):
        read_bookies(Book(bookies_all=status))
    assert (read_bookies(Book(bookies_all=403)), read_bookies(Book(bookies_all={"bookies": [{}]}))) == (None, 1)


# --- the live side as a whole


def _live(**answers: Any) -> Book:
    """A namespace with topics J and K of two partitions each, as far as `answers` say nothing else."""
    parts = [f"persistent://acme/ns/{name}-partition-{number}" for name in "JK" for number in (0, 1)]
    return Book(
        204,
        **{
            "clusters": ["x"],
            "tenants_acme": {"allowedClusters": ["x"]},
            "namespaces_acme_ns": {"bundles": {}},
            "persistent_acme_ns_partitioned": [f"persistent://acme/ns/{name}" for name in "JK"],
            "persistent_acme_ns": parts,
            **{f"persistent_acme_ns_{name}_partitioned-stats": _stats(_part(), None) for name in "JK"},
            "namespaces_acme_kodoctl": 404,
            "v3_functions_acme_ns": [],
            "v3_sinks_acme_ns": [],
            "v3_sources_acme_ns": [],
            **answers,
        },
    )


def _namespace_with_ledger(address: str) -> dict[str, Any]:
    ledger = Ledger("trade", HERE, owned={address: OwnershipKind.CREATED})
    return {"bundles": {}, "properties": {f"{LEDGER_PREFIX}trade": encode(ledger)}}


def test_topics_of_which_a_part_is_unknown_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_policy_reader, "_APART_S", 0.0)
    book = _live(**{f"persistent_acme_ns_{name}-partition-1_stats": 412 for name in "JK"})
    with pytest.raises(ClusterError) as caught:
        read_live(book, BrokerClient(Connection("http://127.0.0.1:1")), ReadScope((HERE,), declared=frozenset({J, K})))
    told = [(finding.code, finding.detail.partition(":")[2][:20]) for finding in caught.value.diagnostics]
    assert sorted(told) == [("K580", "//acme/ns/J: nothing"), ("K580", "//acme/ns/K: nothing")]


def test_a_topic_that_concerns_nobody_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that its broker could not load refused every plan of its namespace, for ever and after a minute each."""
    monkeypatch.setattr(topic_policy_reader, "_APART_S", 0.0)
    client = BrokerClient(Connection("http://127.0.0.1:1"))
    whole = {"persistent_acme_ns_J_partitioned-stats": _stats(_part(), _part())}
    book = _live(**whole, **{"persistent_acme_ns_K-partition-1_stats": 500})
    live = read_live(book, client, ReadScope((HERE,), names=frozenset({"trade"}), declared=frozenset({J})))
    assert live.unread == {
        K: "nothing is known of partition 1: not in the broker's answer, because it moves or cannot be loaded"
    }
    assert live.objects[f"topic.{K}"] == LiveObject(TopicResource(K, 0, {}))
    assert not any("K-partition-1" in path for path in book.asked), "and nobody waits for it"
    assert not any("v3" in path for path in book.asked), "no file has functions"
    live = read_live(book, client, ReadScope((HERE,), everything=True))
    assert "K-partition-1/stats answered 500" in live.unread[K]
    adopted = import_namespace(live, HERE, "trade")
    assert [(address, why.partition(":")[0]) for address, why in adopted.left_out] == [
        ("namespace.acme/ns packages", "they cannot be read"),
        ("namespace.acme/ns topic policies", "those that the format does not have are not known"),
        (f"schema.{J}", "it cannot be read"),
        (f"topic.{K}", "it cannot be read"),
    ]
    assert adopted.adopted == 1


@pytest.mark.parametrize(
    ("tenant", "writers"),
    [({"adminRoles": ["anna"]}, {"anna", "ben"}), ({}, {"ben"}), (403, None)],
)
def test_who_may_write_the_records_of_a_tenant_is_read_with_it(tenant: Any, writers: set[str] | None) -> None:
    whole = {f"persistent_acme_ns_{name}_partitioned-stats": _stats(_part(), _part()) for name in "JK"}
    control = {"auth_policies": {"namespace_auth": {"ben": ["produce"]}}}
    book = _live(**whole, tenants_acme=tenant, namespaces_acme_kodoctl=control)
    live = read_live(book, BrokerClient(Connection("http://127.0.0.1:1")), ReadScope((HERE,)))
    assert live.record_writers == {"acme": writers}


OURS: list[dict[str, Any]] = [
    {"persistent_acme_ns_K_partitioned-stats": _stats(_part(), None, properties={"kodoctl": "trade"})},
    {"namespaces_acme_ns": _namespace_with_ledger("subscription.persistent://acme/ns/K/s")},
    {"namespaces_acme_ns": _namespace_with_ledger("topic.persistent://acme/ns/K")},
]
"""What makes K ours."""


@pytest.mark.parametrize("ours", OURS)
def test_what_the_marker_or_the_ledger_gives_us_must_be_known(
    ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_policy_reader, "_APART_S", 0.0)
    whole = {"persistent_acme_ns_J_partitioned-stats": _stats(_part(), _part())}
    book = _live(**{**whole, "persistent_acme_ns_K-partition-1_stats": 500, **ours})
    with pytest.raises(ClusterError, match=r"K: nothing is known of partition 1: .*answered 500"):
        read_live(book, BrokerClient(Connection("http://127.0.0.1:1")), ReadScope((HERE,), names=frozenset({"trade"})))


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize(
    "refusal",
    [
        {"persistent_acme_ns_K-partition-1_stats": 500},
        {"persistent_acme_ns_K_partitioned-stats": 500},
        {"persistent_acme_ns_K_partitioned-stats": "nothing"},
    ],
)
@pytest.mark.parametrize("flags", [TargetFlags(excludes=("*/K*",)), TargetFlags(targets=("*/J*",))])
def test_a_topic_of_ours_that_the_flags_leave_out_need_not_be_known(
    ours: dict[str, Any], refusal: dict[str, Any], flags: TargetFlags, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be planned in its namespace, not even without the topic, until its broker could load it."""
    monkeypatch.setattr(topic_policy_reader, "_APART_S", 0.0)
    whole = {"persistent_acme_ns_J_partitioned-stats": _stats(_part(), _part())}
    book = _live(**{**whole, **ours, **refusal})
    scope = ReadScope(
        (HERE,), frozenset({"trade"}), frozenset({J, K}), frozenset({SchemaResource(K, "AVRO", "{}")}), selection=flags
    )
    live = read_live(book, BrokerClient(Connection("http://127.0.0.1:1")), scope)
    assert list(live.unread) == [K]
    assert live.objects[f"topic.{K}"] == LiveObject(TopicResource(K, 0, {}))
    assert f"topic.{J}" in live.objects
    assert not [path for path in book.asked if "K" in path and "stats" not in path], "no policy, and no schema"


def _version(number: int, definition: str, kind: str = "AVRO") -> dict[str, Any]:
    return {"version": number, "type": kind, "data": definition}


@pytest.mark.parametrize(
    ("latest", "versions", "read", "requests"),
    [
        (_version(0, "{}"), [], "{}", 1),
        (_version(2, '{"a": 1}'), [], '{"a":1}', 1),
        (_version(2, "{}"), [_version(0, '{"a":1}'), _version(2, "{}")], '{"a":1}', 2),
        (_version(2, "{}"), [_version(0, '{"b":1}'), _version(2, "{}")], "{}", 2),
        (_version(1, "x", "JSON"), [_version(0, '{"a":1}', "JSON"), _version(1, "x", "JSON")], "JSON: x", 2),
    ],
)
def test_a_declared_schema_counts_in_whatever_version_and_another_one_as_the_latest(
    latest: dict[str, Any], versions: list[dict[str, Any]], read: str, requests: int
) -> None:
    book = Book(schemas_acme_ns_J_schema=latest, schemas_acme_ns_J_schemas={"getSchemaResponses": versions})
    found = read_schema(book, J, SchemaResource(J, "AVRO", '{"a":1}'))
    assert found == SchemaResource(J, "AVRO", read)
    assert len(book.asked) == requests


@pytest.mark.parametrize("status", [412, 500, 503])
def test_a_tenant_that_cannot_be_read_is_not_one_without_roles(status: int) -> None:
    with pytest.raises(AdminError, match=f"answered {status}"):
        read_live(_live(tenants_acme=status), BrokerClient(Connection("http://127.0.0.1:1")), ReadScope((HERE,)))
