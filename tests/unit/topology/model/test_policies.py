"""Policies: maps merge member by member, every value goes to JSON and back, and what Pulsar would refuse is known."""

from typing import Any

import pytest
from pydantic import ValidationError

from kodoctl.topology.model.policies import (
    NAMESPACE_POLICY_NAMES,
    TOPIC_POLICY_NAMES,
    BacklogQuota,
    BookieAffinity,
    DispatchRate,
    Foreign,
    InactiveTopic,
    NamespacePolicies,
    Offload,
    Persistence,
    Retention,
    TopicPolicies,
    from_json,
    is_set,
    merge,
    to_json,
    what_is_missing,
)
from kodoctl.topology.units import Duration, Size

DAY = Duration(86_400_000)
GIB = Size(1 << 30)


@pytest.mark.parametrize(
    ("below", "above", "together"),
    [
        (None, 5, 5),
        (5, None, 5),
        (5, 7, 7),
        (True, False, False),
        (("east",), ("west",), ("west",)),
        (Retention(time=DAY, size=GIB), Retention(time=Duration(0)), Retention(time=Duration(0), size=GIB)),
        (Retention(time=DAY), "inherit", "inherit"),
        ("inherit", Retention(time=DAY), Retention(time=DAY)),
        (InactiveTopic(delete="caught_up", after=DAY), InactiveTopic(delete="never"), InactiveTopic(delete="never")),
        (InactiveTopic(delete="caught_up", after=DAY), InactiveTopic(after=Duration(1000)), InactiveTopic(delete="caught_up", after=Duration(1000))),
    ],
)  # fmt: skip
def test_maps_merge_member_by_member_and_everything_else_replaces(below: Any, above: Any, together: Any) -> None:
    assert merge(below, above) == together


def test_a_member_with_a_default_does_not_hide_what_lies_below() -> None:
    below, above = BacklogQuota(size=GIB, when_full="fail_producers"), BacklogQuota(time=DAY)
    assert merge(below, above) == BacklogQuota(size=GIB, time=DAY, when_full="fail_producers")


VALUES: dict[str, Any] = {
    "retention": {"time": "7d", "size": "unlimited"},
    "backlog_quota": {"size": "5GiB", "time": "1d", "when_full": "hold_producers", "when_old": "evict"},
    "ttl": "unlimited",
    "subscription_expiry": "90m",
    "persistence": {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2, "mark_delete_rate": 1.5},
    "deduplication": True,
    "deduplication_snapshot": "2m",
    "inactive_topic": {"delete": "caught_up", "after": "1h"},
    "auto_subscription_creation": False,
    "publish_rate": {"messages": "1000/s", "size": "10MiB/s"},
    "dispatch_rate": {"messages": 1000, "size": "unlimited", "period": "1s", "relative": True},
    "subscription_dispatch_rate": {"messages": "unlimited", "size": "1MiB", "period": "5s", "relative": False},
    "replicator_dispatch_rate": {"messages": 10, "size": "1MiB", "period": "5s", "relative": False},
    "subscribe_rate": {"subscribes": 10, "period": "30s"},
    "max_producers": 100,
    "max_consumers": "unlimited",
    "max_consumers_per_subscription": 5,
    "max_subscriptions": 20,
    "max_unacked_per_consumer": 50000,
    "max_unacked_per_subscription": 200000,
    "compaction_threshold": "100MiB",
    "schema_compatibility": "FULL",
    "schema_validation": False,
    "replication": ["east", "west"],
    "max_message_size": "1MiB",
    "auto_topic_creation": {"type": "partitioned", "partitions": 4},
    "max_topics": 1000,
    "encryption_required": True,
    "allow_auto_update_schema": False,
    "subscription_rates": {"s": {"messages": 10, "size": "unlimited", "period": "1s", "relative": False}},
    "shadow_topics": ["persistent://acme/copies/orders"],
    "offload": {
        "driver": "filesystem", "bucket": "b", "region": "r", "endpoint": "http://e", "after_size": "0B", "after": "7d",
        "delete_after": "unlimited", "read_first": "bookkeeper", "settings": {"fileSystemURI": "hdfs://n", "managedLedgerOffloadMaxThreads": 4},
    },
    "subscription_types": ["failover", "exclusive"],
    "entry_filters": ["a"],
    "pause_on_ack_state_loss": True,
    "delayed_delivery": {"enabled": True, "max_delay": "1500ms", "tick": "0s"},
    "allowed_clusters": ["east", "west"],
    "subscription_auth": "prefix",
    "resource_group": "batch",
    "anti_affinity_group": "apart",
    "bookie_affinity": {"primary": "ssd", "secondary": "hdd"},
    "metric_properties": ["team"],
    "subscription_roles": {"billing": ["a", "b"]},
    "properties": {"cost": "", "team": "payments"},
    "bundles": 16,
}  # fmt: skip


