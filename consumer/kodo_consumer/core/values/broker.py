"""Ports: a worker's requests to a broker, and a broker's calls to a worker, in our types only.

The real adapter is kodo_consumer.adapters.pulsar, the one for tests kodo_consumer.testing; both pass the same contract
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    """Receipt: the broker has stored the message. `str(position)` equals `str(token)` of each delivery of the message.
    `position` may be an object of the client that makes its text only on demand, because that is slow.
    """

    position: object


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """No receipt: the message may or may not be stored. Publish it again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The broker will not take this message however often it is sent: too big, its schema, not authorised."""

    reason: str


TOO_BIG: Final = "too big"  # the reason of a message that is larger than its topic, or any topic, takes
Receipt = Confirmed | Unconfirmed | Rejected
OnSent = Callable[[Receipt | BaseException], None]
"""Takes the outcome of a send: the receipt, or the exception if the message was not published."""
OnReceipts = Callable[[Sequence[tuple[int, Receipt]]], None]
"""Takes bundles of (ticket, receipt). Called on any thread, at most once for each ticket."""


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """A topic to read. `queue`: messages the client may have ready, over all partitions; `batch` and `batch_bytes`:
    most handed over at once. `schemas`: prefix of schema versions (`L1`) that deliveries name; empty: they name none.
    `shares`: an exclusive reader may have the topic for a while; the lane is read once it leaves. `records`: messages
    are acknowledged only after their audit records are stored; the metadata of its consumers on the broker says so.

    `confirms`: acknowledgements have tickets, and their results come to `LaneSink.on_acknowledged`.

    `max_unacked`: most messages of the lane that the worker has unacknowledged at a time; `limit`: number that the
    broker allows one consumer, 0: unknown. A shared lane that may need more is read by several consumers.
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
    confirms: bool = False


class LaneSink(Protocol):
    """Receiver of the messages of a lane. Called from threads of the adapter; calls return soon and never raise."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Takes messages of the lane, in the order of the broker. A message may come again after it was delivered
        before.
        """

    def room(self) -> int:
        """Number of messages that may be delivered now. After 0 none may be delivered until another call returns more:
        a reader asks again after `LaneReader.resume`, or before. A batch that is larger than the number does no harm.
        """

    def on_disconnect(self, partition: str | None = None) -> None:
        """Reports that the broker will deliver everything unacknowledged again, perhaps to another worker: of one
        partition (its number as a text, see Delivery.partition), or of all (None).
        """

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Reports results of acknowledgements by their tickets, at most once for each ticket. `confirmed`: the broker
        has taken them. `unknown`: it may or may not have taken them, because the connection broke or no answer came.
        """

    def fail(self, problem: BaseException) -> None:
        """Reports that a thread that serves the lane has ended with `problem`: messages may come no more."""


class ClaimSink(LaneSink, Protocol):
    """Sink of a lane whose messages a worker may have for a limited time only, as from an inbox. The sinks of workers
    implement it.
    """

    def start_until(self, moment: float) -> None:
        """Lets messages of the lane start only before a moment, in seconds of the monotonic clock: others may have them
        then. Without a call they may start at any time.
        """

    def withdraw(self, tokens: Collection[object]) -> Sequence[object]:
        """Drops the messages with these tokens whose handlers have not started, because other workers are to handle
        them. Returns the tokens of the messages that it keeps: they have started, are being moved or are parked, and
        are not acknowledged yet.
        """


class LaneReader(Protocol):
    """Reader of one open lane. Only `close` waits; all other methods return at once."""

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Texts for people, one for each topic, or partition of it, of which no messages can come now: its name,
        followed by the reason if it is known. Partitions that another reader holds alone are among them. Empty after
        `leave` until `join`.
        """

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Partitions (their numbers as texts) connected for `seconds` without a break, as far as the client can see."""

    def seconds_since_empty(self) -> Mapping[str, float]:
        """Seconds, by partition (its number as a text), since the client last had no undelivered message of it; a
        partition of which it always had some may be missing.
        """

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Queues acknowledgements. If they are lost with the connection, the broker redelivers their messages.
        `tickets`: one for each token if the request `confirms`, else none.
        """

    def resume(self) -> None:
        """Resumes deliveries after `LaneSink.room` was 0."""

    def add_consumers(self) -> None:
        """Begins to open more consumers for the lane, if the reader can. Called when the broker stopped sending to the
        present ones, because too many of their messages are unacknowledged.
        """

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Plans to disconnect in `wait` seconds and to connect `away` seconds later. The broker then redelivers every
        unacknowledged message. `partition`: number of the one that reconnects, as a text; None: all do.
        """

    def leave(self, wait: float) -> None:
        """Plans to disconnect in `wait` seconds, after sending the acknowledgements that are queued by then, and to
        stay away until `join`. The broker delivers unacknowledged messages to other readers.
        """

    def join(self) -> None:
        """Lets the reader connect again after `leave`; returns at once. The broker then redelivers the messages that
        are still unacknowledged, to any reader of the subscription.
        """

    def stop(self) -> None:
        """Ends deliveries, and returns at once; acknowledgements are still sent until `close`."""

    def close(self) -> None:
        """Sends the queued acknowledgements and closes the reader, and waits for both, but some seconds at most.
        Unacknowledged messages go to other workers.
        """


class Publisher(Protocol):
    """Sends messages on a connection of its own, so that reading and sending cannot block each other."""

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Queues messages with their tickets to be sent soon; never blocks. Each ticket gets a receipt by
        `on_receipts`, unless `renew` or `close` comes before. Messages of one topic and key keep their order, unless
        one has to be sent again.
        """

    def renew(self) -> None:
        """Replaces its connection, because sends hang; returns at once. Earlier sends may never get a receipt: the
        caller publishes those messages again, with new tickets, or gives them up. Raises ClusterError, without effect,
        if no connection can be made.
        """

    def close(self) -> None:
        """Sends the queued messages, waits some seconds at most for receipts, and closes the publisher. Receipts may be
        missing afterwards.
        """


