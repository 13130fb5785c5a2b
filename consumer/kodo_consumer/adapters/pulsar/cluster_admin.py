"""Admin API client of a worker: the port `Cluster` over HTTP. The right `consume` is enough: settings that need more
rights count as unknown without them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.adapters.pulsar.active_consumers import ASKING, ActiveConsumerReader
from kodo_consumer.core.values.broker import LaneStats, UnackedLimits
from kodoctl.errors import ClusterError
from kodoctl.protocol.properties import CONTROL_NAMESPACE, LEDGER_PREFIX, UUID_PROPERTY
from kodoctl.pulsar.admin.admin import must, namespace_path, schema_path, topic_path
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.message_limit import largest_message
from kodoctl.pulsar.admin.topic_stats import ask_stats
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.pulsar.inventory.policy_requests import DELAYED_DELIVERY, read_delayed_delivery
from kodoctl.pulsar.values import ledger
from kodoctl.topology.names import NamespaceName, TopicName, partition_number

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.model.policies import DelayedDelivery

log = logging.getLogger("kodo.producer")
_UNACKED: Final = ("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription")
_CONSUMERS: Final = {
    "max_consumers": ("maxConsumers", "maxConsumersPerTopic"),
    "max_consumers_per_subscription": ("maxConsumersPerSubscription", "maxConsumersPerSubscription"),
}
"""Limits on consumers by their names in the file: as a topic has them, and as its namespace has them."""
_LOOKING: Final = 2.0  # seconds for an answer: what is read every few seconds is soon asked again
_SERVING_S: Final = 8.0  # for what messages wait for that came already: other lanes wait along
_ASKED_AT_ONCE: Final = 1_000  # requests: those to a silent broker keep back none to the others
_PRECISE: Final = {"getEarliestTimeInBacklog": "true", "getPreciseBacklog": "true"}


def log_wait(what: str, seconds: float, limit: float) -> None:
    """Logs a warning about a wait: its cause (`what`), the seconds so far and the limit in seconds."""
    logging.getLogger("kodo.consumer").warning(
        "waiting for the cluster, %.0f s so far, at most %.0f s: %s", seconds, limit, what
    )


class AdminCluster:
    """Implementation of kodo_consumer.core.values.broker.Cluster by kodoctl's admin port. Where its methods do not say
    otherwise, they repeat a request that fails for up to 60 s, because brokers fail over, or for 8 s as long as no
    broker has ever answered; a try that hangs may take longer. They raise ClusterError if no broker answers.
    """

    def __init__(self, connection: Connection) -> None:
        self._admin = HttpAdmin(connection, waits=WaitMonitor(log_wait))
        serving = WaitMonitor(log_wait, limit=_SERVING_S)
        self._serving = HttpAdmin(connection, waits=serving, timeout=_SERVING_S / 2)
        self._looking = HttpAdmin(connection, limit=0.0, timeout=_LOOKING)
        self._asking = HttpAdmin(connection, limit=0.0, timeout=ASKING, at_once=_ASKED_AT_ONCE)
        self._active = ActiveConsumerReader(self._asking)

    def close(self) -> None:
        """Closes all HTTP connections."""
        for admin in (self._admin, self._serving, self._looking, self._asking):
            admin.close()

    def partitions(self, topic: str) -> int | None:
        """Number of partitions of a topic, 0 of a plain one; None: there is no such topic. Raises ClusterError."""
        reply = self._admin.call("GET", f"{topic_path(TopicName.parse(topic))}/partitions")
        return None if reply.missing else int(must(reply, f"reading {topic}")["partitions"])

    def subscriptions(self, topic: str) -> frozenset[str]:
        """Names of all subscriptions of a topic. Raises ClusterError, also if the topic does not exist."""
        reply = self._admin.call("GET", f"{topic_path(TopicName.parse(topic))}/subscriptions")
        return frozenset(must(reply, f"reading {topic}"))

    def stats(self, topic: str, subscription: str) -> LaneStats | None:
        """Statistics of a subscription over all partitions that answered, with the time of the earliest message of its
        backlog. Waits for no fail-over and 2 s at most for each answer, because the caller asks every few seconds.
        None: there is no such topic, or no partition that answered has the subscription. Raises ClusterError.
        """
        reply = ask_stats(self._looking, TopicName.parse(topic), _PRECISE)
        if reply.missing:
            return None
        found = lane_stats(must(reply, f"reading {topic}"), subscription)
        return found and replace(found, server_time=reply.server_time, took=reply.took)

    def active(self, topic: str, subscription: str) -> dict[str, str] | None:
        """Returns the name of the active consumer by partition number (as text), "" for none, without partitions that
        do not answer soon. None: no partition that answered has the subscription, or none answered. Waits about a
        second, and for one request more at most. Raises ClusterError. See ActiveConsumerReader.read.
        """
        return self._active.read(topic, subscription)

    def unacked_limits(self, topic: str) -> UnackedLimits | None:
        """Limits of unacknowledged messages in force, wherever they are set. None: this role may not read them
        (policies need more than `consume` rights), there is no such topic, or the broker answers with an error; then
        only statistics show a blocked consumer. Raises ClusterError if no broker answers.
        """
        path = topic_path(TopicName.parse(topic))
        found = [self._admin.call("GET", f"{path}/{name}", query={"applied": "true"}) for name in _UNACKED]
        if not all(reply.ok for reply in found):
            return None
        return UnackedLimits(*(int(reply.data or 0) for reply in found))

    def subscription_types(self, topic: str) -> frozenset[str]:
        """Types of subscriptions that the topic allows, by its own setting or else by that of its namespace, in lower
        case, such as `shared`. Empty: neither is set, or they cannot be read (this role may not, the broker fails).
        """
        name = TopicName.parse(topic)
        for path in (topic_path(name), namespace_path(name.namespace)):
            reply = self._admin.call("GET", f"{path}/subscriptionTypesEnabled")
            if reply.ok and isinstance(reply.data, list) and reply.data:
                return frozenset(str(one).lower() for one in reply.data)
        return frozenset()

    def used_up_consumers(self, topic: str, subscription: str) -> str:
        """Text for people about the limit that now keeps one more consumer from a partition; "" if there is none, or
        the limits or the numbers of consumers cannot be read.
        """
        name = TopicName.parse(topic)
        limits = {policy: limit for policy in _CONSUMERS if (limit := self._consumer_limit(name, policy))}
        reply = ask_stats(self._looking, name, _PRECISE) if limits else None
        parts = reply.data.get("partitions") or {} if reply and reply.ok and isinstance(reply.data, dict) else {}
        for part in parts.values():
            each = {one: len(sub.get("consumers") or []) for one, sub in (part.get("subscriptions") or {}).items()}
            connected = {
                "max_consumers": sum(each.values()),
                "max_consumers_per_subscription": each.get(subscription, 0),
            }
            for policy, limit in limits.items():
                if connected[policy] >= limit:
                    return f"`{policy}` is {limit}, and as many are connected"
        return ""

    def _consumer_limit(self, topic: TopicName, policy: str) -> int:
        """Limit `policy` on consumers of the topic; 0: no limit, or it cannot be read. The namespace is asked as well,
        because of one limit the topic's answer has only the value that is set on the topic itself.
        """
        of_topic, of_namespace = _CONSUMERS[policy]
        for path in (f"{topic_path(topic)}/{of_topic}", f"{namespace_path(topic.namespace)}/{of_namespace}"):
            reply = self._admin.call("GET", path, query={"applied": "true"})
            if reply.ok and isinstance(reply.data, int):
                return reply.data
        return 0

    def delays(self, topic: str) -> DelayedDelivery | None:
        """Delayed delivery in force for the topic, wherever it is set. None: this role may not read it, there is no
        such topic, or the broker answers with an error. Raises ClusterError if no broker answers.
        """
        return _delays(self._admin, topic)

    def largest(self, topic: str) -> int | None:
        """Bytes that a message may have by the topic's own limit; 0 if the topic has no limit of its own. None: this
        role may not read the limit, there is no such topic, or the broker answers with an error. Raises ClusterError if
        no broker answers.
        """
        return largest_message(self._admin, topic)

    def schema(self, topic: str, version: int) -> Mapping[str, Any] | None:
        """Avro definition of a schema version; None: there is no such version or topic, it is not Avro, or its
        definition is no JSON object. Repeats a request that fails for 8 s only, and waits 4 s for each answer, because
        messages of other lanes wait meanwhile. Raises ClusterError.
        """
        reply = self._serving.call("GET", f"{schema_path(TopicName.parse(topic))}/schema/{version}")
        if reply.missing:
            return None
        found = must(reply, f"reading schema {version} of {topic}")
        definition = json.loads(found["data"]) if found.get("type") == "AVRO" else None
        return definition if isinstance(definition, dict) else None

    def latest_schema(self, topic: str) -> int:
        """Number of the newest schema version of a topic, -1 if it has none or does not exist. Waits as `schema` does.
        Raises ClusterError.
        """
        reply = self._serving.call("GET", f"{schema_path(TopicName.parse(topic))}/schema")
        return -1 if reply.missing else int(must(reply, f"reading the schema of {topic}")["version"])


def _delays(admin: HttpAdmin, topic: str) -> DelayedDelivery | None:
    """Delayed delivery in force for the topic; None: it cannot be read. Raises ClusterError if no broker answers."""
    reply = admin.call("GET", f"{topic_path(TopicName.parse(topic))}/{DELAYED_DELIVERY}", query={"applied": "true"})
    return read_delayed_delivery(reply.data) if reply.ok else None


def limits_now(connection: Connection, topic: str) -> tuple[int, DelayedDelivery | None]:
    """Returns (most bytes of a message, delayed delivery in force) of the topic, for a producer that starts now. The
    bytes are 0 if the topic has no limit of its own or it cannot be read, the delivery is None if it cannot be read.
    Waits for no fail-over. If the cluster does not answer a request, logs that, and asks no further: the delivery, or
    both, count as unread.
    """
    admin = HttpAdmin(connection, limit=0.0, timeout=_LOOKING)
    largest, delivery = 0, None
    try:
        largest = largest_message(admin, topic) or 0
        delivery = _delays(admin, topic)
    except ClusterError as problem:
        log.info("%s: not all limits of its messages are known: %s", topic, problem)
    finally:
        admin.close()
    return largest, delivery


def tenant_uuid(connection: Connection, tenant: str) -> str | None:
    """UUID of a Pulsar tenant, by which two clusters can be told apart; None: no apply gave it one. Asks once. Raises
    ClusterError if it cannot be read: the role may not, or the cluster does not answer.
    """
    doing = f"reading the UUID of tenant {tenant}"
    return _namespace_properties(connection, NamespaceName(tenant, CONTROL_NAMESPACE), doing).get(UUID_PROPERTY)


def applied_database(connection: Connection, namespace: NamespaceName, topology: str, variable: str) -> str | None:
    """Identity of the database to which the variable of a source led at the last apply of its topology; None if the
    namespace's ledger has no entry of the topology, or none for this variable, or there is no such namespace. Asks
    once. Raises ClusterError if the ledger cannot be read.
    """
    found = _namespace_properties(connection, namespace, f"reading the ledger of {topology}").get(
        f"{LEDGER_PREFIX}{topology}"
    )
    return None if found is None else ledger.decode(topology, namespace, found).databases.get(variable)


def _namespace_properties(connection: Connection, namespace: NamespaceName, doing: str) -> dict[str, str]:
    """Properties of a namespace; empty if it does not exist."""
    admin = HttpAdmin(connection, limit=0.0, timeout=_LOOKING)
    try:
        reply = admin.call("GET", namespace_path(namespace))
        return {} if reply.missing else must(reply, doing).get("properties") or {}
    finally:
        admin.close()


def lane_stats(answer: dict[str, Any], subscription: str) -> LaneStats | None:
    """LaneStats of a subscription from the broker's answer, without `server_time` and `took`; None if no partition in
    the answer has the subscription. The partitions are added up here, because the broker's own sums mix consumers up.
    The answer lacks partitions whose owner does not answer (kodoctl.pulsar.admin.omitted_partitions): `whole` is False.
    """
    parts = list((answer.get("partitions") or {}).values())
    count = max(len(parts), int((answer.get("metadata") or {}).get("partitions") or 0))
    each = [sub for part in parts if (sub := (part.get("subscriptions") or {}).get(subscription)) is not None]
    if not each:
        return None
    consumers = [consumer for sub in each for consumer in sub.get("consumers") or []]
    oldest = [int(sub.get("earliestMsgPublishTimeInBacklog") or 0) for sub in each if sub.get("msgBacklog")]
    return LaneStats(
        partitions=count,
        whole=len(parts) == count,
        readers={
            str(partition_number(name)): frozenset(consumer["consumerName"] for consumer in sub.get("consumers") or [])
            for name, part in (answer.get("partitions") or {}).items()
            if (sub := (part.get("subscriptions") or {}).get(subscription)) is not None
        },
        workers=frozenset(consumer["consumerName"] for consumer in consumers),
        blocked=frozenset(name for sub in each for name in _blocked_names(sub.get("consumers") or [])),
        backlog=_sum(each, "msgBacklog"),
        delayed=_sum(each, "msgDelayed"),
        unacknowledged=_unacknowledged_count(each),
        rate_in=sum(float(part.get("msgRateIn") or 0) for part in parts),
        dispatched=_sum(each, "msgOutCounter"),
        permits=sum(max(0, int(consumer.get("availablePermits") or 0)) for consumer in consumers),
        oldest=min((moment for moment in oldest if moment > 0), default=None),
        chunks=any(part.get("msgChunkPublished") for part in parts),
        properties={key: value for sub in each for key, value in (sub.get("subscriptionProperties") or {}).items()},
    )


def _blocked_names(consumers: list[dict[str, Any]]) -> set[str]:
    """Names of consumers that the broker blocks because too much is unacknowledged; of several with one name, if it
    blocks all.
    """
    free = {one["consumerName"] for one in consumers if not one.get("blockedConsumerOnUnackedMsgs")}
    return {one["consumerName"] for one in consumers} - free


def _unacknowledged_count(partitions: list[dict[str, Any]]) -> int | None:
    """Sum over the partitions; None if one has a negative count. Measured with Pulsar 4.2.4: after the death of a
    consumer that had acknowledged a part of a batch, the next one's count falls by more than it was given, down to
    -6,498, and stays wrong for as long as it is connected.
    """
    counts = [int(sub.get("unackedMessages") or 0) for sub in partitions]
    return None if any(count < 0 for count in counts) else sum(counts)


def _sum(partitions: list[dict[str, Any]], key: str) -> int:
    return sum(int(sub.get(key) or 0) for sub in partitions)