def test_every_policy_has_a_value_in_this_table() -> None:
    assert VALUES.keys() == {*TOPIC_POLICY_NAMES, *NAMESPACE_POLICY_NAMES}


@pytest.mark.parametrize("name", VALUES)
def test_a_policy_value_goes_to_json_and_back(name: str) -> None:
    value = from_json(name, VALUES[name])
    assert to_json(value) == VALUES[name]
    assert from_json(name, to_json(value)) == value


def test_a_live_value_that_the_format_cannot_say_goes_to_json_and_back_and_equals_nothing_declared() -> None:
    odd = Foreign('{"limitTime": 0}')
    assert from_json("backlog_quota", to_json(odd)) == odd
    assert str(odd) == '{"limitTime": 0}'
    assert odd != from_json("backlog_quota", {"size": "1B"})


FIELDS = {**TopicPolicies.model_fields, **NamespacePolicies.model_fields}


@pytest.mark.parametrize("name", FIELDS)
def test_the_examples_of_a_policy_are_values(name: str) -> None:
    for example in FIELDS[name].examples or ():
        from_json(name, example)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("properties", {"foreign": "x"}),
        ("subscription_roles", {"foreign": ["a"]}),
        ("subscription_rates", {"foreign": {"messages": 1, "size": "unlimited", "period": "1s", "relative": False}}),
    ],
)
def test_foreign_may_be_a_name_of_the_user(name: str, value: dict[str, Any]) -> None:
    read = from_json(name, value)
    assert not isinstance(read, Foreign)
    assert to_json(read) == value
    assert from_json(name, to_json(Foreign('{"a": "\\u0007"}'))) == Foreign('{"a": "\\u0007"}')


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ttl", "7 days", ""),
        ("offload", {"driver": "S3", "settings": {"managedLedgerOffloadBucket": "b"}}, "write it as `bucket` of `offload`"),
        ("offload", {"driver": "S3", "settings": {"s3ManagedLedgerOffloadCredentialSecret": "x"}}, "credentials belong to"),
        ("offload", {"driver": "S3", "settings": {"fileSystemUri": "x"}}, "did you mean fileSystemURI?"),
        ("offload", {"driver": "S3", "settings": {"qqq": "x"}}, "would pass over it: it knows fileSystemProfilePath, "),
        ("replication", "inherit", "Pulsar cannot unset it: name the clusters, or remove the line"),
        ("allowed_clusters", "inherit", "Pulsar cannot unset it"),
        ("properties", {"kodoctl.topology/trade": "x"}, "names that begin with kodoctl"),
        ("entry_filters", ["a, b"], "write one name in each line"),
        ("entry_filters", ["a\n"], "write one name in each line"),
        ("shadow_topics", ["orders"], "write the topic's full name"),
        ("shadow_topics", ["persistent://a/b/c\n"], "write the topic's full name"),
        ("pause_on_ack_state_loss", False, "True"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_a_policy_is_refused(name: str, value: Any, why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        from_json(name, value)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        (Retention(time=DAY), "size is missing"),
        (Retention(size=GIB), "time is missing"),
        (Retention(time=Duration(0), size=GIB), "both be 0"),
        (Retention(time=DAY, size=Size(0)), "both be 0"),
        (Retention(time=Duration(0), size=Size(0)), None),
        (Retention(time="unlimited", size="unlimited"), None),
        (BacklogQuota(), "size or time is missing"),
        (BacklogQuota(time=DAY), None),
        (BacklogQuota(size=GIB, when_old="evict"), "`when_old` means nothing"),
        (BacklogQuota(size=GIB, time=DAY, when_old="evict"), None),
        (Offload(bucket="b"), "driver is missing"),
        (BookieAffinity(secondary="b"), "primary is missing"),
        (Persistence(ensemble=3), "write_quorum, ack_quorum missing"),
        (Persistence(ensemble=3, write_quorum=3, ack_quorum=2), None),
        (InactiveTopic(after=DAY), "delete is missing"),
        (InactiveTopic(delete="caught_up"), "after is missing"),
        (InactiveTopic(delete="never", after=DAY), "after means nothing"),
        (InactiveTopic(delete="never"), None),
        ({"s": DispatchRate(relative=True)}, "s: Pulsar keeps no unlimited rate"),
        ({"s": DispatchRate(messages=5)}, None),
        ({"team": "billing"}, None),
        (5, None),
    ],
)
def test_what_a_merged_policy_lacks_is_said(value: Any, missing: str | None) -> None:
    said = what_is_missing(value)
    assert said is None if missing is None else said is not None and missing in said


def test_inherit_and_nothing_are_not_values_to_write() -> None:
    assert [is_set(value) for value in (None, "inherit", False, 0, "unlimited")] == [False, False, True, True, True]
