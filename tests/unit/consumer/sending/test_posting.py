"""Posting without waiting: bounded, and whatever a callback does, receipts go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kodo_consumer import producer as module
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.core.values.route_table import DispatchTable, RouteRule, RouteTable
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.producer import Producer
from kodo_consumer.sending import numbered_publisher
from kodo_consumer.sending.level_senders import LevelSender, LevelSenders
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError
from kodoctl.protocol.sequence_numbers import Number, ProducerWatermark, read_number
from tests.services.polling import eventually
from tests.unit.consumer.pump import pumped

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with pumped(TOPIC) as broker:
        yield broker


@pytest.fixture
def producer(broker: MemoryBroker) -> Producer:
    return Producer(TOPIC, broker)


def test_a_callback_that_fails_keeps_no_other_from_its_receipt(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_receipt: Receipt) -> None:
        raise ValueError

    producer.post(b"1", fail)
    producer.send(b"2")
    assert "a callback for receipts failed" in caplog.text
    producer.flush()


def test_posting_waits_while_too_many_receipts_are_out(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 2)
    broker.hold_receipts = True
    poster = threading.Thread(target=lambda: [producer.post(b"%d" % number) for number in range(5)])
    poster.start()
    eventually(lambda: len(broker.messages(TOPIC)) == 2)
    assert poster.is_alive()
    broker.hold_receipts = False
    poster.join(10)
    producer.flush()
    assert len(broker.messages(TOPIC)) == 5


def test_posting_gives_up_when_no_receipt_comes(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)
    monkeypatch.setattr(numbered_publisher, "RECEIPT_TIMEOUT", 0.05)
    broker.hold_receipts = True
    producer.post(b"1")
    with pytest.raises(ClusterError, match=r"K715.*1 are out already; it was not sent"):
        producer.post(b"2")
    assert len(broker.messages(TOPIC)) == 1


def test_a_callback_may_post_however_many_are_out(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)

    def answer(_receipt: Receipt) -> None:
        producer.post(b"second")
        producer.post(b"third")

    producer.post(b"first", answer)
    eventually(lambda: len(broker.messages(TOPIC)) == 3)
    producer.flush()


def numbers(broker: MemoryBroker) -> list[Any]:
    """(number) of messages and (high, void, end) of marks, in their order."""
    found: list[Any] = []
    for stored in broker.messages(TOPIC):
        match read_number(stored.properties["kodo-seq"]):
            case Number(number=number):
                found.append(number)
            case ProducerWatermark(high=high, void=void, end=end):
                assert (stored.payload, stored.properties["kodo-for"]) == (b"", "(mark)")
                found.append((high, void, end))
    return found


def test_messages_are_numbered_and_the_end_says_how_many_there_were(producer: Producer, broker: MemoryBroker) -> None:
    for number in range(3):
        producer.post(b"%d" % number)
    broker.fail_sends(TOPIC, Rejected("too big"), Unconfirmed("Timeout"))
    producer.post(b"never stored")
    producer.post(b"perhaps stored")
    with pytest.raises(ClusterError):
        producer.close()
    assert numbers(broker) == [1, 2, 3, 5, (5, ((4, 5),), True)]
    assert len({stored.properties["kodo-seq"].split(":")[0] for stored in broker.messages(TOPIC)}) == 1


def test_each_minute_a_mark_tells_how_far_the_count_has_come(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbered_publisher, "_MARK_EVERY", 0.02)
    producer = Producer(TOPIC, broker)
    broker.fail_sends(TOPIC, Confirmed("x"), Unconfirmed("Timeout"), Confirmed("x"))
    producer.send(b"1")
    eventually(lambda: numbers(broker)[:3] == [1, (1, (), False), (1, (), False)])
    producer.send(b"2")
    eventually(lambda: numbers(broker)[-1] == (2, (), False))
    producer.close()
    assert numbers(broker)[-1] == (2, (), True)


def test_a_send_that_timed_out_is_given_up_and_keeps_nobody_from_sending(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECEIPT_TIMEOUT", 0.05)
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)
    broker.hold_receipts = True
    for _ in range(3):
        with pytest.raises(ClusterError, match="may have been stored"):
            producer.send(b"x")
    with pytest.raises(ClusterError, match="may have been stored"):
        asyncio.run(producer.send_async(b"x"))
    producer.flush()
    broker.hold_receipts = False
    monkeypatch.setattr(module, "RECEIPT_TIMEOUT", 10.0)
    producer.send(b"y")
    producer.close()
    assert numbers(broker) == [1, 2, 3, 4, 5, (5, ((1, 4),), True)]


def test_an_event_loop_awaits_receipts_of_many_at_once(producer: Producer, broker: MemoryBroker) -> None:
    async def send_all() -> list[str]:
        return await asyncio.gather(*(producer.send_async(b"%d" % number, id=f"i{number}") for number in range(50)))

    assert asyncio.run(send_all()) == [f"i{number}" for number in range(50)]
    broker.fail_sends(TOPIC, Rejected("too big"))
    with pytest.raises(ClusterError, match="was not stored"):
        asyncio.run(producer.send_async(b"x"))


def test_an_event_loop_goes_on_while_there_is_no_room(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)
    broker.hold_receipts = True

    async def scene() -> None:
        sends = [asyncio.create_task(producer.send_async(b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        broker.hold_receipts = False
        await asyncio.gather(*sends)

    asyncio.run(scene())
    assert len(broker.messages(TOPIC)) == 3


def test_without_numbers_there_are_no_marks_either(broker: MemoryBroker) -> None:
    with Producer(TOPIC, broker, numbered=False) as producer:
        producer.send(b"x")
    (stored,) = broker.messages(TOPIC)
    assert set(stored.properties) == {"kodo-id"}


def test_new_partitions_are_used_once_they_are_seen(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_publisher, "_MARK_EVERY", 0.02)
    producer = Producer(TOPIC, broker)
    broker.create(f"{TOPIC}-2")
    monkeypatch.setattr(broker, "partitions", lambda topic: [topic, f"{topic}-2"])
    producer.send(b"1")
    eventually(lambda: producer._sender._out._router.partitions == 2)
    for number in range(20):
        producer.send(b"x", key=f"k{number}")
    producer.close()
    assert {len(broker.messages(topic)) > 5 for topic in (TOPIC, f"{TOPIC}-2")} == {True}


def test_a_message_is_sent_straight_to_the_level_that_routes_choose(broker: MemoryBroker) -> None:
    other = f"{TOPIC}-L2"
    broker.create(other)
    opened: list[Level] = []

    def open_level(level: Level) -> LevelSender:
        opened.append(level)
        return LevelSender(other, broker, MessageValidator(), None, numbered=True)

    rule = RouteRule(lambda facts: facts.tenant == "vip" and facts.identity == "m" and facts.size == 1, Level.L2)
    send_target = SendTarget(TOPIC, None, {}, by_key=False, ordered=False, fair_by="uid")
    routes = LevelSenders(send_target, DispatchTable((RouteTable((rule,)),)), open_level)
    with Producer(TOPIC, broker, routes=routes) as producer:
        for _ in range(2):
            producer.send(b"1", properties={"uid": "vip"}, id="m")
        producer.send(b"2", properties={"uid": "other"}, id="m")
        asyncio.run(producer.send_async(b"3", properties={"uid": "vip"}, id="m"))
        producer.post(b"44", properties={"uid": "vip"}, id="m")
        producer.flush()
    sent = {topic: [m.message.payload for m in broker.messages(topic) if m.message.payload] for topic in (TOPIC, other)}
    assert sent == {TOPIC: [b"2", b"44"], other: [b"1", b"1", b"3"]}
    assert opened == [Level.L2]


def test_a_flush_waits_for_the_callback_of_the_last_receipt(producer: Producer) -> None:
    """Else it could miss a failure that is just being reported."""
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def on_receipt(_receipt: Receipt) -> None:
        begun.set()
        release.wait(10)
        ended.set()

    producer.post(b"1", on_receipt)
    assert begun.wait(10)
    timer = threading.Timer(0.1, release.set)
    timer.start()
    producer.flush()
    assert ended.is_set()
    timer.join()


def test_a_callback_that_gives_a_message_up_is_still_one(producer: Producer, broker: MemoryBroker) -> None:
    found: list[bool] = []

    def on_receipt(_receipt: Receipt) -> None:
        producer._sender.give_up(2)
        found.append(producer._sender._out.is_calling)

    broker.hold_receipts = True
    producer.post(b"1", on_receipt)
    producer.post(b"2", lambda _receipt: None)
    broker.hold_receipts = False
    producer.flush()
    assert found == [True]
    assert not producer._sender._out._calling
