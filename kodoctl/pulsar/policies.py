"""How each policy travels: paths, verbs and JSON shapes of Pulsar's admin API, and the names of bulk reads.

Facts: facts/pulsar-measured.md §1 (4.2.4 and 4.0.7). Every body is complete, because Pulsar fills what is left out with 0;
`decode` answers None for unset and Foreign for what the file format cannot say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kodoctl.topology.policies import (
    AutoTopicCreation,
    BacklogQuota,
    DispatchRate,
    Foreign,
    InactiveTopic,
    Persistence,
    Policies,
    PolicyValue,
    PublishRate,
    Retention,
    SubscribeRate,
)
from kodoctl.topology.units import UNLIMITED, Duration, Rate, Size, SizeRate, Unlimited

Json = Any


@dataclass(frozen=True, slots=True)
class Write:
    """One request that sets or unsets a policy, relative to the topic's or namespace's path."""

    method: str
    path: str
    body: Json = None
    query: tuple[tuple[str, str], ...] = ()
    has_body: bool = True


@dataclass(frozen=True, slots=True)
class Codec:
    """One policy on Pulsar. `topic` and `namespace` are the last path segments, "" where the level does not exist;
    `key` is the member of the namespace dump, `bulk` that of a topic's policies in `__change_events` in REST names.
    """

    name: str
    topic: str
    namespace: str
    key: str
    encode: Callable[[Any], Json]
    decode: Callable[[Json], PolicyValue | None]
    bulk: str = ""
    topic_method: str = "POST"
    namespace_method: str = "POST"
    in_query: bool = False  # the topic's value is a query parameter: a JSON body is accepted and ignored
    unset_body: Json = None  # namespaces: what is written to unset where no DELETE exists
    by_cluster: bool = False  # namespaces: the dump keys the value by cluster name

    @property
    def bulk_name(self) -> str:
        """The member of a topic's bulk-read policies."""
        return self.bulk or self.topic


def _milli(value: Duration | Unlimited, unit: int, unlimited: int) -> int:
    return unlimited if value == UNLIMITED else int(value) // unit


def _count(value: int | Unlimited) -> int:
    return 0 if value == UNLIMITED else int(value)


def _read_count(raw: Json) -> PolicyValue | None:
    if raw is None:
        return None
    return UNLIMITED if raw <= 0 else int(raw)


def _read_duration(unit: int) -> Callable[[Json], PolicyValue | None]:
    return lambda raw: None if raw is None else UNLIMITED if raw <= 0 else Duration(raw * unit)


def _read_size(raw: Json) -> PolicyValue | None:
    return None if raw is None else UNLIMITED if raw <= 0 else Size(raw)


def _same(raw: Json) -> PolicyValue | None:
    return raw


def _retention(value: Retention) -> Json:
    assert value.time is not None
    assert value.size is not None
    return {
        "retentionTimeInMinutes": _milli(value.time, 60_000, -1),
        "retentionSizeInMB": -1 if value.size == UNLIMITED else int(value.size) >> 20,
    }


