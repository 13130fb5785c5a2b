"""The broker port: the same tests on the broker in memory and on the real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from consumer.broker import Broker as BrokerPort
from consumer.broker import LaneReader, LaneRequest, NeverTaken, Publisher, Receipt, Stored, SubscriptionType
from consumer.clock import Clock, SystemClock
from consumer.envelope import Delivery, Outgoing
from consumer.testing import ManualClock, MemoryBroker
from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection import Connection
from tests.conftest import Broker
from tests.support import EARLIEST, unload


class Sink:
    """Keeps what a lane delivers."""

    def __init__(self, room: int = 1_000) -> None:
        self.lock = threading.Lock()
        self.got: list[Delivery] = []
        self.free = room
        self.lost = 0

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self.lock:
            self.got += deliveries

    def room(self) -> int:
        return self.free

    def disconnected(self) -> None:
        self.lost += 1

    @property
    def payloads(self) -> list[bytes | None]:
        with self.lock:
            return [delivery.payload for delivery in self.got]


class World:
    """A broker of either kind, with topics of its own."""

    clock: Clock
    port: BrokerPort

    def __init__(self) -> None:
        self.receipts: list[tuple[int, Receipt]] = []
        self.lanes: list[LaneReader] = []
        self.publishers: list[Publisher] = []

    def topic(self, name: str) -> str:
        raise NotImplementedError

    def create(self, name: str, *subscriptions: str) -> str:
        raise NotImplementedError

    def disconnect(self, name: str) -> None:
        raise NotImplementedError

    def refused(self, topic: str) -> Outgoing:
        """A message this topic will never take."""
        raise NotImplementedError

    def pause(self) -> None:
        raise NotImplementedError

    def open(
        self, topic: str, sink: Sink, subscription: str = "s", kind: SubscriptionType = "shared", name: str = "c"
    ) -> LaneReader:
        lane = self.port.open(LaneRequest(topic, subscription, kind, name, 100, 50, 1 << 20), sink)
        self.lanes.append(lane)
        return lane

    def publisher(self, *topics: str) -> Publisher:
        publisher = self.port.publisher(topics, self.receipts.extend)
        self.publishers.append(publisher)
        return publisher

    def publish(self, *messages: Outgoing) -> None:
        """Sends and awaits the receipts."""
        already = len(self.receipts)
        self.publisher(*{message.topic for message in messages}).publish(list(enumerate(messages)))
        self.until(lambda: len(self.receipts) == already + len(messages))

    def until(self, found: Callable[[], Any], within: float = 20.0) -> None:
        deadline = time.monotonic() + within
        while not found():
            assert time.monotonic() < deadline, "it never came"
            self.pause()

    def for_a_while(self, seconds: float) -> None:
        """Lets time pass in which something must not happen."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.pause()

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        for publisher in self.publishers:
            publisher.close()
        self.port.close()


class MemoryWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.port = self.broker = MemoryBroker(self.clock)

    def topic(self, name: str) -> str:
        return f"persistent://p/n/{name}"

    def create(self, name: str, *subscriptions: str) -> str:
        self.broker.create(self.topic(name), subscriptions)
        return self.topic(name)

    def disconnect(self, name: str) -> None:
        self.broker.disconnect(self.topic(name))

    def refused(self, topic: str) -> Outgoing:
        self.broker.fail_sends(topic, NeverTaken("too big"))
        return Outgoing(topic, b"x", {})

    def pause(self) -> None:
        self.broker.step()
        self.clock.advance(0.01)


class PulsarWorld(World):
    def __init__(self, broker: Broker, namespace: str) -> None:
        from consumer.pulsar_broker import PulsarBroker

        super().__init__()
        self._broker, self._namespace = broker, namespace
        self.clock = SystemClock()
        self.port = PulsarBroker(Connection(broker.admin_url, broker.broker_url))

    def topic(self, name: str) -> str:
        return f"persistent://{self._namespace}/{name}"

    def create(self, name: str, *subscriptions: str) -> str:
        path = f"persistent/{self._namespace}/{name}"
        assert self._broker.admin("PUT", f"{path}/partitions", 1).ok
        for subscription in subscriptions:
            assert self._broker.admin("PUT", f"{path}/subscription/{subscription}", EARLIEST).ok
        return self.topic(name)

    def disconnect(self, name: str) -> None:
        unload(self._broker, self.topic(name))

    def refused(self, topic: str) -> Outgoing:
        return Outgoing(topic, b"x" * (5 << 20), {})

    def pause(self) -> None:
        time.sleep(0.02)


