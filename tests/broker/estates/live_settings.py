"""Reads every object and setting of a Pulsar tenant by plain requests, without the product's reader. A value counts as set if
it differs from that of a fresh namespace or topic, so that policies unknown to the product are seen, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote

import urllib3

from tests.broker.policy_table import ROWS
from tests.brokers.workspace import Workspace

Settings = dict[str, Any]
NAMESPACE_NAMES: Final = {
    "allowed_topic_property_keys_for_metrics": "metric_properties",
    "antiAffinity": "anti_affinity_group",
    "autoSubscriptionCreationOverride": "auto_subscription_creation",
    "autoTopicCreationOverride": "auto_topic_creation",
    "backlog_quota_map": "backlog_quota",
    "clusterSubscribeRate": "subscribe_rate",
    "compaction_threshold": "compaction_threshold",
    "deduplicationEnabled": "deduplication",
    "deduplicationSnapshotIntervalSeconds": "deduplication_snapshot",
    "delayed_delivery_policies": "delayed_delivery",
    "dispatcherPauseOnAckStatePersistentEnabled": "pause_on_ack_state_loss",
    "entryFilters": "entry_filters",
    "inactive_topic_policies": "inactive_topic",
    "is_allow_auto_update_schema": "allow_auto_update_schema",
    "max_consumers_per_topic": "max_consumers",
    "max_producers_per_topic": "max_producers",
    "max_subscriptions_per_topic": "max_subscriptions",
    "max_topics_per_namespace": "max_topics",
    "max_unacked_messages_per_consumer": "max_unacked_per_consumer",
    "max_unacked_messages_per_subscription": "max_unacked_per_subscription",
    "message_ttl_in_seconds": "ttl",
    "offload_policies": "offload",
    "persistence/bookieAffinity": "bookie_affinity",
    "publishMaxMessageRate": "publish_rate",
    "replicatorDispatchRate": "replicator_dispatch_rate",
    "replication_clusters": "replication",
    "resource_group_name": "resource_group",
    "retention_policies": "retention",
    "schema_compatibility_strategy": "schema_compatibility",
    "schema_validation_enforced": "schema_validation",
    "subscriptionDispatchRate": "subscription_dispatch_rate",
    "subscription_auth_mode": "subscription_auth",
    "subscription_expiration_time_minutes": "subscription_expiry",
    "subscription_types_enabled": "subscription_types",
    "topicDispatchRate": "dispatch_rate",
}
"""Member of the JSON of a namespace, or path of its request -> name in a topology file, where the two differ."""
_TOPIC_NAMES: Final = {row.topic: row.name for row in ROWS if row.topic and "/" not in row.topic} | {
    "entryFilters": "entry_filters",
    "replication": "replication",
    "delayedDelivery": "delayed_delivery",
}
"""Path of a topic policy's request -> name in a topology file."""
_FOR_ALL_CLUSTERS: Final = (
    "retention",
    "messageTTL",
    "maxConsumers",
)  # as examples: each costs a request for each topic
_SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
_APART: Final = ("antiAffinity", "persistence/bookieAffinity")
_STATES: Final = frozenset({"auth_policies", "properties", "clusterDispatchRate"})  # the last is one more copy
_OURS: Final = "kodoctl"
_SYSTEM: Final = ("__change_events", "__transaction_buffer_snapshot")  # the broker's own, of a namespace
_THREADS: Final = 4
_NOTHING: Final = (None, "", {}, [])


