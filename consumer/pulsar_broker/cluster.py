"""What a worker asks the admin API. `consume` rights are enough for all of it."""

from __future__ import annotations

from kodoctl.pulsar.admin import must, topic_path
from kodoctl.pulsar.admin_http import HttpAdmin
from kodoctl.pulsar.connection import Connection
from kodoctl.topology.names import TopicName


class AdminCluster:
    """consumer.broker.Cluster over kodoctl's admin port."""

    def __init__(self, connection: Connection) -> None:
        self._admin = HttpAdmin(connection)

    def close(self) -> None:
        """See Cluster."""
        self._admin.close()

    def partitions(self, topic: str) -> int | None:
        """See Cluster."""
        reply = self._admin.call("GET", f"{topic_path(TopicName.parse(topic))}/partitions")
        if reply.missing:
            return None
        return int(must(reply, f"reading {topic}")["partitions"]) or None

    def subscriptions(self, topic: str) -> frozenset[str]:
        """See Cluster."""
        reply = self._admin.call("GET", f"{topic_path(TopicName.parse(topic))}/subscriptions")
        return frozenset(must(reply, f"reading {topic}"))

    def workers(self, topic: str, subscription: str) -> int | None:
        """See Cluster. A worker's connections to several partitions have one name."""
        path = f"{topic_path(TopicName.parse(topic))}/partitioned-stats"
        reply = self._admin.call("GET", path, query={"perPartition": "false"})
        if not reply.ok:
            return None
        consumers = reply.data.get("subscriptions", {}).get(subscription, {}).get("consumers") or []
        return len({consumer.get("consumerName") for consumer in consumers})