@pytest.fixture(params=["memory", pytest.param("pulsar", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        found: World = MemoryWorld()
    else:
        found = PulsarWorld(request.getfixturevalue("broker"), request.getfixturevalue("namespace"))
    yield found
    found.close()


def _numbered(topic: str, count: int, **fields: Any) -> list[Outgoing]:
    return [Outgoing(topic, b"%d" % number, {}, **fields) for number in range(count)]


def _stored(got: list[Delivery]) -> set[object]:
    """Which stored messages these are, however often each was delivered."""
    return {(delivery.entry, delivery.batch_index) for delivery in got}


def test_a_message_arrives_as_it_was_sent(world: World) -> None:
    topic = world.create("t", "s")
    sent = [
        Outgoing(topic, b"\x00\xff", {"a": "1", "ü": "ß"}, key="k", ordering_key="o", event_time=1_234),
        Outgoing(topic, b"", {}),
        Outgoing(topic, None, {}, key="gone"),
    ]
    world.publish(*sent)
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: len(sink.got) == 3)
    for message, got in zip(sent, sink.got, strict=True):
        assert (got.payload, dict(got.properties)) == (message.payload, dict(message.properties))
        assert (got.key, got.ordering_key, got.event_time) == (message.key, message.ordering_key, message.event_time)
        assert abs(got.publish_time - world.clock.wall()) < 60_000
        assert len(got.position.split(":")) == 4
    assert len(_stored(sink.got)) == len({got.position for got in sink.got}) == 3


def test_receipts_come_for_every_ticket_and_one_key_keeps_its_order(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 300, key="k"))
    assert sorted(ticket for ticket, _ in world.receipts) == list(range(300))
    assert all(isinstance(receipt, Stored) for _, receipt in world.receipts)
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: len(sink.got) == 300)
    assert sink.payloads == [b"%d" % number for number in range(300)]


def test_two_subscriptions_each_get_everything(world: World) -> None:
    topic = world.create("t", "s", "r")
    one, two = Sink(), Sink()
    world.open(topic, one)
    world.open(topic, two, "r")
    world.publish(*_numbered(topic, 20))
    world.until(lambda: len(one.got) == len(two.got) == 20)


def test_what_was_acknowledged_never_comes_again_and_the_rest_does(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 10))
    first, second = Sink(), Sink()
    lane = world.open(topic, first)
    world.until(lambda: len(first.got) == 10)
    lane.acknowledge([delivery.token for delivery in first.got if int(delivery.payload or b"0") % 2])
    lane.close()
    world.open(topic, second)
    world.until(lambda: len(second.got) == 5)
    world.for_a_while(0.3)
    assert sorted(second.payloads) == [b"0", b"2", b"4", b"6", b"8"]  # type: ignore[type-var]
    assert _stored(second.got) <= _stored(first.got)


def test_nothing_is_delivered_without_room_until_it_is_told(world: World) -> None:
    topic = world.create("t", "s")
    sink = Sink(room=0)
    lane = world.open(topic, sink)
    world.publish(*_numbered(topic, 5))
    world.for_a_while(0.3)
    assert sink.got == []
    sink.free = 100
    lane.resume()
    world.until(lambda: len(sink.got) == 5)


def test_a_delayed_message_comes_when_it_is_due_and_others_pass_it(world: World) -> None:
    topic = world.create("t", "s")
    sink = Sink()
    world.open(topic, sink)
    due = world.clock.wall() + 1_500
    world.publish(Outgoing(topic, b"later", {}, deliver_at=due), Outgoing(topic, b"now", {}))
    world.until(lambda: sink.payloads == [b"now"])
    world.until(lambda: len(sink.got) == 2)
    assert world.clock.wall() >= due


def test_where_one_lane_gets_all_in_order_a_delayed_message_comes_at_once(world: World) -> None:
    topic = world.create("t", "s")
    sink = Sink()
    world.open(topic, sink, kind="failover")
    world.publish(Outgoing(topic, b"later", {}, deliver_at=world.clock.wall() + 60_000))
    world.until(lambda: sink.payloads == [b"later"])


