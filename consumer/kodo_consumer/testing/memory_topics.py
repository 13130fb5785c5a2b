"""Topics of the in-memory broker: their messages, and for each subscription the undelivered and the unacknowledged
ones.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import Delivery, Outgoing
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneRequest, LaneSink


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a topic. `number` counts from 0 in each topic; `publish_time`: ms since the epoch. `partition`: -1
    in a topic without partitions. `batch`: number of the first message of its batch, None outside of a batch.
    """

    number: int
    message: Outgoing
    publish_time: int
    partition: int = -1
    batch: int | None = None

    @property
    def payload(self) -> bytes:
        """The payload; empty for a tombstone."""
        return self.message.payload or b""

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the platform's own included."""
        return dict(self.message.properties)


@dataclass(slots=True, eq=False)
class MemorySubscription:
    """Messages of one subscription of a topic, by their numbers. `ready`: heap of messages to deliver, with some that
    `is_due` refuses; `later`: heap of (due time in ms, number) of the messages that are delayed; messages from the
    number `offered` on are in neither yet. `unacknowledged`: by message the lane that has it. `again`: acknowledged
    messages of a batch that is redelivered as a whole, until they are acknowledged once more.

    `keys`: keys of unacknowledged messages, and `owners`: by key its lane and the number of its messages there, both
    only if lanes share by key: a key stays with its lane while the lane has a message of the key, unless another lane
    gets a batch that has the key, too. `changed`: a delivery may be possible, although no message came and none has
    become due; the caller of `hand_over` sets it to false before the call.
    """

    acknowledged: set[int] = field(default_factory=set)
    unacknowledged: dict[int, MemoryLane] = field(default_factory=dict)
    lanes: list[MemoryLane] = field(default_factory=list)
    turn: int = 0
    offered: int = 0
    ready: list[int] = field(default_factory=list)
    later: list[tuple[int, int]] = field(default_factory=list)
    again: set[int] = field(default_factory=set)
    keys: dict[int, str] = field(default_factory=dict)
    owners: dict[str, tuple[MemoryLane, int]] = field(default_factory=dict)
    changed: bool = True

    def is_idle(self, messages: Sequence[StoredMessage], wall: float) -> bool:
        """True if `hand_over` would deliver nothing: `changed` is false, and no message came since the last call of
        `offer` or has become due by `wall` (ms since the epoch). `messages`: all messages of the topic.
        """
        later = self.later
        return not self.changed and self.offered == len(messages) and not (later and later[0][0] <= wall)

    def offer(self, messages: Sequence[StoredMessage], wall: float) -> None:
        """Sorts messages that came since the last call into `ready` and `later`, and moves those that are due at `wall`
        (ms since the epoch) to `ready`. `messages`: all messages of the topic.
        """
        for stored in messages[self.offered :]:
            if stored.message.deliver_at is None:
                heappush(self.ready, stored.number)
            else:
                heappush(self.later, (stored.message.deliver_at, stored.number))
        self.offered = len(messages)
        while self.later and self.later[0][0] <= wall:
            heappush(self.ready, heappop(self.later)[1])

    def take_back(self, numbers: Iterable[int]) -> None:
        """Takes unacknowledged messages from their lanes and makes them ready to be delivered once more. The receiver
        queues of the lanes stay as they are.
        """
        self.changed = True
        for number in numbers:
            self.release(number)
            heappush(self.ready, number)

    def hold(self, number: int, lane: MemoryLane, key: str | None) -> None:
        """Notes that a lane has the message. `key`: its key if lanes share by key (the lane has the key from then on),
        else None.
        """
        self.unacknowledged[number] = lane
        if key is not None:
            self.keys[number] = key
            self.owners[key] = lane, self.owners.get(key, (lane, 0))[1] + 1

    def release(self, number: int) -> None:
        """Notes that no lane has the message any more; does nothing if none had."""
        self.unacknowledged.pop(number, None)
        key = self.keys.pop(number, None)
        if key is not None:
            self.changed = True
            lane, count = self.owners.pop(key)
            if count > 1:
                self.owners[key] = lane, count - 1

    def is_due(self, number: int) -> bool:
        """True if no lane has the message, and it is not acknowledged yet or is one of `again`. The time at which a
        delayed message is due is not checked.
        """
        return number not in self.unacknowledged and (number not in self.acknowledged or number in self.again)


