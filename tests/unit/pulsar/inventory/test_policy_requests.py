"""How policies travel: every value of every policy comes back equal, at both levels, and the requests are the right ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.plan.field_diff import normalize
from kodoctl.pulsar.inventory.policy_requests import (
    BY_NAME,
    CODECS,
    NAMESPACE_CODECS,
    TOPIC_CODECS,
    is_on_the_way,
    namespace_writes,
    new_namespace,
    read_namespace_policies,
    read_topic_policies,
    topic_writes,
)
from kodoctl.topology.model.policies import (
    AT_CREATION,
    NAMESPACE_POLICY_NAMES,
    TOPIC_POLICY_NAMES,
    BacklogQuota,
    Foreign,
    from_json,
)
from tests.samples.inventories import policy_values


def test_every_policy_of_the_format_has_a_codec_and_no_other_has() -> None:
    assert {codec.name for codec in TOPIC_CODECS} == set(TOPIC_POLICY_NAMES)
    assert {codec.name for codec in NAMESPACE_CODECS} == set(NAMESPACE_POLICY_NAMES)
    assert len(BY_NAME) == len(CODECS)


def _values(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), policy_values(name)))


@given(_values(TOPIC_POLICY_NAMES))
def test_a_topics_policy_reads_back_as_it_was_written(policy: tuple[str, Any]) -> None:
    name, value = policy
    codec = BY_NAME[name]
    found = read_topic_policies({codec.bulk_name: codec.shape.encode(value)})
    assert {key: normalize(one) for key, one in found.items()} == {name: normalize(value)}


IN_JSON = tuple(
    name for name in NAMESPACE_POLICY_NAMES if not BY_NAME[name].follows_creation and name not in AT_CREATION
)


@given(_values(IN_JSON))
def test_a_namespaces_policy_reads_back_from_the_dump_that_its_creation_would_make(policy: tuple[str, Any]) -> None:
    name, value = policy
    found = read_namespace_policies(new_namespace({name: value}, "here"), "here")
    assert {key: normalize(one) for key, one in found.items()} == {name: normalize(value)}


@given(_values(IN_JSON))
def test_a_rate_of_another_cluster_is_not_taken_for_ours(policy: tuple[str, Any]) -> None:
    name, value = policy
    found = read_namespace_policies(new_namespace({name: value}, "there"), "here")
    assert bool(found) is not BY_NAME[name].by_cluster


@pytest.mark.parametrize("name", TOPIC_POLICY_NAMES)
def test_what_is_not_set_reads_as_nothing(name: str) -> None:
    assert read_topic_policies({}) == {}
    assert BY_NAME[name].shape.decode(None) is None


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("dispatch_rate", {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": 1, "ratePeriodInSecond": 0, "relativeToPublishRate": False}),
        ("subscribe_rate", {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 0}),
        ("persistence", {"bookkeeperEnsemble": 0, "bookkeeperWriteQuorum": 0, "bookkeeperAckQuorum": 0, "managedLedgerMaxMarkDeleteRate": 0.0}),
        ("backlog_quota", {"destination_storage": {"limitSize": 1, "policy": "something_new"}}),
        ("inactive_topic", {"deleteWhileInactive": True, "inactiveTopicDeleteMode": "something_new", "maxInactiveDurationSeconds": 1}),
        ("schema_compatibility", "SOMETHING_NEW"),
        ("subscription_types", ["Shared", "New"]),
        ("subscription_rates", {"s": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": 1, "ratePeriodInSecond": 0}}}),
        ("subscription_auth", "New"),
        ("properties", {"team": "a\x1fb"}),
        ("metric_properties", ["a\nb"]),
        ("subscription_roles", {"s\t": ["a"]}),
        ("bookie_affinity", {"bookkeeperAffinityGroupSecondary": "hdd"}),
        ("inactive_topic", {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 0, "deleteWhileInactive": True}),
        ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 1 << 31}),
        ("offload", {"managedLedgerOffloadThresholdInBytes": 5}),
        ("offload", {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadedReadPriority": "NEW"}),
        ("offload", {"managedLedgerOffloadDriver": "S3", "managedLedgerExtraConfigurations": {"a": "b"}}),
        ("offload", {"managedLedgerOffloadDriver": "S3", "s3ManagedLedgerOffloadCredentialSecret": "hush"}),
        ("offload", {"managedLedgerOffloadDriver": "S3", "aSettingOfALaterPulsar": 5}),
    ],
)  # fmt: skip
def test_a_live_value_that_the_format_cannot_say_is_kept_as_it_is(name: str, raw: Any) -> None:
    found = BY_NAME[name].shape.decode(raw)
    assert isinstance(found, Foreign)
    assert "hush" not in found.json


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}, {"time": "unlimited", "size": "unlimited"}),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, {"time": "0s", "size": "0B"}),
        ("ttl", 0, "unlimited"),
        ("max_producers", 0, "unlimited"),
        ("publish_rate", {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": -1}, {}),
        ("backlog_quota", {"destination_storage": {"limit": 5, "limitTime": -1, "policy": "producer_request_hold"}}, {"size": "5B"}),
        ("inactive_topic", {"deleteWhileInactive": False, "inactiveTopicDeleteMode": "x", "maxInactiveDurationSeconds": 7}, {"delete": "never"}),
        ("schema_compatibility", "UNDEFINED", None),
        ("max_message_size", 0, None),
        ("pause_on_ack_state_loss", False, None),
        ("subscription_types", [], None),
        ("entry_filters", {"entryFilterNames": ""}, None),
        ("entry_filters", {"entryFilterNames": "a, b"}, ["a", "b"]),
        ("delayed_delivery", {"active": True, "tickTime": 0, "maxDeliveryDelayInMillis": 0}, {"tick": "0ms"}),
        ("properties", {"kodoctl.topology/trade": "1:x"}, None),
        ("subscription_roles", {"s": []}, None),
        ("subscription_rates", {"s": {}}, None),
        ("offload", {"offloadersDirectory": "./offloaders", "managedLedgerOffloadMaxThreads": 2, "s3Driver": False}, None),
        ("bundles", {"numBundles": 7}, None),
        ("replication", ["b", "a"], ["a", "b"]),
        ("auto_topic_creation", {"allowAutoTopicCreation": False, "topicType": "partitioned"}, False),
        ("auto_topic_creation", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}, True),
        ("auto_topic_creation", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, {"type": "partitioned", "partitions": 1}),
    ],
)  # fmt: skip
def test_pulsars_ways_to_say_a_thing_are_understood(name: str, raw: Any, value: Any) -> None:
    expected = None if value is None else from_json(name, value)
    assert BY_NAME[name].shape.decode(raw) == expected


# --- requests


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention", {"time": "1h", "size": "5MiB"}, [("POST", "retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 5}, ())]),
        ("ttl", "1m", [("POST", "messageTTL", None, (("messageTTL", "60"),))]),  # a JSON body is accepted and ignored
        ("subscription_expiry", "15m", [("POST", "subscriptionExpirationTime", None, (("subscriptionExpirationTime", "15"),))]),
        ("schema_compatibility", "FULL", [("PUT", "schemaCompatibilityStrategy", "FULL", ())]),
        ("ttl", None, [("DELETE", "messageTTL", None, ())]),
        ("schema_validation", None, [("POST", "schemaValidationEnforced", False, ())]),  # DELETE answers 405
    ],
)  # fmt: skip
def test_a_topics_policy_is_set_and_unset_by_these_requests(name: str, value: Any, expected: list[Any]) -> None:
    parsed = None if value is None else from_json(name, value)
    assert [(w.method, w.path, w.body, w.query) for w in topic_writes(name, parsed)] == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("compaction_threshold", "1MiB", [("PUT", "compactionThreshold", 1 << 20, True)]),
        ("ttl", "1m", [("POST", "messageTTL", 60, True)]),
        ("ttl", None, [("DELETE", "messageTTL", None, False)]),
        ("encryption_required", None, [("POST", "encryptionRequired", False, True)]),
        ("allow_auto_update_schema", None, [("POST", "isAllowAutoUpdateSchema", True, True)]),
        ("schema_compatibility", None, [("PUT", "schemaCompatibilityStrategy", "UNDEFINED", True)]),
        ("deduplication_snapshot", None, [("POST", "deduplicationSnapshotInterval", None, True)]),
        ("pause_on_ack_state_loss", True, [("POST", "dispatcherPauseOnAckStatePersistent", True, False)]),
        ("resource_group", "a/b", [("POST", "resourcegroup/a%2Fb", None, False)]),
        ("offload", None, [("DELETE", "removeOffloadPolicies", None, False)]),
    ],
)
def test_a_namespaces_policy_is_set_and_unset_by_these_requests(name: str, value: Any, expected: list[Any]) -> None:
    parsed = None if value is None else from_json(name, value)
    assert [(w.method, w.path, w.body, w.has_body) for w in namespace_writes(name, parsed)] == expected


def _quota(**members: str) -> BacklogQuota:
    found: BacklogQuota = from_json("backlog_quota", members)
    return found


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, _quota(size="5B"), [("POST", "destination_storage")]),
        (_quota(size="5B"), _quota(time="1m"), [("DELETE", "destination_storage"), ("POST", "message_age")]),
        (_quota(size="5B", time="1m"), _quota(size="6B"), [("DELETE", "message_age"), ("POST", "destination_storage")]),
        (_quota(size="5B", time="1m"), None, [("DELETE", "destination_storage"), ("DELETE", "message_age")]),
        (Foreign("{}"), None, [("DELETE", "destination_storage"), ("DELETE", "message_age")]),
        (None, None, []),
    ],
)
@pytest.mark.parametrize("writes", [topic_writes, namespace_writes])
def test_a_quota_is_one_request_for_each_type_and_a_type_that_goes_is_deleted(
    writes: Any, before: Any, after: Any, expected: list[Any]
) -> None:
    found = list(writes("backlog_quota", after, before))
    assert [(w.method, dict(w.query)["backlogQuotaType"]) for w in found] == expected
    assert all(set(w.body) == {"limitSize", "limitTime", "policy"} for w in found if w.method == "POST")


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("properties", {"a": "1", "b/c": "2"}, {"a": "3"}, [("DELETE", "property/b%2Fc", None), ("PUT", "properties", {"a": "3"})]),
        ("properties", {"a": "1"}, None, [("DELETE", "property/a", None)]),
        ("properties", {"foreign": '{"a": "\\n"}'}, {"b": "1"}, [("DELETE", "property/a", None), ("PUT", "properties", {"b": "1"})]),
        (
            "subscription_roles", {"s": ["a", "b"], "t": ["a"], "u": ["x"]}, {"s": ["a"], "t": ["a"]},
            [("DELETE", "permissions/u/x", None), ("POST", "permissions/subscription/s", ["a"])],
        ),
    ],
)  # fmt: skip
def test_entries_of_a_map_that_go_are_deleted_one_by_one(
    name: str, before: Any, after: Any, expected: list[Any]
) -> None:
    old, new = (None if value is None else from_json(name, value) for value in (before, after))
    assert [(w.method, w.path, w.body) for w in namespace_writes(name, new, old)] == expected


def test_a_map_of_which_only_some_entries_are_left_is_on_its_way() -> None:
    before = {"a": "1", "b": "2"}
    assert is_on_the_way(None, before)
    assert is_on_the_way({"b": "2"}, before)
    assert not is_on_the_way({"a": "1", "c": "3"}, before)
    assert not is_on_the_way({"a": "cab"}, {"a": "abc", "b": "1"}), "a text is no list of its letters"
    assert is_on_the_way({"r": ("a",)}, {"r": ("b", "a")})
    assert not is_on_the_way(Foreign("{}"), before)