def test_what_the_broker_will_never_take_is_told_as_such(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(world.refused(topic))
    ((_, receipt),) = world.receipts
    assert receipt == NeverTaken("too big")
    world.publish(Outgoing(topic, b"x", {}))
    assert isinstance(world.receipts[-1][1], Stored)


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": "text"},
        {"payload": {"a": 1}},
        {"properties": {"n": 1}},
        {"properties": {1: "n"}},
        {"properties": {"a": "\ud800"}},
        {"properties": {"\ud800": "a"}},
        {"key": 5},
    ],
    ids=str,
)
def test_what_no_client_can_build_is_never_taken_and_holds_up_nothing(world: World, wrong: dict[str, Any]) -> None:
    topic = world.create("t", "s")
    world.publish(Outgoing(topic, b"x", {})._replace(**wrong))
    ((_, receipt),) = world.receipts
    assert isinstance(receipt, NeverTaken)
    world.publish(Outgoing(topic, b"x", {"a": "\u00e9\U0001f600"}))
    assert isinstance(world.receipts[-1][1], Stored)


def test_a_topic_that_is_missing_cannot_be_opened_nor_published_to(world: World) -> None:
    with pytest.raises(ClusterError):
        world.open(world.topic("missing"), Sink())
    with pytest.raises(ClusterError):
        world.publisher(world.topic("missing"))


def test_what_is_sent_to_a_part_of_a_topic_arrives(world: World) -> None:
    topic = world.create("t", "s")
    (part,) = world.port.partitions(topic)
    world.publish(Outgoing(part, b"x", {}))
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: sink.payloads == [b"x"])


def test_a_broken_connection_is_told_and_everything_unacknowledged_comes_again(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 10))
    sink = Sink()
    lane = world.open(topic, sink)
    world.until(lambda: len(sink.got) == 10)
    world.disconnect("t")
    world.until(lambda: sink.lost == 1)
    world.until(lambda: len(sink.got) == 20)
    assert _stored(sink.got[:10]) == _stored(sink.got[10:])
    lane.acknowledge([delivery.token for delivery in sink.got[10:]])
    lane.close()
    again = Sink()
    world.open(topic, again)
    world.for_a_while(0.5)
    assert again.got == []


def test_shared_lanes_divide_the_messages(world: World) -> None:
    topic = world.create("t", "s")
    one, two = Sink(), Sink()
    world.open(topic, one, name="one")
    world.open(topic, two, name="two")
    for number in range(40):
        world.publish(Outgoing(topic, b"%d" % number, {}))
    world.until(lambda: len(one.got) + len(two.got) == 40)
    assert one.got
    assert two.got
    assert not set(one.payloads) & set(two.payloads)


def test_key_shared_lanes_keep_a_key_together(world: World) -> None:
    topic = world.create("t", "s")
    one, two = Sink(), Sink()
    world.open(topic, one, kind="key_shared", name="one")
    world.open(topic, two, kind="key_shared", name="two")
    for number in range(60):
        world.publish(Outgoing(topic, b"%d" % number, {}, key=f"k{number % 20}"))
    world.until(lambda: len(one.got) + len(two.got) == 60)
    assert not {delivery.key for delivery in one.got} & {delivery.key for delivery in two.got}


def test_a_failover_lane_takes_over_when_the_other_leaves(world: World) -> None:
    topic = world.create("t", "s")
    one, two = Sink(), Sink()
    first = world.open(topic, one, kind="failover", name="a")
    world.open(topic, two, kind="failover", name="b")
    world.publish(*_numbered(topic, 5))
    world.until(lambda: len(one.got) + len(two.got) >= 5)
    assert not one.got or not two.got
    first.close()
    world.until(lambda: len(two.got) == 5)


def test_an_exclusive_subscription_takes_one_lane(world: World) -> None:
    topic = world.create("t", "s")
    world.open(topic, Sink(), kind="exclusive")
    with pytest.raises(ClusterError):
        world.open(topic, Sink(), kind="exclusive")


def test_a_stopped_lane_delivers_nothing_more_and_still_acknowledges(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 5))
    sink = Sink()
    lane = world.open(topic, sink)
    world.until(lambda: len(sink.got) == 5)
    lane.stop()
    world.publish(*_numbered(topic, 5))
    world.for_a_while(0.7)
    assert len(sink.got) == 5
    lane.acknowledge([delivery.token for delivery in sink.got])
    lane.close()
    rest = Sink()
    world.open(topic, rest)
    world.until(lambda: len(rest.got) == 5)
    world.for_a_while(0.3)
    assert len(rest.got) == 5


def test_a_publisher_starts_afresh_when_it_is_told(world: World) -> None:
    topic = world.create("t", "s")
    publisher = world.publisher(topic)
    publisher.publish([(1, Outgoing(topic, b"1", {}))])
    world.until(lambda: len(world.receipts) == 1)
    publisher.renew()
    publisher.publish([(2, Outgoing(topic, b"2", {}))])
    world.until(lambda: [ticket for ticket, _ in world.receipts] == [1, 2])