@dataclass(slots=True)
class Topic:
    """Messages of a topic in the order of their arrival. A partitioned topic (`partitions` above 1) has one order for
    all partitions; each message names its partition. `ledger`: number of the topic in tokens; `subscriptions`: by name.
    """

    name: str
    ledger: int
    partitions: int = 1
    messages: list[StoredMessage] = field(default_factory=list)
    subscriptions: dict[str, MemorySubscription] = field(default_factory=dict)

    def store(self, message: Outgoing, wall: int, batch: int | None = None) -> StoredMessage:
        """Appends a message. `wall`: its publish time, ms since the epoch; `batch`: number of the first message of its
        batch, None outside of a batch.
        """
        number = len(self.messages)
        partition = -1
        if self.partitions > 1:
            key = message.key or message.ordering_key
            partition = (zlib.crc32(key.encode()) if key else number if batch is None else batch) % self.partitions
        stored = StoredMessage(number, message, wall, partition, batch)
        self.messages.append(stored)
        return stored

    def token(self, stored: StoredMessage) -> str:
        """Token of the message: its deliveries have it, lanes acknowledge it, and it is the position in receipts."""
        index = -1 if stored.batch is None else stored.number - stored.batch
        return f"({self.ledger},{stored.number},{stored.partition},{index})"


class MemoryLane:
    """Implementation of kodo_consumer.core.values.broker.LaneReader: the broker hands messages over. With `prefetch`
    the lane has a receiver queue, as a real client: the broker fills it with up to `request.queue` messages (more only
    if a batch is larger than the room), and no other lane of the subscription can get them meanwhile.
    """

    def __init__(
        self,
        subscription: MemorySubscription,
        request: LaneRequest,
        sink: LaneSink,
        partitions: int = 1,
        *,
        prefetch: bool = False,
    ) -> None:
        self.request, self.sink = request, sink
        self._subscription = subscription
        self._partitions = partitions
        self._stopped = False
        self._full = False  # there was no room: not asked again until told
        self._received: deque[Delivery] | None = deque() if prefetch else None
        self.unreported: list[int] = []  # tickets of acknowledgements

    @property
    def connected(self) -> bool:
        """Always True, even after `leave` or `close`: a connection that `disconnect` broke is back at once."""
        return True

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Always empty: a connection that `disconnect` broke is back at once."""
        return ()

    def long_connected(self, seconds: float) -> frozenset[str]:  # noqa: ARG002  # the port's name
        """Always empty: connections in memory are never half-open."""
        return frozenset()

    def seconds_since_empty(self) -> Mapping[str, float]:
        """0 for each partition (its number as a text, `-1` in a topic without partitions) if the receiver queue, which
        they share, is empty or does not exist; else nothing.
        """
        numbers = range(self._partitions) if self._partitions > 1 else (PLAIN,)
        return {} if self._received else {str(number): 0.0 for number in numbers}

    def room(self) -> int:
        """Number of messages that the broker may hand over now, 0 after `stop`. Without a receiver queue: if the sink
        has no room at a call, the number stays 0 until `resume`, or until `join` after `leave`.
        """
        if self._received is None:
            return self._sink_room()
        return 0 if self._stopped else max(0, self.request.queue - len(self._received))

    def _sink_room(self) -> int:
        if self._stopped or self._full:
            return 0
        room = min(self.sink.room(), self.request.batch)
        self._full = not room
        return room

    def deliver(self, bundle: list[Delivery]) -> None:
        """Takes messages that the broker hands over: without a receiver queue all go to the sink at once; else all go
        into the queue, and then some from it to the sink (`read`).
        """
        if self._received is None:
            self.sink.deliver(bundle)
        else:
            self._received += bundle
            self.read()

    def read(self) -> bool:
        """Moves at most `request.batch` messages from the receiver queue to the sink. Returns False if none moved,
        as after `stop`, or if the sink had no room at the last call and nobody has called `resume` since.
        """
        if not self._received or not (room := self._sink_room()):
            return False
        self.sink.deliver([self._received.popleft() for _ in range(min(room, len(self._received)))])
        return True

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Acknowledges messages at once; to acknowledge one twice does no harm. Results by `tickets` come later, with a
        step of the broker, or at `disconnect`; none come after `close`.
        """
        self.unreported += tickets
        subscription = self._subscription
        for token in tokens:
            number = int(str(token).split(",")[1])
            subscription.acknowledged.add(number)
            subscription.release(number)
            subscription.again.discard(number)

    def report(self, *, confirmed: bool) -> bool:
        """Reports to the sink the results of all acknowledgements with tickets since the last report: taken if
        `confirmed`, unknown if not. Returns false if there were none.
        """
        tickets, self.unreported = self.unreported, []
        if tickets:
            self.sink.on_acknowledged(*((tickets, ()) if confirmed else ((), tickets)))
        return bool(tickets)

    def disconnect(self) -> None:
        """Notifies the sink that the connection broke: the receiver queue is lost, and results of acknowledgements that
        were not reported yet are reported as unknown. Messages stay unacknowledged messages of the lane: the caller
        takes them back (`MemorySubscription.take_back`).
        """
        if self._received is not None:
            self._received.clear()
        self.report(confirmed=False)
        self.sink.on_disconnect()

    def resume(self) -> None:
        """Lets the next step of the broker hand messages over again, after the sink had no room."""
        self._full = False
        self._subscription.changed = True

    def add_consumers(self) -> None:
        """Does nothing: topics in memory have no limit."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Does nothing: delivery in memory does not stall."""

    def leave(self, wait: float) -> None:  # noqa: ARG002  # the port's name
        """Leaves the subscription at once, whatever `wait` is, until `join`: its receiver queue is lost, and steps of
        the broker deliver its unacknowledged messages to other lanes.
        """
        self._take_back()

    def join(self) -> None:
        """Returns to the subscription at once."""
        if self not in self._subscription.lanes:
            self._subscription.lanes.append(self)
            self._subscription.changed = True
            self._full = False

    def stop(self) -> None:
        """Ends deliveries; acknowledging goes on."""
        self._stopped = True

    def close(self) -> None:
        """Leaves the subscription at once: the receiver queue is lost, unacknowledged messages go to other lanes, and
        results of acknowledgements that were not reported yet never come.
        """
        self._take_back()

    def _take_back(self) -> None:
        subscription = self._subscription
        if self._received is not None:
            self._received.clear()
        subscription.take_back([number for number, lane in subscription.unacknowledged.items() if lane is self])
        if self in subscription.lanes:
            subscription.lanes.remove(self)


