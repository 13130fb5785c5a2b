"""Ports: what a worker needs from a broker, and what a broker tells a worker. In our types only.

The real adapter is kodo_consumer.adapters.pulsar, the one for tests kodo_consumer.testing; both pass the same
contract tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from kodo_consumer.core.values.effects import Alarm
    from kodo_consumer.core.values.envelope import Delivery, Outgoing
    from kodoctl.topology.model.policies import DelayedDelivery

MOST_CONSUMERS: Final = 64
"""Broker consumers by which one lane is read at most: each is a thread."""
SubscriptionType = Literal["shared", "key_shared", "failover", "exclusive"]


class Confirmed(NamedTuple):
    """The broker has the message for good. `str()` of `position` equals that of the token of its deliveries. It may be the
    object of the client, formatted on demand only, because that is slow.
    """

    position: object


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """No receipt: the message may or may not be stored. Publish again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The broker will not take this message however often it is sent: too big, its schema, not authorised."""

    reason: str


TOO_BIG: Final = "too big"  # the reason of a message that is larger than its topic, or any topic, takes
Receipt = Confirmed | Unconfirmed | Rejected
OnReceipts = Callable[[Sequence[tuple[int, Receipt]]], None]
"""Called with receipts by their tickets, in bundles, on any thread, at most once for each."""


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """A topic to read. `queue`: messages the client may hold ready, over all partitions; `batch` and `batch_bytes`:
    most handed over at once. `schemas`: what names the topic's schema versions; empty: nobody asks for them.
    `shares`: another reader may have it alone for a while, and is waited for. `records`: whatever is acknowledged has
    been recorded, and the broker tells that of its consumers.

    `max_unacked`: messages of it that may be unacknowledged at a time; `limit`: how many the broker lets one of its
    consumers have, 0 when nobody knows. A lane that needs more is read by several of them.
    """

    topic: str
    subscription: str
    type: SubscriptionType
    consumer_name: str
    queue: int
    batch: int
    batch_bytes: int
    schemas: str = ""
    max_unacked: int = 0
    limit: int = 0
    shares: bool = False
    records: bool = False


class LaneSink(Protocol):
    """Receiver of the messages of a lane. Called from threads of the adapter; calls return soon and never raise."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Messages, each perhaps for the second time."""

    def room(self) -> int:
        """Messages that may be delivered now; 0: none until `LaneReader.resume`. A batch more does no harm."""

    def on_disconnect(self, partition: str | None = None) -> None:
        """Everything unacknowledged will be delivered again, perhaps to another worker: of one partition (its number as a text,
        see Delivery.partition), or of all.
        """

    def fail(self, problem: BaseException) -> None:
        """Nothing of the lane will come any more: the thread that reads it has ended."""


class LaneReader(Protocol):
    """One open lane."""

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Topics, or partitions of them, of which no messages can come now, each with the reason where that is known."""

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Partitions (their numbers as texts) whose connection is as it was so many seconds ago, as far as the client knows."""

    def seconds_since_empty(self) -> Mapping[str, float]:
        """Seconds since the client last held no message of a partition (its number as a text) that was not delivered;
        without the partitions of which it always held some.
        """

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Queues acknowledgements; they may be lost with the connection, then the messages come again."""

    def resume(self) -> None:
        """There is room again."""

    def add_consumers(self) -> None:
        """The broker holds the lane back, too much of it is unacknowledged: reads on where that is possible."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Leaves in `wait` seconds and is back `away` seconds later: everything unacknowledged comes again. Of one
        partition, or of all.
        """

    def leave(self, wait: float) -> None:
        """Leaves in `wait` seconds, after acknowledgements that are queued by then, until `join`: everything
        unacknowledged goes to others.
        """

    def join(self) -> None:
        """Is back: everything unacknowledged comes again."""

    def stop(self) -> None:
        """Delivers nothing more; acknowledging goes on."""

    def close(self) -> None:
        """Sends the queued acknowledgements and closes the reader: unacknowledged messages go to other workers."""


class Publisher(Protocol):
    """Sends messages; has a connection of its own, so that reading and sending cannot hold each other up."""

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Sends soon, never blocks. Each ticket gets its receipt. Messages of one topic and key keep their order."""

    def renew(self) -> None:
        """Sends hang: starts afresh. Receipts that are out may never come."""

    def close(self) -> None:
        """Sends the queued messages and closes the publisher. Receipts may be missing afterwards."""


@dataclass(frozen=True, slots=True)
class BorderStatus:
    """How messages cross between Python and the client library: by the native border, in bundles, or one by one.
    `detail`: what it is used with, or why it is not used.
    """

    native: bool
    detail: str

    def __str__(self) -> str:
        """One line for logs and commands."""
        return f"native border: {'on' if self.native else 'off'} ({self.detail})"


