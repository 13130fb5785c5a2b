# adapter: reads the broker and sends to it
"""The cluster as a recall needs it: read, hold, send. The only module of the package that reaches the binary port."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kodoctl.errors import KodoctlError
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
from kodoctl.pulsar.control.control_namespace import read_control_namespace
from kodoctl.recall.message.stored_message import DeadLetter, Position, tenant_of
from kodoctl.topology.names import TopicName, whole_topic
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    import threading

    from kodoctl.pulsar.binary.recall_transport import DedupProducer
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.pulsar.session import Session


class LetterSource(Protocol):
    """Source of dead letters for a RecallSender: a DeadLetterConsumer, or ReadOnlyLetters beside it."""

    def letters(self, until: Place, only: Collection[Position]) -> Iterator[ReadMessage]:
        """Messages that the subscription still has, in order, up to the entry `until`, which it must have; others than
        `only` these may come as well. Further calls name positions behind those of the one before. Raises ClusterError.
        """

    def acknowledge(self, token: Any) -> None:
        """Acknowledges a message of `letters`, unless the source only reads. Raises ClusterError."""

    def close(self) -> None:
        """Sends gathered acknowledgements. Frees the subscription if this source holds it."""


class ReadOnlyLetters:
    """Reads the letters of entries that a subscription still has, where another process holds it: of a batch all of
    them, even those that were acknowledged. Acknowledges nothing.
    """

    def __init__(self, cluster: RecallCluster, part: str, subscription: str) -> None:
        self._cluster, self._part, self._subscription = cluster, part, subscription

    def letters(self, until: Place, only: Collection[Position]) -> Iterator[ReadMessage]:
        """`only` these, in order, up to the entry `until`."""
        cursor = self._cluster.facts(self._part).cursors.get(self._subscription)
        first = min(only)
        after: Place = (first.ledger, first.entry - 1)
        if cursor is not None:
            after = max(after, cursor.mark)
        for stored in self._cluster.read(self._part, until, after, only):
            if cursor is None or not cursor.has((stored.ledger, stored.entry)):
                yield stored

    def acknowledge(self, token: Any) -> None:
        """Nothing: that is the holder's."""

    def close(self) -> None:
        """Does nothing: each read closes its own reader."""


class RecallCluster:
    """Cluster of a recall, over one session. `declared`: maximum message size in bytes by topic, if the file has one."""

    def __init__(self, session: Session, declared: Mapping[str, int] | None = None) -> None:
        self._session, self._declared = session, declared or {}
        self.unread = Unread(session.admin, session.client)
        self._largest: dict[str, int] = {}  # by topic; 0: no limit that is known

    @property
    def waits(self) -> WaitMonitor:
        """Monitor for long waits."""
        return self._session.waits

    def identity(self, tenant: str) -> str | None:
        """The UUID that kodoctl's first apply left in a Pulsar tenant; None: none, or not for this role to see."""
        try:
            return read_control_namespace(self._session.admin, tenant).uuid
        except KodoctlError:
            return None

    def facts(self, part: str) -> PartitionFacts:
        """State of a partition and its cursors on the broker now. Raises ClusterError."""
        return read_facts(self._session.admin, part)

    def read_all(
        self, facts: PartitionFacts, after: Place | None, unread: Unread | None = None
    ) -> Iterator[ReadMessage]:
        """See read_all. Without `unread`: entries that are not proved to have no message raise ClusterError."""
        sure = Unread(self._session.admin, self._session.client, sure=True)
        return read_all(self._session.client, facts, unread or sure, after=after)

    def read(self, part: str, until: Place, after: Place | None, only: Container[Position]) -> Iterator[ReadMessage]:
        """Messages of a partition at the positions `only`, in order, behind the entry `after` (None: from the first one)
        up to the entry `until`. Raises ClusterError.
        """
        return read_stored(self._session.client, part, until, after=after, only=only)

    def hold(self, part: str, subscription: str, stop: threading.Event | None = None) -> DeadLetterConsumer:
        """Holds the subscription exclusively; no letter is waited for once `stop` is set. Raises LockedError while another
        recall, or a consumer, holds it.
        """
        return DeadLetterConsumer(self._session.client, part, subscription, stop)

    def look(self, part: str, subscription: str) -> ReadOnlyLetters:
        """Reads beside the process that holds the subscription, and acknowledges nothing."""
        return ReadOnlyLetters(self, part, subscription)

    def token(self, position: Position) -> Any:
        """Acknowledges a message that is alone in its entry, on who holds its partition."""
        return token_of(*position[:3])

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic."""
        return len(partitions_of(self._session.admin, TopicName.parse(topic)))

    def lane(self, part: str, name: str) -> DedupProducer:
        """A producer with the name `name` on a partition. If this role may not read the topic's limit, the
        declared limit applies alone. Raises LockedError while another process has the name.
        """
        topic = whole_topic(part)
        if topic not in self._largest:
            limits = (self._declared.get(topic), largest_message(self._session.admin, topic))
            self._largest[topic] = min(filter(None, limits), default=0)
        return dedup_producer(self._session.client, part, name, self._largest[topic])


def letter_of(stored: ReadMessage, topic: str, fair_by: str | None) -> DeadLetter:
    """A stored message as conditions see it; `topic` without partition. A publish time beyond LATEST is that, as in
    tables.
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
