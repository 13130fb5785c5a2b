"""A broker in memory: topics, subscriptions, delayed delivery, redelivery, receipts. Nothing happens until `step` is called.

It passes the same contract tests as the real adapter. Faults are set by hand: refused and lost sends, held receipts,
broken connections, early delivery.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from consumer.broker import LaneRequest, LaneSink, Lost, NeverTaken, OnReceipts, Receipt, Stored
from consumer.clock import Clock
from consumer.envelope import Delivery, Outgoing
from consumer.policy import Policy
from kodoctl.errors import ClusterError, error


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a topic. `number` counts from 0 in each topic; times are ms since the epoch."""

    number: int
    message: Outgoing
    publish_time: int

    @property
    def payload(self) -> bytes:
        """The payload; empty for a tombstone."""
        return self.message.payload or b""

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the platform's own included."""
        return dict(self.message.properties)


@dataclass(slots=True, eq=False)
class _Subscription:
    acknowledged: set[int] = field(default_factory=set)
    held: dict[int, MemoryLane] = field(default_factory=dict)
    lanes: list[MemoryLane] = field(default_factory=list)
    turn: int = 0


@dataclass(slots=True)
class _Topic:
    name: str
    ledger: int
    messages: list[StoredMessage] = field(default_factory=list)
    subscriptions: dict[str, _Subscription] = field(default_factory=dict)


class MemoryBroker:
    """One broker for any number of workers. `ignore_delays`: delivers delayed messages at once, as a broker without it."""

    def __init__(self, clock: Clock) -> None:
        self.ignore_delays = False
        self.hold_receipts = False
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._faults: dict[str, list[Receipt]] = {}
        self._receipts: list[tuple[MemoryPublisher, int, Receipt]] = []

    # ---- what a test sets up and looks at

    def create(self, topic: str, subscriptions: Iterable[str] = ()) -> None:
        """A topic with subscriptions; harmless when it exists."""
        found = self._topics.setdefault(topic, _Topic(topic, len(self._topics) + 1))
        for name in subscriptions:
            found.subscriptions.setdefault(name, _Subscription())

    def create_for(self, policy: Policy) -> None:
        """Every topic and subscription that a subscription's worker needs."""
        for lane in policy.lanes:
            self.create(lane.topic, [policy.subscription])
        for topic in policy.written:
            self.create(topic)

    def send(self, message: Outgoing) -> StoredMessage:
        """Stores a message as a producer would. Raises ClusterError for an unknown topic."""
        topic = self._topic(message.topic)
        stored = StoredMessage(len(topic.messages), message, self._clock.wall())
        topic.messages.append(stored)
        return stored

    def messages(self, topic: str) -> list[StoredMessage]:
        """All messages ever stored in a topic."""
        return list(self._topic(topic).messages)

    def backlog(self, topic: str, subscription: str) -> list[StoredMessage]:
        """What a subscription has not acknowledged."""
        acknowledged = self._topic(topic).subscriptions[subscription].acknowledged
        return [stored for stored in self._topic(topic).messages if stored.number not in acknowledged]

    def fail_sends(self, topic: str, *receipts: Receipt) -> None:
        """The next sends to a topic get these receipts (a `Lost` one is stored all the same), then all is well again."""
        self._faults.setdefault(topic, []).extend(receipts)

    def disconnect(self, topic: str) -> None:
        """Breaks the connections of all lanes on a topic: what they hold will be delivered again, to any of them."""
        for subscription in self._topic(topic).subscriptions.values():
            subscription.held.clear()
            for lane in subscription.lanes:
                lane.sink.disconnected()

    # ---- the port

    def open(self, request: LaneRequest, sink: LaneSink) -> MemoryLane:
        """See Broker."""
        topic = self._topic(request.topic)
        subscription = topic.subscriptions.setdefault(request.subscription, _Subscription())
        if request.type == "exclusive" and subscription.lanes:
            raise ClusterError(error("K712", "subscription is taken", f"{request.subscription} on {request.topic}"))
        lane = MemoryLane(subscription, request, sink)
        subscription.lanes.append(lane)
        return lane

    def publisher(self, topics: Sequence[str], on_receipts: OnReceipts) -> MemoryPublisher:
        """See Broker."""
        for topic in topics:
            self._topic(topic)
        return MemoryPublisher(self, on_receipts)

    def partitions(self, topic: str) -> Sequence[str]:
        """See Broker. Topics in memory are in one piece."""
        return [self._topic(topic).name]

    def close(self) -> None:
        """See Broker."""

    # ---- time and progress

    def step(self) -> bool:
        """Hands over receipts and messages, once. False: nothing was there to do."""
        receipts = [] if self.hold_receipts else self._receipts
        if receipts:
            self._receipts = []
        for publisher, ticket, receipt in receipts:
            if not publisher.closed:
                publisher.on_receipts([(ticket, receipt)])
        delivered = [
            self._deliver(topic, sub) for topic in self._topics.values() for sub in topic.subscriptions.values()
        ]
        return bool(receipts) or any(delivered)

    @property
    def next_due(self) -> int | None:
        """When the first delayed message may be delivered (ms since the epoch), None without any."""
        waiting = [
            stored.message.deliver_at
            for topic in self._topics.values()
            for sub in topic.subscriptions.values()
            for stored in topic.messages
            if stored.message.deliver_at is not None and stored.number not in sub.acknowledged | sub.held.keys()
        ]
        return min((due for due in waiting if due > self._clock.wall()), default=None)

    def take(self, publisher: MemoryPublisher, ticket: int, message: Outgoing) -> None:
        """One send."""
        faults = self._faults.get(message.topic)
        receipt: Receipt | None = faults.pop(0) if faults else None
        if not isinstance(receipt, NeverTaken):
            stored = self.send(message)
            receipt = receipt or Stored(_token(self._topic(message.topic), stored))
        self._receipts.append((publisher, ticket, receipt))

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            raise ClusterError(error("K710", "topic missing", name))
        return self._topics[name]

    def _deliver(self, topic: _Topic, subscription: _Subscription) -> bool:
        """Everything due that nobody holds, to lanes with room."""
        room = {id(lane): lane.room() for lane in subscription.lanes}
        bundles: dict[int, list[Delivery]] = {}
        for stored in topic.messages:
            if not any(room.values()):
                break
            if (
                stored.number in subscription.acknowledged
                or stored.number in subscription.held
                or not self._due(stored)
            ):
                continue
            lane = _receiver(subscription, stored, room)
            if lane is None or not room[id(lane)]:
                continue
            subscription.held[stored.number] = lane
            room[id(lane)] -= 1
            bundles.setdefault(id(lane), []).append(_delivery(topic, stored))
        for lane in subscription.lanes:
            if id(lane) in bundles:
                lane.sink.deliver(bundles[id(lane)])
        return bool(bundles)

    def _due(self, stored: StoredMessage) -> bool:
        due = stored.message.deliver_at
        return self.ignore_delays or due is None or due <= self._clock.wall()


