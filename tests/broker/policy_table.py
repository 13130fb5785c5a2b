"""Every policy of docs/reference/topology.md: how the file writes it and what the broker then answers, written
down by hand so that a mistake in the code's own table shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

MIB = 1 << 20
INHERIT = "inherit"


@dataclass(frozen=True)
class Value:
    """One value: as the file writes it, and as a plain GET answers it (members named here; the broker may add others)."""

    text: str
    raw: Any

    def is_said_by(self, shown: Any) -> bool:
        """Whether a plan's JSON shows this value."""
        if self.text == INHERIT:
            return shown is None
        return _words(shown) == _words(yaml.safe_load(self.text))

    def is_shown_by(self, answer: Any) -> bool:
        """Whether this is what the broker answered."""
        return _holds(answer, self.raw)


def _words(value: Any) -> Any:
    """Values as words: a file's `2m` and a plan's are the same however they are typed."""
    return {key: _words(member) for key, member in value.items()} if isinstance(value, dict) else str(value).lower()


def _holds(answer: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return isinstance(answer, dict) and all(_holds(answer.get(key), value) for key, value in expected.items())
    return type(answer) is type(expected) and answer == expected


@dataclass(frozen=True)
class Row:
    """One policy: `topic` and `namespace` are the paths of its GET ("" = no such level). `hand` is what somebody sets without
    kodoctl. `unset`: what GET answers without a value, where it is not nothing.
    """

    name: str
    topic: str
    namespace: str
    one: Value
    two: Value
    hand: Value
    topic_method: str = "POST"
    namespace_method: str = "POST"
    in_query: bool = False
    unset: Any = None

    def request(self, level: str) -> tuple[str, str, Any, dict[str, str]]:
        """The call that sets `hand`: method, path, body, query."""
        if self.name == "backlog_quota":
            ((kind, body),) = self.hand.raw.items()
            return "POST", "backlogQuota", body, {"backlogQuotaType": kind}
        if self.name == "resource_group":
            return "POST", f"{self.namespace}/{self.hand.raw}", None, {}
        if self.name == "subscription_roles":
            return "POST", f"{self.namespace}/s", self.hand.raw["s"], {}
        if level == "namespace":
            return self.namespace_method, self.namespace, self.hand.raw, {}
        if self.name == "subscription_rates":
            return "POST", "s/dispatchRate", self.hand.raw, {}
        if self.in_query:
            return self.topic_method, self.topic, None, {self.topic: str(self.hand.raw)}
        return self.topic_method, self.topic, self.hand.raw, {}


def _quota(size: int, policy: str = "producer_request_hold") -> dict[str, Any]:
    return {"limitSize": size, "limitTime": -1, "policy": policy}


def _dispatch(messages: int, *, relative: bool = False) -> Value:
    raw = {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": messages * MIB,
        "ratePeriodInSecond": 2,
        "relativeToPublishRate": relative,
    }
    text = f"{{messages: {messages}, size: {messages}MiB, period: 2s, relative: {str(relative).lower()}}}"
    return Value(text, raw)


def _rates(messages: int) -> Value:
    rate = _dispatch(messages)
    return Value(f"{{s: {rate.text}}}", rate.raw)


def _publish(messages: int) -> Value:
    raw = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": MIB}
    return Value(f"{{messages: {messages}/s, size: 1MiB/s}}", raw)


def _subscribe(number: int) -> Value:
    raw = {"subscribeThrottlingRatePerConsumer": number, "ratePeriodInSecond": 30}
    return Value(f"{{subscribes: {number}, period: 30s}}", raw)


def _persistence(rate: float) -> Value:
    raw = {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": rate,
    }
    return Value(f"{{ensemble: 1, write_quorum: 1, ack_quorum: 1, mark_delete_rate: {rate}}}", raw)


def _retention(days: int, mib: int) -> Value:
    raw = {"retentionTimeInMinutes": days * 1440, "retentionSizeInMB": mib}
    return Value(f"{{time: {days}d, size: {mib}MiB}}", raw)


def _creates(allowed: bool) -> Value:
    return Value(str(allowed).lower(), {"allowAutoSubscriptionCreation": allowed})


def _delays(tick: int, *, active: bool = True) -> Value:
    raw = {"active": active, "tickTime": tick, "maxDeliveryDelayInMillis": 86_400_000}
    return Value(f"{{enabled: {str(active).lower()}, max_delay: 1d, tick: {tick // 1000}s}}", raw)


def _bookies(name: str) -> Value:
    raw = {"bookkeeperAffinityGroupPrimary": name, "bookkeeperAffinityGroupSecondary": f"{name}-2"}
    return Value(f"{{primary: {name}, secondary: {name}-2}}", raw)


def _shadow(name: str) -> Value:
    topic = f"persistent://public/default/shadow-{name}"
    return Value(f"[{topic}]", [topic])


def _offload(name: str, size: int) -> Value:
    raw = {
        "managedLedgerOffloadDriver": "aws-s3",
        "managedLedgerOffloadBucket": name,
        "managedLedgerOffloadRegion": "eu",
        "managedLedgerOffloadThresholdInBytes": size << 20,
        "managedLedgerOffloadThresholdInSeconds": -1,
        "managedLedgerOffloadDeletionLagInMillis": 60_000,
        "managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST",
        "s3ManagedLedgerOffloadRole": "reader",
        "managedLedgerOffloadMaxThreads": 4,
    }
    text = (
        f"{{driver: aws-s3, bucket: {name}, region: eu, after_size: {size}MiB, after: unlimited, delete_after: 1m,"
        " read_first: tiered_storage, settings: {s3ManagedLedgerOffloadRole: reader, managedLedgerOffloadMaxThreads: 4}}"
    )
    return Value(text, raw)


def _flag(value: bool) -> Value:
    return Value(str(value).lower(), value)


def _word(value: str) -> Value:
    return Value(value, value)


def _count(name: str, topic: str, namespace: str, start: int = 10, unset: Any = None) -> Row:
    one, two, hand = (Value(str(number), number) for number in (start, start * 2, start * 3))
    return Row(name, topic, namespace, one, two, hand, unset=unset)


_CAUGHT_UP = Value(
    "{delete: caught_up, after: 1h}",
    {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 3600,
        "deleteWhileInactive": True,
    },
)
_NO_SUBSCRIPTIONS = Value(
    "{delete: no_subscriptions, after: 2h}",
    {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 7200,
        "deleteWhileInactive": True,
    },
)
ROWS = (
    Row("retention", "retention", "retention", _retention(1, 100), _retention(2, 200), _retention(3, 300)),
    Row(
        "backlog_quota", "backlogQuotaMap", "backlogQuotaMap",
        Value("{size: 10MiB, when_full: hold_producers}", {"destination_storage": _quota(10 * MIB)}),
        Value(
            "{size: 20MiB, time: 1h, when_full: fail_producers}",
            {
                "destination_storage": _quota(20 * MIB, "producer_exception"),
                "message_age": {"limitTime": 3600, "policy": "producer_exception"},
            },
        ),
        Value("{size: 5MiB, when_full: fail_producers}", {"destination_storage": _quota(5 * MIB, "producer_exception")}),
        unset={},
    ),
    Row("ttl", "messageTTL", "messageTTL", Value("14d", 1_209_600), Value("30d", 2_592_000), Value("20d", 1_728_000), in_query=True),
    Row(
        "subscription_expiry", "subscriptionExpirationTime", "subscriptionExpirationTime",
        Value("1d", 1440), Value("2d", 2880), Value("3d", 4320), in_query=True,
    ),
    Row("persistence", "persistence", "persistence", _persistence(1.0), _persistence(2.0), _persistence(3.0)),
    Row("deduplication", "deduplicationEnabled", "deduplication", _flag(True), _flag(False), _flag(True)),
    Row(
        "deduplication_snapshot", "deduplicationSnapshotInterval", "deduplicationSnapshotInterval",
        Value("2m", 120), Value("4m", 240), Value("1m", 60),
    ),
    Row(
        "inactive_topic", "inactiveTopicPolicies", "inactiveTopicPolicies", _CAUGHT_UP,
        Value("{delete: never}", {"deleteWhileInactive": False}), _NO_SUBSCRIPTIONS,
    ),
    Row(
        "auto_subscription_creation", "autoSubscriptionCreation", "autoSubscriptionCreation",
        _creates(False), _creates(True), _creates(False),
    ),
    Row("publish_rate", "publishRate", "publishRate", _publish(100), _publish(200), _publish(300)),
    Row(
        "dispatch_rate", "dispatchRate", "dispatchRate",
        _dispatch(100), _dispatch(200, relative=True), _dispatch(300),
    ),
    Row(
        "subscription_dispatch_rate", "subscriptionDispatchRate", "subscriptionDispatchRate",
        _dispatch(100), _dispatch(200), _dispatch(300),
    ),
    Row(
        "replicator_dispatch_rate", "replicatorDispatchRate", "replicatorDispatchRate",
        _dispatch(100), _dispatch(200), _dispatch(300, relative=True),
    ),
    Row(
        "subscription_types", "subscriptionTypesEnabled", "subscriptionTypesEnabled",
        Value("[failover]", ["Failover"]), Value("[key_shared]", ["Key_Shared"]), Value("[exclusive]", ["Exclusive"]), unset=[],
    ),
    Row(
        "pause_on_ack_state_loss", "dispatcherPauseOnAckStatePersistent", "dispatcherPauseOnAckStatePersistent",
        _flag(True), Value(INHERIT, False), _flag(True), unset=False,
    ),
    Row("subscribe_rate", "subscribeRate", "subscribeRate", _subscribe(10), _subscribe(20), _subscribe(30)),
    _count("max_producers", "maxProducers", "maxProducersPerTopic"),
    _count("max_consumers", "maxConsumers", "maxConsumersPerTopic"),
    _count("max_consumers_per_subscription", "maxConsumersPerSubscription", "maxConsumersPerSubscription"),
    _count("max_subscriptions", "maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic"),
    _count("max_unacked_per_consumer", "maxUnackedMessagesOnConsumer", "maxUnackedMessagesPerConsumer", 60_000),
    _count("max_unacked_per_subscription", "maxUnackedMessagesOnSubscription", "maxUnackedMessagesPerSubscription", 300_000),
    Row(
        "compaction_threshold", "compactionThreshold", "compactionThreshold",
        Value("100MiB", 100 * MIB), Value("200MiB", 200 * MIB), Value("300MiB", 300 * MIB), namespace_method="PUT",
    ),
    Row(
        "schema_compatibility", "schemaCompatibilityStrategy", "schemaCompatibilityStrategy",
        _word("FULL"), _word("BACKWARD"), _word("FORWARD"), "PUT", "PUT", unset="UNDEFINED",
    ),
    Row(
        "schema_validation", "schemaValidationEnforced", "schemaValidationEnforced",
        _flag(True), _flag(False), _flag(True), unset=False,
    ),
    Row("subscription_rates", "s/dispatchRate", "", _rates(1), _rates(2), _rates(3)),
    Row(
        "shadow_topics", "shadowTopics", "", _shadow("one"), _shadow("two"), _shadow("hand"), topic_method="PUT"
    ),
    Row("offload", "offloadPolicies", "offloadPolicies", _offload("one", 1), _offload("two", 2), _offload("hand", 3)),
    Row("max_message_size", "maxMessageSize", "", Value("1MiB", MIB), Value("2MiB", 2 * MIB), Value("3MiB", 3 * MIB)),
    Row(
        "auto_topic_creation", "", "autoTopicCreation", Value("false", {"allowAutoTopicCreation": False}),
        Value(
            "{type: partitioned, partitions: 4}",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4},
        ),
        Value("true", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}),
    ),
    _count("max_topics", "", "maxTopicsPerNamespace", 1000, unset=0),
    Row("encryption_required", "", "encryptionRequired", _flag(True), _flag(False), _flag(True), unset=False),
    Row("allow_auto_update_schema", "", "isAllowAutoUpdateSchema", _flag(False), _flag(True), _flag(False), unset=True),
    Row("delayed_delivery", "", "delayedDelivery", _delays(1000), _delays(2000), _delays(3000, active=False)),
    Row(
        "subscription_auth", "", "subscriptionAuthMode",
        Value("prefix", "Prefix"), Value("none", "None"), Value("prefix", "Prefix"), unset="None",
    ),
    Row("resource_group", "", "resourcegroup", _word("group-one"), _word("group-two"), _word("group-hand")),
    Row("anti_affinity_group", "", "antiAffinity", _word("one"), _word("two"), _word("hand")),
    Row("bookie_affinity", "", "persistence/bookieAffinity", _bookies("one"), _bookies("two"), _bookies("hand")),
    Row(
        "metric_properties", "", "allowedTopicPropertyKeysForMetrics",
        Value("[team]", ["team"]), Value("[cost, team]", ["cost", "team"]), Value("[owner]", ["owner"]),
    ),
    Row(
        "subscription_roles", "", "permissions/subscription",
        Value("{s: [a]}", {"s": ["a"]}), Value("{s: [b], t: [a]}", {"s": ["b"], "t": ["a"]}), Value("{s: [c]}", {"s": ["c"]}),
        unset={},
    ),
    Row(
        "properties", "", "properties", Value("{team: one}", {"team": "one"}),
        Value("{cost: all, team: two}", {"cost": "all", "team": "two"}), Value("{team: hand}", {"team": "hand"}), namespace_method="PUT",
    ),
)  # fmt: skip
"""Every policy but lists of clusters, of which a broker of one cluster can hold only one value, and filters, which have
to be installed.
"""
