"""Bulk reader of all topic policies of a namespace, from its system topic `__change_events`
(docs/explanation/pulsar.md).

For 300 topics it takes 0.1 to 0.35 s, single requests 10 s. Their answers are the same, but only the system topic
distinguishes "unset" from "false". The list of schemas is read first, because a reader would create a system topic that
does not exist, and a plan must create nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kodoctl.pulsar.binary.deadlines import UnansweredError
from kodoctl.pulsar.binary.message_decoding import content, schema_version
from kodoctl.pulsar.connection.peer import PortError
from kodoctl.pulsar.values.avro_record import record_decoder
from kodoctl.topology.names import NamespaceName, whole_topic

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BrokerClient

SYSTEM_TOPIC: Final = "__change_events"
_READ_S: Final = 10.0
_GLOBAL: Final = "__G__"  # key prefix of policies that hold in every cluster
_RENAMED: Final = {
    "autoSubscriptionCreationOverride": "autoSubscriptionCreation",
    "backLogQuotaMap": "backlogQuotaMap",
    "deduplicationSnapshotIntervalSeconds": "deduplicationSnapshotInterval",
    "dispatcherPauseOnAckStatePersistentEnabled": "dispatcherPauseOnAckStatePersistent",
    "maxConsumerPerTopic": "maxConsumers",
    "maxProducerPerTopic": "maxProducers",
    "messageTTLInSeconds": "messageTTL",
    "replicationClusters": "replication",
    "retentionPolicies": "retention",
    "subscriptionExpirationTimeInMinutes": "subscriptionExpirationTime",
}


def rest_name(member: str) -> str:
    """Returns the name that the REST API uses for a topic policy. `member`: its name in an event of the namespace's
    policy topic.
    """
    return _RENAMED.get(member, member)


_DELAYED: Final = frozenset(
    {"delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"}
)


class BulkUnavailableError(Exception):
    """The bulk read cannot be used, and single requests have to take its place. The text is the reason."""


@dataclass(frozen=True, slots=True)
class BulkPolicies:
    """Topic policies that are explicitly set in a namespace, as one read of its system topic found them. A policy whose
    value is an empty list or object counts as unset.

    `policies`: full topic name -> policies of this cluster, without delayed delivery; `everywhere`: full topic name ->
    policies that apply in all clusters. Both have the names and JSON shapes of the REST API, except delayed delivery in
    `everywhere`. `delayed`: full names of topics with a delayed-delivery value for this cluster. `events`: number of
    distinct keys that had an event, also of policies that were deleted since. `topic_exists`: False if there is no
    system topic: on brokers before 5.0 no policy was ever set then, later brokers may keep policies elsewhere.
    """

    policies: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    everywhere: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    delayed: frozenset[str] = frozenset()  # topics with a topic-level delayed-delivery value
    events: int = 0
    topic_exists: bool = True

    def of(self, topic: str) -> dict[str, Any]:
        """Policies of one topic (full name) in `policies`; {} if none is set there."""
        return self.policies.get(topic, {})


def read_bulk(admin: Admin, client: BrokerClient, namespace: NamespaceName) -> BulkPolicies:
    """Reads all topic policies of a namespace, and blocks meanwhile. Raises BulkUnavailableError if that is impossible,
    for example without a binary port or an answer there, without a right that is needed, if no event comes within
    _READ_S (10) seconds although there are more, or for an unknown encoding. Raises ClusterError if the admin API does
    not answer, or no token can be had.
    """
    if not client.available:
        raise BulkUnavailableError("the broker's binary port is not known")
    decoders = _decoders(admin, namespace)
    if not decoders and not _is_listed(admin, namespace):
        return BulkPolicies(topic_exists=False)
    last = _last_events(client, namespace)
    return _decode(decoders, last)


def _is_listed(admin: Admin, namespace: NamespaceName) -> bool:
    """True if the namespace's list, which is read from metadata, has the system topic; only the owner of the
    topic knows its schemas. The topic may exist without an event, and then without a schema: any topic that is
    loaded creates it.
    """
    reply = admin.call("GET", f"persistent/{namespace}", query={"includeSystemTopic": "true"})
    if not reply.ok or not isinstance(reply.data, list):
        raise BulkUnavailableError(f"{reply}")
    return any(whole_topic(name).rpartition("/")[2] == SYSTEM_TOPIC for name in reply.data)


def _decoders(admin: Admin, namespace: NamespaceName) -> list[Callable[[bytes], Any]]:
    """Decoders of the events, by schema version; []: the system topic does not exist, or has no event yet."""
    reply = admin.call("GET", f"schemas/{namespace}/{SYSTEM_TOPIC}/schemas")
    if reply.missing:
        return []
    if not reply.ok:
        raise BulkUnavailableError(f"{reply}")
    found = []
    for entry in reply.data.get("getSchemaResponses", []):
        if entry.get("type") != "AVRO":
            raise BulkUnavailableError(f"the broker writes policy events as {entry.get('type')}")
        try:
            found.append(record_decoder(json.loads(entry["data"])))
        except ValueError as problem:
            raise BulkUnavailableError(f"schema of policy events: {problem}") from None
    return found


def _last_events(client: BrokerClient, namespace: NamespaceName) -> dict[str, tuple[int, bytes]]:
    """Key -> (schema version, payload) of the last event of each key. The end is exact, because the broker
    reports it.

    Partitions are read one by one if auto-creation made the system topic a partitioned one: a reader over
    several may end before a last message without payload (seen with pulsar-client 3.13), and "all policies
    deleted" is such an event.
    """
    import pulsar

    topic = f"persistent://{namespace}/{SYSTEM_TOPIC}"
    last: dict[str, tuple[int, bytes]] = {}
    try:
        for part in client.partitions(topic, limit=0):
            start = pulsar.MessageId.earliest
            with client.reader(part, start, f"the policies in {part}", limit=0, is_read_compacted=True) as reader:
                while (found := reader.take(_READ_S)) is not None:
                    if not found:
                        raise BulkUnavailableError(
                            f"{part}: no event came within {_READ_S:.0f} s, though there are more"
                        )
                    for message in found:
                        payload, _, key, *_ = content(message, alone=message.message_id().batch_index() < 0)
                        last[key] = (max(0, schema_version(message)), payload or b"")
    except pulsar.PulsarException as problem:
        raise BulkUnavailableError(f"{topic}: {problem}") from None
    except (PortError, UnansweredError):
        raise BulkUnavailableError("the broker's binary port does not answer") from None
    return last


def _decode(decoders: list[Callable[[bytes], Any]], last: dict[str, tuple[int, bytes]]) -> BulkPolicies:
    policies: dict[str, dict[str, Any]] = {}
    everywhere: dict[str, dict[str, Any]] = {}
    alike: dict[str, dict[str, Any]] = {}  # most topics of a namespace have the policies of another one
    delayed: set[str] = set()
    for key, (version, data) in last.items():
        if not data:
            continue  # all policies of that topic deleted
        try:
            event = decoders[version](data)
            if event["actionType"] == "DELETE" or event["eventType"] != "TOPIC_POLICY":
                continue
            explicit = event["topicPoliciesEvent"]["policies"]
        except (IndexError, KeyError, TypeError, ValueError) as problem:
            raise BulkUnavailableError(f"a policy event cannot be decoded: {problem!r}") from None
        if key.startswith(_GLOBAL):  # the local getters do not read these
            everywhere[key.removeprefix(_GLOBAL)] = {
                rest_name(name): _bare(value) for name, value in explicit.items() if _is_own(name, value)
            }
            continue
        found = {rest_name(name): _bare(value) for name, value in explicit.items() if _is_set(name, value)}
        if found:
            policies[key] = alike.setdefault(repr(found), found)
        if any(explicit.get(name) is not None for name in _DELAYED):
            delayed.add(key)
    return BulkPolicies(policies, everywhere, frozenset(delayed), len(last))


def _is_set(name: str, value: Any) -> bool:
    return name not in _DELAYED and _is_own(name, value)


def _is_own(name: str, value: Any) -> bool:
    return name != "isGlobal" and value is not None and value not in ({}, [])


def _bare(value: Any) -> Any:
    """Removes null members at all depths, as REST getters do."""
    return (
        {key: _bare(member) for key, member in value.items() if member is not None}
        if isinstance(value, dict)
        else value
    )
