# adapter: reads the broker and sends to it
"""Access of a recall to its cluster: it reads, holds subscriptions, and sends. All readers, consumers and producers of
the package are opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kodoctl.errors import RefusedError, error
from kodoctl.pulsar.admin.message_limit import largest_message
from kodoctl.pulsar.binary.bundled_producer import dedup_producer
from kodoctl.pulsar.binary.message_reader import (
    PartitionFacts,
    Place,
    ReadMessage,
    Unread,
    partitions_of,
    read_all,
    read_facts,
    read_stored,
)
from kodoctl.pulsar.binary.recall_transport import DeadLetterConsumer, token_of
from kodoctl.pulsar.control.control_namespace import cluster_identity
from kodoctl.recall.message.stored_message import DeadLetter, Position, tenant_of
from kodoctl.text.formatting import partitions_text
from kodoctl.topology.names import TopicName, whole_topic
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    import threading

    from kodoctl.pulsar.binary.recall_transport import DedupProducer
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.pulsar.session import Session


class LetterSource(Protocol):
    """Source of a plan's messages in one partition (dead letters, or messages of a waiting lane) for
    DeadLetterPartitions: a DeadLetterConsumer, which holds the subscription, or ReadOnlyLetters while another process
    holds it.
    """

    def letters(self, until: Place, only: Collection[Position]) -> Iterator[ReadMessage]:
        """Yields unacknowledged messages in order, up to and with the entry `until`, which must be unacknowledged;
        messages that are not in `only` (at least one) may come as well, and ReadOnlyLetters yields acknowledged ones of
        a batch. Later calls must name later positions. Ends early if the command was stopped. Raises ClusterError.
        """

    def acknowledge(self, token: Any) -> None:
        """Acknowledges a message of `letters` without waiting for the broker, unless the source only reads. `token`:
        its `ReadMessage.token`. Raises ClusterError.
        """

    def close(self) -> None:
        """Sends gathered acknowledgements and closes the source. If the source holds the subscription, others can read
        it again.
        """


class ReadOnlyLetters:
    """Reads the unacknowledged letters (dead-letter messages) of a subscription that another process holds. Of a batch
    it reads all letters, even acknowledged ones. Acknowledges nothing.
    """

    def __init__(self, cluster: RecallCluster, part: str, subscription: str) -> None:
        self._cluster, self._part, self._subscription = cluster, part, subscription

    def letters(self, until: Place, only: Collection[Position]) -> Iterator[ReadMessage]:
        """Yields the letters at the positions `only` (at least one), in order, up to and with the entry `until`, which
        must have a message. Letters of entries that are acknowledged as a whole are left out. Raises ClusterError.
        """
        cursor = self._cluster.facts(self._part).cursors.get(self._subscription)
        first = min(only)
        after: Place = (first.ledger, first.entry - 1)
        if cursor is not None:
            after = max(after, cursor.mark)
        for stored in self._cluster.read(self._part, until, after, only):
            if cursor is None or not cursor.has((stored.ledger, stored.entry)):
                yield stored

    def acknowledge(self, token: Any) -> None:
        """Does nothing: the process that holds the subscription acknowledges."""

    def close(self) -> None:
        """Does nothing: each read closes its own reader."""


class RecallCluster:
    """Access to the cluster of a recall, over one session.

    Args:
        session: the caller closes it.
        declared: maximum size of a message in bytes by full name of the topic, for topics whose file has one.
        compression: algorithm by full name of the topic, for topics that compress.
    """

    def __init__(
        self,
        session: Session,
        declared: Mapping[str, int] | None = None,
        compression: Mapping[str, str] | None = None,
    ) -> None:
        self._session, self._declared, self._compression = session, declared or {}, compression or {}
        self.unread = Unread(session.admin, session.client)
        self._largest: dict[str, int] = {}  # by topic; 0: no limit that is known

    @property
    def waits(self) -> WaitMonitor:
        """Monitor for long waits."""
        return self._session.waits

    def identity(self, tenant: str) -> str | None:
        """Reads the UUID that the first apply stored in a Pulsar tenant; None: there is none, or it cannot be read."""
        return cluster_identity(self._session.admin, tenant)

    def check_identity(self, planned: str | None, tenant: str) -> None:
        """Raises RefusedError for a plan of another cluster, if both identities are known. `planned`: identity in the
        plan, None: not known; `tenant`: Pulsar tenant whose identity is read.
        """
        found = self.identity(tenant)
        if planned is not None and found is not None and planned != found:
            raise RefusedError(error("K534", "plan for another cluster", f"planned on {planned}, this is {found}"))

    def facts(self, part: str) -> PartitionFacts:
        """Reads the present state of a partition and its cursors. Raises UsageError (no such topic), ClusterError."""
        return read_facts(self._session.admin, part)

    def read_all(
        self, facts: PartitionFacts, after: Place | None, unread: Unread | None = None
    ) -> Iterator[ReadMessage]:
        """Yields the messages of a partition after the entry `after` (None: all), up to the last entry of `facts`, as
        `message_reader.read_all` does. `unread`: collects entries for which no message came; None: such an entry raises
        ClusterError, unless it is proved that no message can come.
        """
        sure = Unread(self._session.admin, self._session.client, sure=True)
        return read_all(self._session.client, facts, unread or sure, after=after)

    def read(self, part: str, until: Place, after: Place | None, only: Container[Position]) -> Iterator[ReadMessage]:
        """Yields the messages of a partition at the positions `only`, in order, after the entry `after` (None: from the
        first one) up to and with the entry `until`, which must have a message. Raises ClusterError.
        """
        return read_stored(self._session.client, part, until, after=after, only=only)

    def hold(self, part: str, subscription: str, stop: threading.Event | None = None) -> DeadLetterConsumer:
        """Makes the process the holder of a partition: opens the exclusive consumer of `subscription` on it. A missing
        subscription is created, from the earliest message. Once `stop` is set, the consumer does not wait for letters.
        Raises LockedError if another recall, or a consumer, keeps the subscription for 15 s; ClusterError.
        """
        return DeadLetterConsumer(self._session.client, part, subscription, stop)

    def look(self, part: str, subscription: str) -> ReadOnlyLetters:
        """Returns a source for letters of a subscription that another process holds; the source acknowledges nothing.
        Sends no request.
        """
        return ReadOnlyLetters(self, part, subscription)

    def token(self, position: Position) -> Any:
        """Returns the token with which the holder of a partition acknowledges the message at `position`. The message
        must be alone in its entry.
        """
        return token_of(*position[:3])

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic, 0 for a plain one. Raises UsageError (no such topic), ClusterError."""
        parts = partitions_of(self._session.admin, TopicName.parse(topic))
        return 0 if parts == [topic] else len(parts)

    def deduplicates(self, topic: str) -> bool:
        """True if the broker drops repeated messages of a topic; only its first partition is looked at. Raises
        UsageError (no such topic), ClusterError.
        """
        return self.facts(partitions_of(self._session.admin, TopicName.parse(topic))[0]).deduplicates

    def lane(self, part: str, name: str) -> DedupProducer:
        """Opens a producer with the name `name` on a partition, whose broker stores each sequence number once. The
        producer refuses messages above the topic's limit or the declared one, whichever is smaller; a limit of the
        topic that cannot be read is ignored. Raises LockedError if another process keeps the name for 15 s;
        ClusterError.
        """
        topic = whole_topic(part)
        if topic not in self._largest:
            limits = (self._declared.get(topic), largest_message(self._session.admin, topic))
            self._largest[topic] = min(filter(None, limits), default=0)
        declared = self._compression.get(topic, "")
        return dedup_producer(self._session.client, part, name, self._largest[topic], declared)


