"""Requests of Pulsar's admin API that read and write policies: paths and verbs, and the names of policies in bulk reads
and in the JSON of a namespace.

The JSON shapes themselves are in kodoctl.pulsar.inventory.policy_json. As measured:
docs/explanation/pulsar.md#policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kodoctl.pulsar.admin.admin import path_part
from kodoctl.pulsar.inventory import policy_json as shapes
from kodoctl.pulsar.inventory.policy_json import QUOTA_BY_SIZE, QUOTA_BY_TIME, Json, Shape
from kodoctl.topology.model.policies import BacklogQuota, DelayedDelivery, DispatchRate, Foreign, Policies, PolicyValue


@dataclass(frozen=True, slots=True)
class Write:
    """One request that sets or unsets a policy. `path` is relative to that of the topic or namespace. `has_body` False:
    the request has no body; otherwise `body` None is sent as null.
    """

    method: Literal["DELETE", "POST", "PUT"]
    path: str
    body: Json = None
    query: tuple[tuple[str, str], ...] = ()
    has_body: bool = True


@dataclass(frozen=True, slots=True)
class Codec:
    """Mapping of one policy to Pulsar. `topic` and `namespace`: last path segment of its requests, "" if that level
    does not have the policy; `key`: its member in the JSON of a namespace; `bulk`: its name in a bulk read of topic
    policies, "" if that is `topic`.
    """

    name: str
    topic: str
    namespace: str
    key: str
    shape: Shape
    bulk: str = ""
    topic_method: Literal["POST", "PUT"] = "POST"
    namespace_method: Literal["POST", "PUT"] = "POST"
    in_query: bool = False  # the topic's value is a query parameter: a JSON body is accepted and ignored
    unset_body: Json = None  # namespaces: what is written to unset where no DELETE exists
    by_cluster: bool = False  # namespaces: the dump keys the value by cluster name
    in_path: bool = False  # the value is the last segment of the path
    has_body: bool = True  # False: the request itself sets the only value
    checked: bool = False  # namespaces: Pulsar checks the value only in a request of its own, not at creation
    removed_by: str = ""  # namespaces: path of the DELETE where it is another one

    @property
    def bulk_name(self) -> str:
        """Name of the policy in a bulk read of topic policies."""
        return self.bulk or self.topic

    @property
    def is_apart(self) -> bool:
        """True for a policy that the JSON of a namespace does not have: a request of its own reads it."""
        return not self.key and bool(self.namespace)

    @property
    def follows_creation(self) -> bool:
        """True for a policy that is written by a request of its own, after its namespace is created."""
        return self.is_apart or self.checked


def _limit(name: str, topic: str, namespace: str, key: str, bulk: str = "") -> Codec:
    return Codec(name, topic, namespace, key, shapes.COUNT, bulk)


CODECS: Final = (
    Codec("retention", "retention", "retention", "retention_policies", shapes.RETENTION),
    Codec("backlog_quota", "backlogQuota", "backlogQuota", "backlog_quota_map", shapes.QUOTA, "backlogQuotaMap"),
    Codec("ttl", "messageTTL", "messageTTL", "message_ttl_in_seconds", shapes.SECONDS, in_query=True),
    Codec(
        "subscription_expiry", "subscriptionExpirationTime", "subscriptionExpirationTime",
        "subscription_expiration_time_minutes", shapes.MINUTES, in_query=True,
    ),
    Codec("persistence", "persistence", "persistence", "persistence", shapes.PERSISTENCE),
    Codec("deduplication", "deduplicationEnabled", "deduplication", "deduplicationEnabled", shapes.FLAG),
    Codec(
        "deduplication_snapshot", "deduplicationSnapshotInterval", "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds", shapes.SECONDS,
    ),
    Codec("inactive_topic", "inactiveTopicPolicies", "inactiveTopicPolicies", "inactive_topic_policies", shapes.INACTIVE_TOPIC),
    Codec(
        "auto_subscription_creation", "autoSubscriptionCreation", "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride", shapes.AUTO_SUBSCRIPTION,
    ),
    Codec("publish_rate", "publishRate", "publishRate", "publishMaxMessageRate", shapes.PUBLISH_RATE, by_cluster=True),
    Codec("dispatch_rate", "dispatchRate", "dispatchRate", "topicDispatchRate", shapes.DISPATCH_RATE, by_cluster=True),
    Codec(
        "subscription_dispatch_rate", "subscriptionDispatchRate", "subscriptionDispatchRate",
        "subscriptionDispatchRate", shapes.DISPATCH_RATE, by_cluster=True,
    ),
    Codec("subscribe_rate", "subscribeRate", "subscribeRate", "clusterSubscribeRate", shapes.SUBSCRIBE_RATE, by_cluster=True),
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
    Codec("max_message_size", "maxMessageSize", "", "", shapes.MESSAGE_SIZE),
    Codec("subscription_rates", "*/dispatchRate", "", "", shapes.RATES, "subscriptionPolicies"),
    Codec("shadow_topics", "shadowTopics", "", "", shapes.TEXTS, topic_method="PUT"),
    Codec(
        "compaction_threshold", "compactionThreshold", "compactionThreshold", "compaction_threshold",
        shapes.SIZE, namespace_method="PUT",
    ),
    Codec(
        "schema_compatibility", "schemaCompatibilityStrategy", "schemaCompatibilityStrategy", "schema_compatibility_strategy",
        shapes.COMPATIBILITY, topic_method="PUT", namespace_method="PUT", unset_body="UNDEFINED",
    ),
    Codec(
        "schema_validation", "schemaValidationEnforced", "schemaValidationEnforced", "schema_validation_enforced",
        shapes.FLAG, unset_body=False,
    ),
    Codec("replication", "replication", "replication", "replication_clusters", shapes.TEXTS),
    Codec("offload", "offloadPolicies", "offloadPolicies", "offload_policies", shapes.OFFLOAD, removed_by="removeOffloadPolicies"),
    Codec(
        "replicator_dispatch_rate", "replicatorDispatchRate", "replicatorDispatchRate", "replicatorDispatchRate",
        shapes.DISPATCH_RATE, by_cluster=True,
    ),
    Codec(
        "subscription_types", "subscriptionTypesEnabled", "subscriptionTypesEnabled", "subscription_types_enabled", shapes.TYPES
    ),
    Codec("entry_filters", "entryFilters", "entryFilters", "entryFilters", shapes.FILTERS, checked=True),
    Codec(
        "pause_on_ack_state_loss", "dispatcherPauseOnAckStatePersistent", "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled", shapes.SWITCH, has_body=False,
    ),
    Codec(
        "auto_topic_creation", "", "autoTopicCreation", "autoTopicCreationOverride", shapes.AUTO_TOPIC
    ),
    _limit("max_topics", "", "maxTopicsPerNamespace", "max_topics_per_namespace"),
    Codec("encryption_required", "", "encryptionRequired", "encryption_required", shapes.FLAG, unset_body=False),
    Codec(
        "allow_auto_update_schema", "", "isAllowAutoUpdateSchema", "is_allow_auto_update_schema", shapes.FLAG, unset_body=True
    ),
    Codec("delayed_delivery", "", "delayedDelivery", "delayed_delivery_policies", shapes.DELAYS),
    Codec("allowed_clusters", "", "allowedClusters", "allowed_clusters", shapes.TEXTS),
    Codec("subscription_auth", "", "subscriptionAuthMode", "subscription_auth_mode", shapes.AUTH, unset_body="None"),
    Codec("resource_group", "", "resourcegroup", "resource_group_name", shapes.TEXT, in_path=True, checked=True),
    Codec("anti_affinity_group", "", "antiAffinity", "", shapes.TEXT),
    Codec("bookie_affinity", "", "persistence/bookieAffinity", "", shapes.BOOKIES),
    Codec(
        "metric_properties", "", "allowedTopicPropertyKeysForMetrics", "allowed_topic_property_keys_for_metrics", shapes.TEXTS
    ),
    Codec("subscription_roles", "", "permissions/subscription", "auth_policies.subscription_auth_roles", shapes.ROLES),
    Codec("properties", "", "properties", "properties", shapes.PROPERTIES),
    Codec("bundles", "", "bundles", "bundles", shapes.BUNDLES),
)  # fmt: skip
BY_NAME: Final = {codec.name: codec for codec in CODECS}
TOPIC_CODECS: Final = tuple(codec for codec in CODECS if codec.topic)
NAMESPACE_CODECS: Final = tuple(codec for codec in CODECS if codec.namespace)
APART: Final = frozenset(codec.name for codec in CODECS if codec.is_apart)
DELAYED_DELIVERY: Final = "delayedDelivery"  # never written on a topic: it stalls delivery until the topic is unloaded
BY_SUBSCRIPTION: Final = BY_NAME["subscription_rates"]  # one request for each subscription, which need not exist
NO_DELETE_ON_TOPIC: Final = frozenset({"schema_validation"})  # DELETE answers 405; null is stored as false
_POST_NULL: Final = frozenset({"deduplication_snapshot"})  # namespaces: DELETE does not exist, a null body unsets


def read_delayed_delivery(raw: Any) -> DelayedDelivery:
    """Parses delayed delivery from a broker's answer or from the JSON of a namespace. An empty value is read as active
    without a maximum.
    """
    found = raw if isinstance(raw, dict) else {}
    return DelayedDelivery(found.get("active") is not False, int(found.get("maxDeliveryDelayInMillis") or 0))


def topic_writes(name: str, value: PolicyValue | None, before: PolicyValue | None = None) -> Iterator[Write]:
    """Yields the requests that set the policy `name` of a topic to `value`, or unset it (None). `before`: the present
    value; parts of a quota or of a map that it has and `value` lacks are removed one by one.
    """
    codec = BY_NAME[name]
    if name == "backlog_quota":
        yield from _quota_writes(codec.topic, value, before)
    elif name in _BY_KEY:
        yield from _BY_KEY[name](value or {}, _entries(before))
    elif value is None:
        if name in NO_DELETE_ON_TOPIC:
            yield Write("POST", codec.topic, body=False)
        else:
            yield Write("DELETE", codec.topic, has_body=False)
    elif codec.in_query:
        yield Write(
            codec.topic_method, codec.topic, query=((codec.topic, str(codec.shape.encode(value))),), has_body=False
        )
    else:
        yield Write(codec.topic_method, codec.topic, codec.shape.encode(value), has_body=codec.has_body)


def namespace_writes(name: str, value: PolicyValue | None, before: PolicyValue | None = None) -> Iterator[Write]:
    """Yields the requests that set the policy `name` of a namespace to `value`, or unset it (None). `before`: the
    present value; parts of a quota or of a map that it has and `value` lacks are removed one by one.
    """
    codec = BY_NAME[name]
    if name == "backlog_quota":
        yield from _quota_writes(codec.namespace, value, before)
    elif name in _BY_KEY:
        yield from _BY_KEY[name](value or {}, _entries(before))
    elif value is not None and codec.in_path:
        yield Write(codec.namespace_method, f"{codec.namespace}/{path_part(value)}", has_body=False)
    elif value is not None:
        yield Write(codec.namespace_method, codec.namespace, codec.shape.encode(value), has_body=codec.has_body)
    elif codec.unset_body is not None:
        yield Write(codec.namespace_method, codec.namespace, codec.unset_body)
    elif name in _POST_NULL:
        yield Write("POST", codec.namespace, None)
    else:
        yield Write("DELETE", codec.removed_by or codec.namespace, has_body=False)


def _entries(before: PolicyValue | None) -> dict[str, Any]:
    """The entries of a map; of a Foreign as Pulsar has them."""
    found: dict[str, Any] = json.loads(before.json) if isinstance(before, Foreign) else before or {}
    return found


def _rate_writes(value: dict[str, DispatchRate], before: dict[str, Any]) -> Iterator[Write]:
    for name in sorted(before.keys() - value.keys()):
        yield Write("DELETE", f"{path_part(name)}/dispatchRate", has_body=False)
    for name, rate in value.items():
        if rate != before.get(name):
            yield Write("POST", f"{path_part(name)}/dispatchRate", shapes.DISPATCH_RATE.encode(rate))


def _property_writes(value: dict[str, str], before: dict[str, str]) -> Iterator[Write]:
    """Yields a request for each property that goes, and one for all others: a PUT merges."""
    for name in sorted(before.keys() - value.keys()):
        yield Write("DELETE", f"property/{path_part(name)}", has_body=False)
    if value:
        yield Write("PUT", "properties", value)


def _role_writes(value: dict[str, tuple[str, ...]], before: dict[str, tuple[str, ...]]) -> Iterator[Write]:
    """Yields a request for each role of the subscriptions that go, and one for each subscription with other roles,
    which replaces them.
    """
    for name in sorted(before.keys() - value.keys()):
        for role in before[name]:
            yield Write("DELETE", f"permissions/{path_part(name)}/{path_part(role)}", has_body=False)
    for name, roles in value.items():
        if set(roles) != set(before.get(name, ())):
            yield Write("POST", f"permissions/subscription/{path_part(name)}", list(roles))


_BY_KEY: Final[Mapping[str, Callable[[Any, Any], Iterator[Write]]]] = {
    "properties": _property_writes,
    "subscription_rates": _rate_writes,
    "subscription_roles": _role_writes,
}


def _quota_writes(path: str, value: PolicyValue | None, before: PolicyValue | None) -> Iterator[Write]:
    wanted = shapes.QUOTA.encode(value) if isinstance(value, BacklogQuota) else {}
    there = (
        set(shapes.QUOTA.encode(before))
        if isinstance(before, BacklogQuota)
        else {QUOTA_BY_SIZE, QUOTA_BY_TIME}
        if before
        else set()
    )
    for kind in sorted(there - wanted.keys()):
        yield Write("DELETE", path, query=(("backlogQuotaType", kind),), has_body=False)
    for kind, body in wanted.items():
        yield Write("POST", path, body, (("backlogQuotaType", kind),))


def is_on_the_way(now: PolicyValue | None, before: PolicyValue | None) -> bool:
    """True if `now` is a possible intermediate state while the parts of `before` are removed one by one: limits of a
    quota, or entries of a map.
    """
    if isinstance(before, dict):
        return now is None or (
            isinstance(now, dict) and all(_is_part(value, before.get(name)) for name, value in now.items())
        )
    if isinstance(now, BacklogQuota) and isinstance(before, BacklogQuota):
        return bool(shapes.QUOTA.encode(now).items() <= shapes.QUOTA.encode(before).items())
    return now is None and isinstance(before, BacklogQuota | Foreign)


def _is_part(now: Any, before: Any) -> bool:
    """True for the same entry, or a list of some of its items."""
    return now == before or (
        isinstance(now, list | tuple) and isinstance(before, list | tuple) and set(now) <= set(before)
    )


def read_topic_policies(raw: dict[str, Json]) -> Policies:
    """Parses the explicitly set policies of a topic. `raw`: JSON values by their names in a bulk read. Returns the
    values by kodoctl's names of policies, those of unknown policies are left out.
    """
    found: dict[str, PolicyValue] = {}
    for codec in TOPIC_CODECS:
        if codec.bulk_name in raw and (value := codec.shape.decode(raw[codec.bulk_name])) is not None:
            found[codec.name] = value
    return found


def read_namespace_policies(dump: dict[str, Json], cluster: str) -> Policies:
    """Parses the explicitly set policies in the JSON of a namespace. Returns the values by kodoctl's names of policies;
    limits that a namespace has for each cluster are those for `cluster`.
    """
    found: dict[str, PolicyValue] = {}
    for codec in NAMESPACE_CODECS:
        raw: Any = dump
        for word in codec.key.split("."):
            raw = (raw or {}).get(word)
        if codec.by_cluster and raw:
            raw = raw.get(cluster)
        if raw is not None and raw != -1 and (value := codec.shape.decode(raw)) is not None:
            found[codec.name] = value
    return found


def new_namespace(policies: Policies, cluster: str) -> dict[str, Json]:
    """Body of a PUT that creates a namespace with these policies, in the shape of a namespace's JSON
    (docs/explanation/pulsar.md), without the policies that are written later (`follows_creation`).
    """
    body: dict[str, Json] = {}
    for name, value in policies.items():
        codec = BY_NAME[name]
        if codec.follows_creation:
            continue
        encoded = codec.shape.encode(value)
        top, *words = codec.key.split(".")
        for word in words:
            encoded = {word: encoded}
        body[top] = {cluster: encoded} if codec.by_cluster else encoded
    return body