class MemoryLane:
    """See LaneReader."""

    def __init__(self, subscription: _Subscription, request: LaneRequest, sink: LaneSink) -> None:
        self.request, self.sink = request, sink
        self._subscription = subscription
        self._stopped = False

    @property
    def connected(self) -> bool:
        """See LaneReader."""
        return True

    def room(self) -> int:
        """How many messages it may be given."""
        return 0 if self._stopped else min(self.sink.room(), self.request.batch)

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """See LaneReader."""
        for token in tokens:
            number = int(str(token).split(",")[1])
            self._subscription.acknowledged.add(number)
            self._subscription.held.pop(number, None)

    def resume(self) -> None:
        """See LaneReader."""

    def stop(self) -> None:
        """See LaneReader."""
        self._stopped = True

    def close(self) -> None:
        """See LaneReader."""
        held = self._subscription.held
        for number in [number for number, lane in held.items() if lane is self]:
            del held[number]
        if self in self._subscription.lanes:
            self._subscription.lanes.remove(self)


class MemoryPublisher:
    """See Publisher."""

    def __init__(self, broker: MemoryBroker, on_receipts: OnReceipts) -> None:
        self.on_receipts = on_receipts
        self.closed = False
        self._broker = broker

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """See Publisher."""
        for ticket, message in messages:
            self._broker.take(self, ticket, message)

    def renew(self) -> None:
        """See Publisher."""

    def close(self) -> None:
        """See Publisher."""
        self.closed = True


def _receiver(subscription: _Subscription, stored: StoredMessage, room: dict[int, int]) -> MemoryLane | None:
    """Whose message it is: anybody's with room, the key's owner's, or the first one's."""
    lanes = subscription.lanes
    match lanes[0].request.type:
        case "shared":
            subscription.turn += 1
            with_room = [lane for lane in lanes if room[id(lane)]]
            return with_room[subscription.turn % len(with_room)] if with_room else None
        case "key_shared":
            key = stored.message.ordering_key or stored.message.key
            return lanes[zlib.crc32(key.encode()) % len(lanes)]
        case _:
            return lanes[0]


def _token(topic: _Topic, stored: StoredMessage) -> str:
    return f"({topic.ledger},{stored.number},-1,-1)"


def _delivery(topic: _Topic, stored: StoredMessage) -> Delivery:
    message = stored.message
    return Delivery(
        entry=stored.number,
        token=_token(topic, stored),
        payload=message.payload,
        properties=dict(message.properties),
        key=message.key,
        ordering_key=message.ordering_key,
        event_time=message.event_time,
        publish_time=stored.publish_time,
    )


__all__ = ["Lost", "MemoryBroker", "MemoryLane", "MemoryPublisher", "NeverTaken", "StoredMessage"]