@dataclass(frozen=True, slots=True)
class BorderStatus:
    """Way of messages between Python and the client library: in bundles through the native border (`native`), or one by
    one. `detail`: versions that it uses, or the reason why it is off.
    """

    native: bool
    detail: str

    def __str__(self) -> str:
        """One line for logs and commands, such as `native border: off (switched off)`."""
        return f"native border: {'on' if self.native else 'off'} ({self.detail})"


class Broker(Protocol):
    """A connection to a broker."""

    @property
    def border(self) -> BorderStatus:
        """Status of the native border of this connection."""

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """Sets callbacks, called on any thread. `on_broken`: a thread of the adapter has ended that should not; without
        it there is a log entry. `on_alarm`: notices to people.
        """

    def open(self, request: LaneRequest, sink: LaneSink) -> LaneReader:
        """Reads a topic from the earliest unacknowledged message on. Waits some seconds at most for partitions that no
        broker serves, which are read as soon as one does. Raises ClusterError where the broker refuses, if nobody tells
        the topic's partitions, or if acknowledgements are to be confirmed and cannot be.
        """

    def publisher(
        self,
        topics: Sequence[str],
        on_receipts: OnReceipts,
        largest: Mapping[str, int] | None = None,
        *,
        moves: bool = False,
    ) -> Publisher:
        """Opens a publisher, ready for these topics; others are added when first sent to. Blocks until they are open,
        but for those that take no messages now because their backlog quota is used up. Raises ClusterError.

        `largest`: bytes a message may have, by topic, if there is a limit: a larger message gets the receipt Rejected.
        `moves`: messages are moves of a worker: they stay in this cluster where a topic is replicated to others, and
        one that is too large as it is goes compressed.
        """

    def partitions(self, topic: str) -> Sequence[str]:
        """Full names of a topic's partitions, in order; of a topic without partitions, the topic's name alone. A
        message sent to one of these names stays in that partition. Raises ClusterError.
        """

    def close(self) -> None:
        """Closes the connection. Lanes and publishers should have been closed before."""


@dataclass(frozen=True, slots=True)
class LaneStats:
    """Stats of one subscription on one topic, over all partitions whose brokers answered; `whole`: all did. Otherwise
    sums and times are those of a part and say nothing of the topic; names and properties are the same on any partition.

    `workers`: names of connected consumers; `blocked`: names of those that get nothing because too much is
    unacknowledged (of several with one name: when all are). `backlog` counts entries (batches), those not due yet
    (`delayed`, messages) among them. `unacknowledged`: messages that consumers have; None: the broker has lost count.
    `rate_in`: messages a second that came to the topic in the broker's last minute. `oldest`: ms since the epoch when
    the oldest message of the backlog was published; None: there is none, or it is not known. `properties`: the
    subscription's own. `dispatched`: messages sent to consumers since a moment the broker chose; `permits`: how many
    more they have room for. `partitions`: number of the topic's. `readers`: names of connected consumers, by partition
    (its number as a text). `server_time`: ms since the epoch by the broker's clock at its answer, in whole seconds;
    None: it does not say. `took`: seconds of the request. `chunks`: a message came in chunks since its broker has the
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
    """Unacknowledged messages that the broker allows on one partition of a topic: for one consumer, and for a
    subscription as a whole. 0: any number.
    """

    consumer: int = 0
    subscription: int = 0


class Cluster(Protocol):
    """Requests of a worker to the admin API. Each call but `close` blocks for one request or two, up to a minute while
    brokers fail over, and may raise ClusterError.
    """

    def partitions(self, topic: str) -> int | None:
        """Number of partitions of a topic, 0 of a plain one; None: there is no topic of this name."""

    def subscriptions(self, topic: str) -> frozenset[str]:
        """Names of all subscriptions of a topic; ClusterError if the topic does not exist."""

    def stats(self, topic: str, subscription: str) -> LaneStats | None:
        """Stats of a subscription of a topic; None: there is no such topic or subscription."""

    def active(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        """Names of the active consumers of a failover subscription by partition (its number as a text), "" where there
        is none now; partitions whose broker does not answer are missing. None: no partition that answered has the
        subscription, or none answered.
        """

    def unacked_limits(self, topic: str) -> UnackedLimits | None:
        """The limits in force, wherever they are set; None: this role may not read them, the broker does not say, or
        there is no such topic.
        """

    def delays(self, topic: str) -> DelayedDelivery | None:
        """Delayed delivery in force, wherever it is set; None: this role may not read it, or there is no such topic."""

    def largest(self, topic: str) -> int | None:
        """Bytes that a message may have by the topic's own limit; 0: it has none, and clients learn the broker's from
        the broker. None: this role may not read it, there is no such topic, or the broker fails.
        """

    def schema(self, topic: str, version: int) -> Mapping[str, Any] | None:
        """The Avro definition of a schema version; None: there is no such version, or it is not Avro. Raises
        ClusterError.
        """

    def latest_schema(self, topic: str) -> int:
        """Number of the newest schema version of a topic, -1 where it has none. Raises ClusterError."""

    def close(self) -> None:
        """Closes its connections."""