class Broker(Protocol):
    """A connection to a broker."""

    @property
    def border(self) -> BorderStatus:
        """How its messages cross into the client library."""

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """`on_broken`: called when a thread of the adapter has ended that should not; without it there is a log entry.
        `on_alarm`: called with notices to people, on any thread.
        """

    def open(self, request: LaneRequest, sink: LaneSink) -> LaneReader:
        """Reads a topic from the earliest unacknowledged message on. Raises ClusterError where the broker refuses; partitions that
        no broker serves yet are read as soon as one does.
        """

    def publisher(
        self,
        topics: Sequence[str],
        on_receipts: OnReceipts,
        largest: Mapping[str, int] | None = None,
        *,
        moves: bool = False,
    ) -> Publisher:
        """A publisher, ready for these topics; others are added when first sent to. Raises ClusterError.

        `largest`: bytes a message may have, by topic, where that is known: what is larger gets the receipt that it is
        never taken. `moves`: messages are moves of a worker: they stay in this cluster where a topic is replicated
        to others, and one that is too large as it is goes compressed.
        """

    def partitions(self, topic: str) -> Sequence[str]:
        """The topics that a topic consists of, in order: what is sent to one of them stays there. Raises ClusterError."""

    def close(self) -> None:
        """Leaves; lanes and publishers should have been closed before."""


@dataclass(frozen=True, slots=True)
class LaneStats:
    """Stats of one subscription on one topic, over all partitions that could be asked; `whole`: all were.
    Where one could not, sums and times are those of a part and say nothing of the topic; names and properties are the
    same on any partition.

    `workers`: names of connected consumers; `blocked`: those it sends nothing because too much is unacknowledged (of
    several that have one name: when all are). `backlog` counts entries (batches), those not due yet (`delayed`,
    messages) among them. `unacknowledged`: messages that consumers have; None: the broker has lost count. Rates are
    messages a second over the broker's last minute. `oldest`: ms since the epoch when the oldest unacknowledged
    message was published. `properties`: the subscription's own. `dispatched`: messages sent
    to consumers since a moment the broker chose; `permits`: how many more they have room for. `partitions` of the
    topic. `readers`: names of connected consumers, by partition (its number as a text) that could be asked.
    `server_time`: ms since the epoch when it said so by its own clock, cut to whole seconds, within the `took` seconds
    that asking it took; None: it does not say. `chunks`: a message came in chunks since its broker has the
    topic, as it knows within a minute of producers that are still connected then.
    """

    workers: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    backlog: int = 0
    delayed: int = 0
    unacknowledged: int | None = 0
    rate_in: float = 0.0
    oldest: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    dispatched: int = 0
    permits: int = 0
    partitions: int = 1
    whole: bool = True
    chunks: bool = False
    readers: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)
    server_time: int | None = field(default=None, compare=False)
    took: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class UnackedLimits:
    """Messages of a topic's partition that the broker lets be unacknowledged: of one consumer, and of a subscription as a
    whole. 0: any number.
    """

    consumer: int = 0
    subscription: int = 0


class Cluster(Protocol):
    """Requests of a worker to the admin API. Each call is one request or two."""

    def partitions(self, topic: str) -> int | None:
        """Partitions of a topic; None: there is none of this name."""

    def subscriptions(self, topic: str) -> frozenset[str]:
        """Subscriptions of a topic that exists."""

    def stats(self, topic: str, subscription: str) -> LaneStats | None:
        """Stats of a subscription of a topic; None: there is no such topic or subscription."""

    def active(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        """Names of the active consumers of a failover subscription, by partition (its number as a text) that is known; ""
        where there is none, soon or not at all; None: there is no such topic or subscription. Raises ClusterError.
        """

    def unacked_limits(self, topic: str) -> UnackedLimits | None:
        """The limits in force, wherever they are set; None: this role may not ask, or the broker does not say."""

    def delays(self, topic: str) -> DelayedDelivery | None:
        """The policy in force, wherever it is set; None: this role may not ask, or there is no such topic."""

    def largest(self, topic: str) -> int | None:
        """Bytes that a message of the topic may have, if the topic has a limit of its own, else 0: the broker's is known to
        clients. None: this role may not ask, or there is no such topic.
        """

    def schema(self, topic: str, version: int) -> Mapping[str, Any] | None:
        """The Avro definition of a schema version; None: there is none. Raises ClusterError."""

    def latest_schema(self, topic: str) -> int:
        """Number of the newest schema version of a topic, -1 where it has none. Raises ClusterError."""

    def close(self) -> None:
        """Leaves."""