def check_partitions(cluster: RecallCluster, topics: Mapping[str, int], *, planned: bool = False) -> None:
    """Compares the numbers of partitions of `topics` (0: a plain topic) with those on the cluster. Raises RefusedError
    (K822) that names every topic with another number: messages of partitions that nobody names would be passed over,
    and a planned partition would no longer be the partition of its key. `planned`: the numbers are those of a plan,
    else those of the file. Raises UsageError if there is no such topic, ClusterError.
    """
    found = {topic: now for topic, known in topics.items() if (now := cluster.partitions(topic)) != known}
    since = "when planned" if planned else "in the file"
    lines = [f"{topic} has {partitions_text(now)}, {topics[topic]:,} {since}" for topic, now in found.items()]
    if lines and planned:
        detail = "\n".join([*lines, "plan again; nothing more was sent"])
        raise RefusedError(error("K822", "a lane has other partitions than planned", detail))
    if lines:
        detail = "\n".join([*lines, "name the file that was applied last, or write the topic's number into this one"])
        raise RefusedError(error("K822", "a topic has other partitions than the file", detail))


def letter_of(stored: ReadMessage, topic: str, fair_by: str | None) -> DeadLetter:
    """Converts a stored message. `topic`: its topic, without partition; `fair_by`: name of the property with the
    message's tenant, or `key` for the message key; None: no tenant, which is NOBODY in the result. A publish time
    beyond LATEST becomes LATEST.
    """
    return DeadLetter(
        topic,
        Position(stored.partition, stored.ledger, stored.entry, stored.batch),
        stored.payload,
        stored.properties,
        stored.key,
        stored.ordering_key,
        stored.event_time,
        min(stored.publish_time, LATEST),
        tenant_of(fair_by, stored.properties, stored.key),
        stored.broken,
    )