def _read_retention(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    time, size = raw["retentionTimeInMinutes"], raw["retentionSizeInMB"]
    return Retention(
        time=UNLIMITED if time < 0 else Duration(time * 60_000),
        size=UNLIMITED if size < 0 else Size(size << 20),
    )


QUOTA_BY_SIZE: Final = "destination_storage"
QUOTA_BY_TIME: Final = "message_age"
_WHEN_FULL: Final = {
    "hold_producers": "producer_request_hold",
    "fail_producers": "producer_exception",
    "evict": "consumer_backlog_eviction",
}
_WHEN_FULL_BACK: Final = {wire: word for word, wire in _WHEN_FULL.items()}


def _quota(value: BacklogQuota) -> Json:
    """{type: body} for the types that are set; both limits in each, because one left out becomes 0."""
    found = {}
    if value.size is not None:
        limit = -1 if value.size == UNLIMITED else int(value.size)
        found[QUOTA_BY_SIZE] = {"limitSize": limit, "limitTime": -1, "policy": _WHEN_FULL[value.when_full]}
    if value.time is not None:
        limit = _milli(value.time, 1000, -1)
        found[QUOTA_BY_TIME] = {"limitSize": -1, "limitTime": limit, "policy": _WHEN_FULL[value.when_full]}
    return found


def _read_quota(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    size, time = raw.get(QUOTA_BY_SIZE), raw.get(QUOTA_BY_TIME)
    actions = {entry["policy"] for entry in (size, time) if entry}
    if len(actions) != 1 or not actions <= _WHEN_FULL_BACK.keys():
        return _foreign(raw)
    members: dict[str, Any] = {}
    if size:
        limit = size.get("limitSize", size.get("limit"))
        members["size"] = UNLIMITED if limit < 0 else Size(limit)
    if time:
        members["time"] = UNLIMITED if time["limitTime"] < 0 else Duration(time["limitTime"] * 1000)
    return BacklogQuota(when_full=_WHEN_FULL_BACK[actions.pop()], **members)  # type: ignore[arg-type]  # the table's values


def _dispatch(value: DispatchRate) -> Json:
    return {
        "dispatchThrottlingRateInMsg": -1 if value.messages == UNLIMITED else value.messages,
        "dispatchThrottlingRateInByte": -1 if value.size == UNLIMITED else int(value.size),
        "ratePeriodInSecond": int(value.period) // 1000,
        "relativeToPublishRate": False,
    }


def _read_dispatch(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    messages, size = raw["dispatchThrottlingRateInMsg"], raw["dispatchThrottlingRateInByte"]
    if raw.get("relativeToPublishRate") or raw["ratePeriodInSecond"] <= 0:
        return _foreign(raw)
    return DispatchRate(
        messages=UNLIMITED if messages <= 0 else messages,
        size=UNLIMITED if size <= 0 else Size(size),
        period=Duration(raw["ratePeriodInSecond"] * 1000),
    )


def _publish(value: PublishRate) -> Json:
    return {
        "publishThrottlingRateInMsg": value.messages.amount if isinstance(value.messages, Rate) else -1,
        "publishThrottlingRateInByte": int(value.size.amount) if isinstance(value.size, SizeRate) else -1,
    }


def _read_publish(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    messages, size = raw["publishThrottlingRateInMsg"], raw["publishThrottlingRateInByte"]
    return PublishRate(
        messages=UNLIMITED if messages <= 0 else Rate(messages, Duration(1000)),
        size=UNLIMITED if size <= 0 else SizeRate(Size(size)),
    )


def _subscribe(value: SubscribeRate) -> Json:
    amount = -1 if value.subscribes == UNLIMITED else value.subscribes
    return {"subscribeThrottlingRatePerConsumer": amount, "ratePeriodInSecond": int(value.period) // 1000}


def _read_subscribe(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    amount, period = raw["subscribeThrottlingRatePerConsumer"], raw["ratePeriodInSecond"]
    if period <= 0:
        return _foreign(raw)
    return SubscribeRate(subscribes=UNLIMITED if amount <= 0 else amount, period=Duration(period * 1000))


def _persistence(value: Persistence) -> Json:
    return {
        "bookkeeperEnsemble": value.ensemble,
        "bookkeeperWriteQuorum": value.write_quorum,
        "bookkeeperAckQuorum": value.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": value.mark_delete_rate,
    }


def _read_persistence(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    if min(raw["bookkeeperEnsemble"], raw["bookkeeperWriteQuorum"], raw["bookkeeperAckQuorum"]) < 1:
        return _foreign(raw)
    return Persistence(
        ensemble=raw["bookkeeperEnsemble"],
        write_quorum=raw["bookkeeperWriteQuorum"],
        ack_quorum=raw["bookkeeperAckQuorum"],
        mark_delete_rate=raw["managedLedgerMaxMarkDeleteRate"],
    )


_INACTIVE: Final = {
    "no_subscriptions": "delete_when_no_subscriptions",
    "caught_up": "delete_when_subscriptions_caught_up",
}
_INACTIVE_BACK: Final = {wire: word for word, wire in _INACTIVE.items()}


def _inactive(value: InactiveTopic) -> Json:
    return {
        "inactiveTopicDeleteMode": _INACTIVE.get(value.delete or "never", "delete_when_no_subscriptions"),
        "maxInactiveDurationSeconds": int(value.after or 60_000) // 1000,
        "deleteWhileInactive": value.delete != "never",
    }


def _read_inactive(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    if not raw["deleteWhileInactive"]:
        return InactiveTopic(delete="never")
    mode = _INACTIVE_BACK.get(raw["inactiveTopicDeleteMode"])
    if mode is None:
        return _foreign(raw)
    return InactiveTopic(delete=mode, after=Duration(raw["maxInactiveDurationSeconds"] * 1000))  # type: ignore[arg-type]


def _auto_topic(value: bool | AutoTopicCreation) -> Json:  # noqa: FBT001  # a policy value
    if isinstance(value, bool):
        return (
            {"allowAutoTopicCreation": value, "topicType": "non-partitioned"}
            if value
            else {"allowAutoTopicCreation": False}
        )
    body: dict[str, Json] = {"allowAutoTopicCreation": True, "topicType": value.type}
    return {**body, "defaultNumPartitions": value.partitions or 1} if value.type == "partitioned" else body


def _read_auto_topic(raw: Json) -> PolicyValue | None:
    if not raw:
        return None
    if not raw["allowAutoTopicCreation"]:
        return False
    if raw.get("topicType") != "partitioned":
        return True
    return AutoTopicCreation(type="partitioned", partitions=raw.get("defaultNumPartitions") or 1)


def _auto_subscription(value: bool) -> Json:  # noqa: FBT001  # a policy value
    return {"allowAutoSubscriptionCreation": value}


def _read_auto_subscription(raw: Json) -> PolicyValue | None:
    return bool(raw["allowAutoSubscriptionCreation"]) if raw else None


def _read_compatibility(raw: Json) -> PolicyValue | None:
    return None if raw in (None, "", "UNDEFINED") else raw if raw in _COMPATIBILITIES else _foreign(raw)


_COMPATIBILITIES: Final = frozenset({
    "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
})  # fmt: skip


def _foreign(raw: Json) -> Foreign:
    return Foreign(json.dumps(raw, sort_keys=True))


def _seconds(value: Duration | Unlimited) -> int:
    return _milli(value, 1000, 0)


def _minutes(value: Duration | Unlimited) -> int:
    return _milli(value, 60_000, 0)


def _limit(name: str, topic: str, namespace: str, key: str, bulk: str = "") -> Codec:
    return Codec(name, topic, namespace, key, _count, _read_count, bulk)


CODECS: Final = (
    Codec("retention", "retention", "retention", "retention_policies", _retention, _read_retention),
    Codec("backlog_quota", "backlogQuota", "backlogQuota", "backlog_quota_map", _quota, _read_quota, "backlogQuotaMap"),
    Codec("ttl", "messageTTL", "messageTTL", "message_ttl_in_seconds", _seconds, _read_duration(1000), in_query=True),
    Codec(
        "subscription_expiry", "subscriptionExpirationTime", "subscriptionExpirationTime",
        "subscription_expiration_time_minutes", _minutes, _read_duration(60_000), in_query=True,
    ),
    Codec("persistence", "persistence", "persistence", "persistence", _persistence, _read_persistence),
    Codec("deduplication", "deduplicationEnabled", "deduplication", "deduplicationEnabled", _same, _same),
    Codec(
        "deduplication_snapshot", "deduplicationSnapshotInterval", "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds", _seconds, _read_duration(1000),
    ),
    Codec("inactive_topic", "inactiveTopicPolicies", "inactiveTopicPolicies", "inactive_topic_policies", _inactive, _read_inactive),
    Codec(
        "auto_subscription_creation", "autoSubscriptionCreation", "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride", _auto_subscription, _read_auto_subscription,
    ),
    Codec("publish_rate", "publishRate", "publishRate", "publishMaxMessageRate", _publish, _read_publish, by_cluster=True),
    Codec("dispatch_rate", "dispatchRate", "dispatchRate", "topicDispatchRate", _dispatch, _read_dispatch, by_cluster=True),
    Codec(
        "subscription_dispatch_rate", "subscriptionDispatchRate", "subscriptionDispatchRate",
        "subscriptionDispatchRate", _dispatch, _read_dispatch, by_cluster=True,
    ),
    Codec("subscribe_rate", "subscribeRate", "subscribeRate", "clusterSubscribeRate", _subscribe, _read_subscribe, by_cluster=True),
    _limit("max_producers", "maxProducers", "maxProducersPerTopic", "max_producers_per_topic"),
    _limit("max_consumers", "maxConsumers", "maxConsumersPerTopic", "max_consumers_per_topic"),
    _limit(
        "max_consumers_per_subscription", "maxConsumersPerSubscription", "maxConsumersPerSubscription", "max_consumers_per_subscription"
    ),
    _limit("max_subscriptions", "maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    _limit(
        "max_unacked_per_consumer", "maxUnackedMessagesOnConsumer", "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
    ),
    _limit(
        "max_unacked_per_subscription", "maxUnackedMessagesOnSubscription", "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
    ),
    Codec("max_message_size", "maxMessageSize", "", "", int, lambda raw: Size(raw) if raw and raw > 0 else None),
    Codec(
        "compaction_threshold", "compactionThreshold", "compactionThreshold", "compaction_threshold",
        _count, _read_size, namespace_method="PUT",
    ),
    Codec(
        "schema_compatibility", "schemaCompatibilityStrategy", "schemaCompatibilityStrategy", "schema_compatibility_strategy",
        _same, _read_compatibility, topic_method="PUT", namespace_method="PUT", unset_body="UNDEFINED",
    ),
    Codec(
        "schema_validation", "schemaValidationEnforced", "schemaValidationEnforced", "schema_validation_enforced",
        _same, _same, unset_body=False,
    ),
    Codec("replication", "replication", "replication", "replication_clusters", list, lambda raw: tuple(sorted(raw)) if raw else None),
    Codec(
        "auto_topic_creation", "", "autoTopicCreation", "autoTopicCreationOverride", _auto_topic, _read_auto_topic
    ),
    _limit("max_topics", "", "maxTopicsPerNamespace", "max_topics_per_namespace"),
    Codec("encryption_required", "", "encryptionRequired", "encryption_required", _same, _same, unset_body=False),
    Codec(
        "allow_auto_update_schema", "", "isAllowAutoUpdateSchema", "is_allow_auto_update_schema", _same, _same, unset_body=True
    ),
)  # fmt: skip
BY_NAME: Final = {codec.name: codec for codec in CODECS}
TOPIC_CODECS: Final = tuple(codec for codec in CODECS if codec.topic)
NAMESPACE_CODECS: Final = tuple(codec for codec in CODECS if codec.namespace)
DELAYED_DELIVERY: Final = "delayedDelivery"  # never written on a topic: it stalls delivery until the topic is unloaded
NO_DELETE_ON_TOPIC: Final = frozenset({"schema_validation"})  # DELETE answers 405; null is stored as false
_POST_NULL: Final = frozenset({"deduplication_snapshot"})  # namespaces: DELETE does not exist, a null body unsets


def topic_writes(name: str, value: PolicyValue | None, before: PolicyValue | None = None) -> Iterator[Write]:
    """The requests that set a topic's policy, or (None) unset it; `before` tells which parts of a quota are there."""
    codec = BY_NAME[name]
    if name == "backlog_quota":
        yield from _quota_writes(codec.topic, value, before)
    elif value is None:
        if name in NO_DELETE_ON_TOPIC:
            yield Write("POST", codec.topic, body=False)
        else:
            yield Write("DELETE", codec.topic, has_body=False)
    elif codec.in_query:
        yield Write(codec.topic_method, codec.topic, query=((codec.topic, str(codec.encode(value))),), has_body=False)
    else:
        yield Write(codec.topic_method, codec.topic, codec.encode(value))


def namespace_writes(name: str, value: PolicyValue | None, before: PolicyValue | None = None) -> Iterator[Write]:
    """The requests that set a namespace's policy, or (None) unset it."""
    codec = BY_NAME[name]
    if name == "backlog_quota":
        yield from _quota_writes(codec.namespace, value, before)
    elif value is not None:
        yield Write(codec.namespace_method, codec.namespace, codec.encode(value))
    elif codec.unset_body is not None:
        yield Write(codec.namespace_method, codec.namespace, codec.unset_body)
    elif name in _POST_NULL:
        yield Write("POST", codec.namespace, None)
    else:
        yield Write("DELETE", codec.namespace, has_body=False)


def _quota_writes(path: str, value: PolicyValue | None, before: PolicyValue | None) -> Iterator[Write]:
    wanted = _quota(value) if isinstance(value, BacklogQuota) else {}
    there = (
        set(_quota(before)) if isinstance(before, BacklogQuota) else {QUOTA_BY_SIZE, QUOTA_BY_TIME} if before else set()
    )
    for kind in sorted(there - wanted.keys()):
        yield Write("DELETE", path, query=(("backlogQuotaType", kind),), has_body=False)
    for kind, body in wanted.items():
        yield Write("POST", path, body, (("backlogQuotaType", kind),))


def read_topic_policies(raw: dict[str, Json]) -> Policies:
    """Explicitly set policies of a topic, from their REST names and shapes."""
    found: dict[str, PolicyValue] = {}
    for codec in TOPIC_CODECS:
        if codec.bulk_name in raw and (value := codec.decode(raw[codec.bulk_name])) is not None:
            found[codec.name] = value
    return found


def read_namespace_policies(dump: dict[str, Json], cluster: str) -> Policies:
    """Set policies of a namespace, from its dump; a rate is taken for `cluster`."""
    found: dict[str, PolicyValue] = {}
    for codec in NAMESPACE_CODECS:
        raw = dump.get(codec.key)
        if codec.by_cluster and raw:
            raw = raw.get(cluster)
        if raw is not None and raw != -1 and (value := codec.decode(raw)) is not None:
            found[codec.name] = value
    return found


def new_namespace(policies: Policies, cluster: str) -> dict[str, Json]:
    """The body that creates a namespace complete in one PUT: the members of the dump (pulsar-measured §7)."""
    body: dict[str, Json] = {}
    for name, value in policies.items():
        codec = BY_NAME[name]
        encoded = codec.encode(value)
        body[codec.key] = {cluster: encoded} if codec.by_cluster else encoded
    return body