class LiveReader:
    """Reader of a tenant's objects and settings."""

    def __init__(self, workspace: Workspace) -> None:
        self._tenant, self._base = workspace.tenant, f"{workspace.broker.admin_url}/admin/v2"
        again = urllib3.Retry(
            5, backoff_factor=0.1, status_forcelist=[412, 503]
        )  # 4.0: who owns a new topic is not known
        self._http = urllib3.PoolManager(maxsize=_THREADS, retries=again)  # a third of the time that requests takes
        fresh = f"{self._tenant}/fresh"
        self._send("PUT", f"namespaces/{fresh}")
        self._send("PUT", f"persistent/{fresh}/t")
        self._usual_namespace = self._get(f"namespaces/{fresh}")
        self._usual_topic = {path: self._get(f"persistent/{fresh}/t/{path}") for path in _TOPIC_NAMES}
        self._send("DELETE", f"persistent/{fresh}/t")
        self._send("DELETE", f"namespaces/{fresh}")

    def read(self) -> Settings:
        """Returns printed name of each object, and of each of its settings, -> value. Without what kodoctl itself keeps."""
        found: Settings = {}
        for space in self._spaces():
            found |= dict(self._namespace(space))
            names = self._topics(space)
            with ThreadPoolExecutor(_THREADS) as pool:
                for settings in pool.map(lambda item: dict(self._topic(*item)), names.items()):
                    found |= settings
        return found

    def close(self) -> None:
        """Closes its connections."""
        self._http.clear()

    def _get(self, path: str, default: Any = None) -> Any:
        reply = self._http.request("GET", f"{self._base}/{path}", timeout=30)
        if reply.status in (204, 404):
            return default
        if reply.status == 500 and b"No offloader found" in reply.data:  # a topic that cannot be loaded
            return default
        assert reply.status == 200, f"{path}: {reply.status} {reply.data!r}"
        return json.loads(reply.data) if reply.data else default

    def _send(self, method: str, path: str) -> None:
        reply = self._http.request(method, f"{self._base}/{path}", timeout=30)
        assert reply.status < 300, f"{path}: {reply.status} {reply.data!r}"

    def _spaces(self) -> list[str]:
        spaces: list[str] = self._get(f"namespaces/{self._tenant}", [])
        return [space for space in spaces if not space.endswith("/kodoctl")]

    def _namespace(self, space: str) -> Iterator[tuple[str, Any]]:
        dump = self._get(f"namespaces/{space}")
        dump |= {path: self._get(f"namespaces/{space}/{path}") for path in _APART}
        yield f"namespace.{space}", True
        for name, value in dump.items():
            if name not in _STATES and value not in _NOTHING and value != self._usual_namespace.get(name):
                yield f"namespace.{space} {NAMESPACE_NAMES.get(name, name)}", value
        if properties := {key: value for key, value in dump["properties"].items() if not key.startswith(_OURS)}:
            yield f"namespace.{space} properties", properties
        access = dump["auth_policies"]
        if roles := access["subscription_auth_roles"]:
            yield f"namespace.{space} subscription_roles", roles
        for role, actions in access["namespace_auth"].items():
            yield f"grant.{space}/{role}", sorted(actions)
        for topic, grants in access["destination_auth"].items():
            for role, actions in grants.items():
                yield f"grant.{topic}/{role}", sorted(actions)

    def _topics(self, space: str) -> dict[str, int]:
        """Full name -> number of partitions, 0 for a plain topic."""
        found: dict[str, int] = {}
        for domain in ("persistent", "non-persistent"):
            partitioned = self._get(f"{domain}/{space}/partitioned", [])
            plain = self._get(f"{domain}/{space}", [])
            for name in partitioned:
                found[name] = self._get(f"{_path(name)}/partitions")["partitions"]
            whole = {name for name in plain if name.rpartition("-partition-")[0] not in partitioned}
            found |= dict.fromkeys(whole - found.keys(), 0)
        return {name: number for name, number in found.items() if name.rpartition("/")[2] not in _SYSTEM}

    def _topic(self, name: str, partitions: int) -> Iterator[tuple[str, Any]]:
        yield f"topic.{name}", partitions
        if name.startswith("non-") or name.count("/") > 4:  # no request can name one with a slash
            return
        for path, our_name in _TOPIC_NAMES.items():
            value = self._get(f"{_path(name)}/{path}")
            if value not in _NOTHING and value != self._usual_topic[path]:
                yield f"topic.{name} {our_name}", value
        for path in _FOR_ALL_CLUSTERS:
            if (value := self._get(f"{_path(name)}/{path}?isGlobal=true")) not in _NOTHING:
                yield f"topic.{name} {path} for all clusters", value
        properties = self._get(f"{_path(name)}/properties", {})
        if source := properties.pop(_SHADOW_SOURCE, None):
            yield f"topic.{name} as a shadow topic", source
        if properties := {key: value for key, value in properties.items() if not key.startswith(_OURS)}:
            yield f"topic.{name} properties", properties
        if schema := self._get(f"schemas/{name.partition('://')[2].rpartition('/')[0]}/{quote(_last(name))}/schema"):
            yield f"schema.{name}", [schema["type"], schema["version"], schema["data"]]
        parts = [f"{name}-partition-{number}" for number in range(partitions)] or [name]
        there = [part for part in parts if self._get(f"{_path(part)}/stats") is not None]
        if len(there) != len(parts):
            yield f"topic.{name} missing", sorted(set(parts) - set(there))
        subscriptions: dict[str, dict[str, Any]] = {}
        for part in there:
            if "terminatedPosition" in self._get(f"{_path(part)}/internal-info", {}):
                yield f"topic.{name} terminated", True
            for subscription, stats in self._get(f"{_path(part)}/stats")["subscriptions"].items():
                if stats["isDurable"] and not subscription.startswith("__"):
                    subscriptions.setdefault(subscription, {})[part] = stats
        for subscription, by_part in subscriptions.items():
            address = f"subscription.{name}/{subscription}"
            yield address, {part: stats["msgBacklog"] for part, stats in by_part.items()}
            properties = next(iter(by_part.values()))["subscriptionProperties"]
            if properties := {key: value for key, value in properties.items() if not key.startswith(_OURS)}:
                yield f"{address} properties", properties
            if any(stats.get("isReplicated") for stats in by_part.values()):
                yield f"{address} replicated", True
            rate = self._get(f"{_path(name)}/{quote(subscription, safe='')}/dispatchRate")
            if rate not in _NOTHING:
                yield f"{address} dispatchRate", rate


def _path(name: str) -> str:
    domain, _, rest = name.partition("://")
    return f"{domain}/{rest.rpartition('/')[0]}/{_last(name)}"


def _last(name: str) -> str:
    return quote(name.rpartition("/")[2], safe="")