def hand_over(topic: Topic, subscription: MemorySubscription, wall: float) -> bool:
    """Hands due messages to lanes with room, and moves messages on from receiver queues to sinks. Due messages of one
    batch go to one lane, even if it has less room. Returns False if no message moved. `wall`: ms since the epoch. As
    with a real broker, readers of exclusive and failover subscriptions get delayed messages at once.
    """
    if not subscription.lanes:
        return False
    read = sum(lane.read() for lane in subscription.lanes) > 0
    kind = subscription.lanes[0].request.type
    in_order, by_key = kind in ("failover", "exclusive"), kind == "key_shared"
    subscription.offer(topic.messages, float("inf") if in_order else wall)
    if not subscription.ready:
        return read
    room = [lane.room() for lane in subscription.lanes]
    bundles: list[list[Delivery]] = [[] for _ in room]
    passed_over: list[int] = []
    last: tuple[int, int] | None = None  # batch and lane: a batch goes to one lane as a whole
    while subscription.ready and (any(room) or last is not None):
        number = subscription.ready[0]
        stored = topic.messages[number]
        if last is not None and stored.batch == last[0]:
            index = last[1]
        else:
            last = None
            if not any(room):
                break
            index = _receiver(subscription, stored, room)
        heappop(subscription.ready)
        if not subscription.is_due(number):
            continue
        if not room[index] and last is None:
            passed_over.append(number)
            continue
        if stored.batch is not None:
            last = stored.batch, index
        subscription.hold(number, subscription.lanes[index], _key(stored) if by_key else None)
        room[index] -= bool(room[index])
        bundles[index].append(_delivery(topic, stored))
    for number in passed_over:
        heappush(subscription.ready, number)
    for lane, bundle in zip(list(subscription.lanes), bundles, strict=True):
        if bundle:
            lane.deliver(bundle)
    return read or any(bundles)


def _receiver(subscription: MemorySubscription, stored: StoredMessage, room: Sequence[int]) -> int:
    """Index of the lane that gets the message: in turn one with room (shared), the lane of the key (key_shared), or the
    first one. `room`: free messages by lane.
    """
    lanes = subscription.lanes
    match lanes[0].request.type:
        case "shared":
            subscription.turn += 1
            with_room = [index for index, free in enumerate(room) if free]
            return with_room[subscription.turn % len(with_room)]
        case "key_shared":
            key = _key(stored)
            owner = subscription.owners.get(key)
            return lanes.index(owner[0]) if owner else zlib.crc32(key.encode()) % len(lanes)
        case _:
            return 0


def _key(stored: StoredMessage) -> str:
    return stored.message.ordering_key or stored.message.key


def _delivery(topic: Topic, stored: StoredMessage) -> Delivery:
    message, batch = stored.message, stored.batch
    return Delivery(
        entry=stored.number if batch is None else batch,
        token=topic.token(stored),
        payload=message.payload,
        properties=dict(message.properties),
        key=message.key,
        ordering_key=message.ordering_key,
        event_time=message.event_time,
        publish_time=stored.publish_time,
        batch_index=-1 if batch is None else stored.number - batch,
    )
