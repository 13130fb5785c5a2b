"""Room for messages: threads and coroutines wait for it, in their order, and it is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from kodo_consumer import Producer
from kodo_consumer.sending import backpressure, numbered_publisher
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer.pump import pumped

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBroker]:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 2)
    with pumped(TOPIC) as broker:
        yield broker


@pytest.fixture
def producer(broker: MemoryBroker) -> Producer:
    return Producer(TOPIC, broker)


async def _until(found: Callable[[], bool]) -> None:
    while not found():  # noqa: ASYNC110  # what is looked at has no event
        await asyncio.sleep(0.002)


def test_coroutines_wait_for_room_in_their_order_without_a_thread(producer: Producer, broker: MemoryBroker) -> None:
    async def send() -> int:
        broker.hold_receipts = True
        before = threading.active_count()
        tasks = [asyncio.create_task(producer.send_async(b"%d" % number, key="k")) for number in range(200)]
        await _until(lambda: producer.backpressure.waiting == 198)
        started = threading.active_count() - before
        broker.hold_receipts = False
        await asyncio.gather(*tasks)
        return started

    assert asyncio.run(send()) <= 1, "the one that sends marks"
    assert [one.payload for one in broker.messages(TOPIC)] == [b"%d" % number for number in range(200)]
    found = producer.backpressure
    assert (found.pending, found.waiting, found.waited) == (0, 0, 198)
    assert found.seconds > 0


def test_a_coroutine_that_is_cancelled_leaves_its_place_to_the_next(producer: Producer, broker: MemoryBroker) -> None:
    async def send() -> None:
        broker.hold_receipts = True
        tasks = [asyncio.create_task(producer.send_async(b"%d" % number)) for number in range(6)]
        await _until(lambda: producer.backpressure.waiting == 4)
        tasks[2].cancel()
        tasks[4].cancel()
        await asyncio.sleep(0.01)
        assert producer.backpressure.waiting == 2
        broker.hold_receipts = False
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(send())
    assert [one.payload for one in broker.messages(TOPIC)] == [b"0", b"1", b"3", b"5"]


def test_loops_one_after_the_other_and_side_by_side_have_room(producer: Producer, broker: MemoryBroker) -> None:
    async def send() -> None:
        await asyncio.gather(*(producer.send_async(b"x") for _ in range(20)))

    asyncio.run(send())
    threads = [threading.Thread(target=lambda: asyncio.run(send())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(broker.messages(TOPIC)) == 80


def test_without_room_in_time_a_coroutine_is_told_and_so_is_one_of_a_closed_producer(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.hold_receipts = True
    producer.post(b"0")
    producer.post(b"1")
    monkeypatch.setattr(numbered_publisher, "RECEIPT_TIMEOUT", 0.05)
    with pytest.raises(ClusterError, match=r"K715.*2 are out already; it was not sent"):
        asyncio.run(producer.send_async(b"2"))
    monkeypatch.setattr(numbered_publisher, "RECEIPT_TIMEOUT", 20.0)

    async def closed() -> None:
        task = asyncio.create_task(producer.send_async(b"3"))
        await _until(lambda: producer.backpressure.waiting == 1)
        threading.Thread(target=producer._sender._out._over.set).start()
        producer._sender._out._room.tell()
        with pytest.raises(UsageError, match="closed meanwhile"):
            await task

    asyncio.run(closed())
    assert len(broker.messages(TOPIC)) == 2


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_long_wait_is_logged_once_in_a_while(
    producer: Producer,
    broker: MemoryBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    way: str,
) -> None:
    monkeypatch.setattr(backpressure, "_STEP", 0.02)
    broker.hold_receipts = True
    producer.post(b"0")
    producer.post(b"1")
    send = producer.post if way == "thread" else lambda payload: asyncio.run(producer.send_async(payload))
    thread = threading.Thread(target=send, args=(b"2",))
    thread.start()
    eventually(lambda: "no room for 0 s: 2 messages without receipt, 1 message waiting to be sent" in caplog.text)
    monkeypatch.setattr(backpressure, "_REPORT_EVERY", 0.0)
    eventually(lambda: caplog.text.count("no room for") > 2)
    broker.hold_receipts = False
    thread.join(10)
    producer.flush()
    assert producer.backpressure.waited == 1
    assert producer.backpressure.seconds > 0.02
