"""Broker in memory: topics, subscriptions, delayed delivery, redelivery, receipts. It delivers only when `step` is
called.

It passes the same contract tests as the real adapter. Tests set faults by hand: refused and lost sends, held receipts,
broken connections, early delivery. The cost of a step depends on its deliveries, not on the size of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappush
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.broker import (
    TOO_BIG,
    BorderStatus,
    Confirmed,
    LaneRequest,
    LaneSink,
    OnReceipts,
    Receipt,
    Rejected,
    Unconfirmed,
)
from kodo_consumer.core.values.envelope import wire_size
from kodo_consumer.testing.memory_topics import MemoryLane, MemorySubscription, StoredMessage, Topic, hand_over
from kodoctl.errors import ClusterError, error
from kodoctl.protocol.compression import fits_compressed

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.effects import Alarm
    from kodo_consumer.core.values.envelope import Outgoing
    from kodo_consumer.core.values.policy import Policy


_MAX_MESSAGE_SIZE: Final = 5 << 20  # bytes: `maxMessageSize` of a broker whose configuration does not change it


class MemoryBroker:
    """One broker for any number of workers. Attributes that a test may set: `ignore_delays`: delayed messages are
    delivered at once, as by a broker without delayed delivery; `hold_receipts`: `step` delivers no receipts, and
    confirms no acknowledgements. Parameter `prefetch`: lanes have receiver queues (see `MemoryLane`).
    """

    def __init__(self, clock: Clock, *, prefetch: bool = False) -> None:
        self._prefetch = prefetch
        self.ignore_delays = False
        self.hold_receipts = False
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._faults: dict[str, list[Receipt]] = {}
        self._compressing: set[str] = set()  # topics whose producers may compress a message that is too large
        self._receipts: list[tuple[MemoryPublisher, int, Receipt]] = []

    @property
    def border(self) -> BorderStatus:
        """Status of the native border: not used."""
        return BorderStatus(native=False, detail="the broker is in memory")

    # ---- what a test sets up and looks at

    def create(self, topic: str, subscriptions: Iterable[str] = (), *, partitions: int = 1) -> None:
        """Creates a topic with subscriptions, as far as they do not exist; an existing topic keeps its number of
        partitions. A new subscription begins with the first message of the topic. `partitions` 1: no partitions.
        """
        found = self._topics.setdefault(topic, Topic(topic, len(self._topics) + 1, partitions))
        for name in subscriptions:
            found.subscriptions.setdefault(name, MemorySubscription())

    def create_for(self, policy: Policy) -> None:
        """Creates every topic and subscription that a worker with this policy needs."""
        for lane in policy.every_lane:
            self.create(lane.topic, [policy.subscription], partitions=lane.partitions)
        for topic in policy.written_topics:
            self.create(topic)
        targets = policy.own_targets.values()
        self._compressing.update(one.topic for one in targets if one.compression)

    def send(self, message: Outgoing) -> StoredMessage:
        """Stores a message as a producer would, but of any size: it does not check `is_too_large`. Raises ClusterError
        (K710) for an unknown topic, TypeError for values that no client can send.
        """
        _check(message)
        return self._topic(message.topic).store(message, self._clock.wall())

    def send_batch(self, messages: Sequence[Outgoing]) -> list[StoredMessage]:
        """Stores messages of one topic (one at least) as one batch: a broken connection redelivers all of it unless all
        its messages are acknowledged. Raises as `send` does, and stores nothing then.
        """
        for message in messages:
            _check(message)
        topic = self._topic(messages[0].topic)
        first = len(topic.messages)
        return [topic.store(message, self._clock.wall(), first) for message in messages]

    def is_too_large(self, message: Outgoing, *, moves: bool = False) -> bool:
        """True if a broker would not take the message because of its size, with its properties. It is measured
        compressed for `moves` (messages are moves of a worker), and for topics of `create_for` that compress.
        """
        size = len(message.payload or b"")
        if size <= _MAX_MESSAGE_SIZE // 2 or (size := wire_size(message)) <= _MAX_MESSAGE_SIZE:  # the sum is slow
            return False
        compresses = moves or message.topic in self._compressing
        return not (compresses and fits_compressed(message.payload, size, _MAX_MESSAGE_SIZE))

    def messages(self, topic: str) -> list[StoredMessage]:
        """All messages ever stored in a topic, in order. Raises ClusterError (K710) for an unknown topic."""
        return list(self._topic(topic).messages)

    def count(self, topic: str) -> int:
        """Number of messages ever stored in a topic. Raises ClusterError (K710) for an unknown topic."""
        return len(self._topic(topic).messages)

    def backlog(self, topic: str, subscription: str) -> list[StoredMessage]:
        """Messages that a subscription has not acknowledged, in order, those that a worker has and delayed ones among
        them. Raises ClusterError (K710) for an unknown topic, KeyError for an unknown subscription.
        """
        acknowledged = self._topic(topic).subscriptions[subscription].acknowledged
        return [stored for stored in self._topic(topic).messages if stored.number not in acknowledged]

    def left(self, topic: str, subscription: str) -> int:
        """Number of messages that a subscription has not acknowledged: the length of its `backlog`."""
        found = self._topic(topic)
        return len(found.messages) - len(found.subscriptions[subscription].acknowledged)

    def fail_sends(self, topic: str, *receipts: Receipt) -> None:
        """Sets the receipts of the next messages that publishers send to a topic, one for each, after those that were
        set before; later sends succeed. A message with the receipt Unconfirmed is stored all the same, one with
        Rejected is not. `send` is not concerned.
        """
        self._faults.setdefault(topic, []).extend(receipts)

    def disconnect(self, topic: str) -> None:
        """Breaks the connections of all lanes on a topic. Their unacknowledged messages are delivered again, to any
        lane of the same subscription, with the acknowledged messages of batches that are not acknowledged as a whole.
        """
        found = self._topic(topic)
        for subscription in found.subscriptions.values():
            batches = {
                batch for number in subscription.unacknowledged if (batch := found.messages[number].batch) is not None
            }
            subscription.take_back(list(subscription.unacknowledged))
            for batch in batches:
                self._again(found, subscription, batch)
            for lane in subscription.lanes:
                lane.disconnect()

    def lose_connections(self) -> None:
        """Closes all lanes, as if every process had died: unacknowledged messages go to the next consumer (without the
        acknowledged ones of their batch, unlike `disconnect`), and outstanding receipts never come.
        """
        self._receipts = []
        for topic in self._topics.values():
            for subscription in topic.subscriptions.values():
                for lane in list(subscription.lanes):
                    lane.close()

    @staticmethod
    def _again(topic: Topic, subscription: MemorySubscription, batch: int) -> None:
        for stored in topic.messages[batch:]:
            if stored.batch != batch:
                return
            if stored.number in subscription.acknowledged:
                subscription.again.add(stored.number)
                subscription.changed = True
                heappush(subscription.ready, stored.number)

    # ---- the port

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """Does nothing: this broker has no threads that could fail, and no alarms."""

    def open(self, request: LaneRequest, sink: LaneSink) -> MemoryLane:
        """Opens a lane that reads a topic from the earliest unacknowledged message, by a subscription that is created
        if it does not exist; messages come with `step`. Raises ClusterError for an unknown topic (K710), or a second
        reader of an exclusive subscription (K712).
        """
        topic = self._topic(request.topic)
        subscription = topic.subscriptions.setdefault(request.subscription, MemorySubscription())
        if request.type == "exclusive" and subscription.lanes:
            raise ClusterError(error("K712", "subscription is taken", f"{request.subscription} on {request.topic}"))
        lane = MemoryLane(subscription, request, sink, topic.partitions, prefetch=self._prefetch)
        subscription.lanes.append(lane)
        subscription.changed = True
        return lane

    def publisher(
        self,
        topics: Sequence[str],
        on_receipts: OnReceipts,
        largest: Mapping[str, int] | None = None,
        *,
        moves: bool = False,
    ) -> MemoryPublisher:
        """New publisher to these topics. Raises ClusterError (K710) if one does not exist. The other parameters are
        those of `MemoryPublisher`.
        """
        for topic in topics:
            self._topic(topic)
        return MemoryPublisher(self, on_receipts, largest or {}, moves=moves)

    def partitions(self, topic: str) -> Sequence[str]:
        """The topic's own name alone, because producers and lanes use topics as a whole. Raises ClusterError (K710) for
        an unknown topic.
        """
        return [self._topic(topic).name]

    def close(self) -> None:
        """Does nothing: topics and messages stay for the next worker of the same test."""

    # ---- time and progress

    def step(self) -> bool:
        """Delivers receipts, confirmations and messages once; of messages each lane gets at most as many as it has room
        for now. Returns False if there was nothing to deliver, or no lane had room.
        """
        receipts = [] if self.hold_receipts else self._receipts
        if receipts:
            self._receipts = []
        for publisher, ticket, receipt in receipts:
            if not publisher.closed:
                publisher.on_receipts([(ticket, receipt)])
        unreported = [] if self.hold_receipts else self._unreported_lanes()
        confirmed = [lane.report(confirmed=True) for lane in unreported]
        now = self._now
        delivered = [self._deliver(topic, now) for topic in self._topics.values()]
        return bool(receipts) or any(confirmed) or any(delivered)

    def _unreported_lanes(self) -> list[MemoryLane]:
        subscriptions = (one for topic in self._topics.values() for one in topic.subscriptions.values())
        return [lane for subscription in subscriptions for lane in subscription.lanes if lane.unreported]

    def deliver(self, topic: str) -> bool:
        """Delivers messages of one topic once, to each lane at most as many as it has room for now. Returns False if
        none were due, or no lane had room. Raises KeyError for an unknown topic.
        """
        return self._deliver(self._topics[topic], self._now)

    @staticmethod
    def _deliver(topic: Topic, now: float) -> bool:
        busy = False
        for subscription in topic.subscriptions.values():
            if not subscription.is_idle(topic.messages, now):
                subscription.changed = False
                if hand_over(topic, subscription, now):
                    subscription.changed = busy = True
        return busy

    @property
    def next_due(self) -> int | None:
        """Time (ms since the epoch) at which the first delayed message is due; None if no message is delayed."""
        now = self._now
        return min(
            (due for topic in self._topics.values() if (due := self._next_due(topic, now)) is not None), default=None
        )

    def next_due_of(self, topic: str) -> int | None:
        """Time (ms since the epoch) at which the first delayed message of a topic is due; None if no message of the
        topic is delayed. Raises KeyError for an unknown topic.
        """
        return self._next_due(self._topics[topic], self._now)

    @staticmethod
    def _next_due(topic: Topic, now: float) -> int | None:
        first: int | None = None
        for subscription in topic.subscriptions.values():
            if not subscription.is_idle(topic.messages, now):
                subscription.offer(topic.messages, now)
                subscription.changed = True
            if subscription.later and (first is None or subscription.later[0][0] < first):
                first = subscription.later[0][0]
        return first

    @property
    def _now(self) -> float:
        return float("inf") if self.ignore_delays else self._clock.wall()

    def take(self, publisher: MemoryPublisher, ticket: int, message: Outgoing) -> None:
        """Stores a message of a publisher, and queues its receipt for `step`. Not stored: a message that is too large,
        that no client can send or that a fault rejects (Rejected), or whose topic is unknown (Unconfirmed). Uses up the
        next fault that `fail_sends` set for the topic, even if the message fails for another reason.
        """
        faults = self._faults.get(message.topic)
        receipt: Receipt | None = faults.pop(0) if faults else None
        if self.is_too_large(message, moves=publisher.moves) or publisher.is_too_large(message):
            receipt = Rejected(TOO_BIG)
        if not isinstance(receipt, Rejected):
            try:
                stored = self.send(message)
            except TypeError as problem:
                receipt = Rejected(f"TypeError: {problem}")
            except ClusterError as problem:
                receipt = Unconfirmed(str(problem))
            else:
                receipt = receipt or Confirmed(self._topic(message.topic).token(stored))
        self._receipts.append((publisher, ticket, receipt))

    def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            raise ClusterError(error("K710", "topic not found", name))
        return self._topics[name]


def _check(message: Outgoing) -> None:
    """Raises TypeError for values that the client of a real broker refuses: other than bytes and encodable text."""
    payload: object = message.payload
    if not (payload is None or isinstance(payload, bytes)):
        raise TypeError(f"a payload is bytes, not {type(payload).__name__}")
    for text in (message.key, message.ordering_key, *message.properties, *message.properties.values()):
        if not isinstance(text, str):
            raise TypeError(f"keys and properties are text, not {text!r}")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise TypeError(f"keys and properties are text without lone surrogates, unlike {text!r}") from None


class MemoryPublisher:
    """Implementation of kodo_consumer.core.values.broker.Publisher: receipts come with the next `MemoryBroker.step`.
    `largest`: bytes that a payload may have, by topic; a message with a larger one is rejected, and so is one that is
    too large for the broker (`MemoryBroker.is_too_large`). With `moves` the compressed size counts for both limits.
    """

    def __init__(
        self, broker: MemoryBroker, on_receipts: OnReceipts, largest: Mapping[str, int], *, moves: bool
    ) -> None:
        self.on_receipts, self._largest, self.moves = on_receipts, largest, moves
        self.closed = False
        self._broker = broker

    def is_too_large(self, message: Outgoing) -> bool:
        """True if the payload, compressed with `moves`, is larger than `largest` allows for its topic; False without a
        limit.
        """
        largest = self._largest.get(message.topic)
        size = len(message.payload or b"")
        if largest is None or size <= largest:
            return False
        return not (self.moves and fits_compressed(message.payload, size, largest))

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Stores the messages, as (ticket, message), at once and in their order, except those that it rejects."""
        for ticket, message in messages:
            self._broker.take(self, ticket, message)

    def renew(self) -> None:
        """Does nothing: there is no connection that could hang."""

    def close(self) -> None:
        """Drops the receipts that are still to come."""
        self.closed = True


__all__ = ["MemoryBroker", "MemoryLane", "MemoryPublisher", "Rejected", "StoredMessage", "Unconfirmed"]
