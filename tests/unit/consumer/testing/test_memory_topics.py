"""Topics in memory: partitions and positions as a broker's."""

from __future__ import annotations

from collections.abc import Sequence

from kodo_consumer.core.values.broker import Confirmed, LaneRequest, Receipt, Unconfirmed
from kodo_consumer.core.values.envelope import Delivery, Outgoing
from kodo_consumer.testing.manual_clock import ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker
from kodo_consumer.testing.memory_topics import Topic


def _message() -> Outgoing:
    return Outgoing("persistent://p/n/t", b"", {})


def test_messages_of_one_batch_are_in_one_partition_the_first_batch_too() -> None:
    topic = Topic("persistent://p/n/t", ledger=1, partitions=3)
    batches = [{topic.store(_message(), 0, batch=first).partition for _ in range(4)} for first in (0, 4)]
    assert batches == [{0}, {1}]


def test_messages_without_key_and_batch_go_over_the_partitions_in_turns() -> None:
    topic = Topic("persistent://p/n/t", ledger=1, partitions=3)
    assert [topic.store(_message(), 0).partition for _ in range(4)] == [0, 1, 2, 0]


class _Sink:
    """Takes as many messages as it is said to have room for."""

    def __init__(self, room: int) -> None:
        self.free, self.received, self.disconnects = room, list[int](), 0

    def room(self) -> int:
        return self.free

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.free -= len(deliveries)
        self.received += [int(str(one.entry)) for one in deliveries]

    def on_disconnect(self, partition: str | None = None) -> None:
        self.disconnects += 1

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Nothing is confirmed here."""

    def fail(self, problem: BaseException) -> None:
        raise problem


def _settle(broker: MemoryBroker) -> None:
    while broker.step():
        pass


def test_a_receiver_queue_keeps_messages_from_other_lanes_until_its_lane_leaves() -> None:
    broker, busy, free = MemoryBroker(ManualClock(), prefetch=True), _Sink(1), _Sink(100)
    broker.create("t", ["s"])
    request = LaneRequest(
        topic="t", subscription="s", type="shared", consumer_name="c", queue=3, batch=2, batch_bytes=1
    )
    lanes = [broker.open(request, sink) for sink in (busy, free)]
    for _ in range(12):
        broker.send(_message()._replace(topic="t"))
    _settle(broker)
    assert len(busy.received) == 1, "it has room for one, and three wait in its queue"
    assert len(free.received) == 8
    assert [broker.step(), broker.next_due] == [False, None]

    busy.free = 1
    lanes[0].resume()
    _settle(broker)
    assert len(busy.received) == 2
    lanes[1].stop()
    assert lanes[1].room() == 0
    lanes[0].leave(0)
    lanes[0].join()
    busy.free = 100
    _settle(broker)
    assert sorted(set(busy.received + free.received)) == list(range(12)), "what was not acknowledged came again"


def test_a_broken_connection_loses_the_receiver_queue() -> None:
    broker, sink = MemoryBroker(ManualClock(), prefetch=True), _Sink(1)
    broker.create("t", ["s"])
    lane = broker.open(LaneRequest("t", "s", "shared", "c", queue=3, batch=1, batch_bytes=1), sink)
    for _ in range(3):
        broker.send(_message()._replace(topic="t"))
    _settle(broker)
    broker.disconnect("t")
    sink.free = 100
    lane.resume()
    _settle(broker)
    assert (sink.received, sink.disconnects) == ([0, 0, 1, 2], 1), "those of the queue come once"


def test_a_publisher_gets_a_receipt_for_a_topic_that_does_not_exist() -> None:
    broker, receipts = MemoryBroker(ManualClock()), list[tuple[int, Receipt]]()
    broker.create("t")
    broker.publisher(["t"], receipts.extend).publish([(1, _message()), (2, _message()._replace(topic="t"))])
    _settle(broker)
    kinds = {ticket: type(receipt) for ticket, receipt in receipts}
    assert kinds == {1: Unconfirmed, 2: Confirmed}
