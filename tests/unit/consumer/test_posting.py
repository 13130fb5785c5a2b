"""Posting without waiting: bounded, and whatever a callback does, receipts go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from consumer import producer as module
from consumer.broker import Receipt
from consumer.clock import SystemClock
from consumer.producer import Producer
from consumer.testing import MemoryBroker
from kodoctl.errors import ClusterError
from tests.support import eventually
from tests.unit.consumer.pump import Pump

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    found = MemoryBroker(SystemClock())
    found.create(TOPIC)
    pump = Pump(found)
    yield found
    found.hold_receipts = False
    pump.stop()


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
    monkeypatch.setattr(module, "_MOST_OUT", 2)
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
    monkeypatch.setattr(module, "_MOST_OUT", 1)
    monkeypatch.setattr(module, "_RECEIPT_TIMEOUT", 0.05)
    broker.hold_receipts = True
    producer.post(b"1")
    with pytest.raises(ClusterError, match=r"K715.*1 are out already; it was not sent"):
        producer.post(b"2")
    assert len(broker.messages(TOPIC)) == 1


def test_a_callback_may_post_however_many_are_out(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_OUT", 1)

    def answer(_receipt: Receipt) -> None:
        producer.post(b"second")
        producer.post(b"third")

    producer.post(b"first", answer)
    eventually(lambda: len(broker.messages(TOPIC)) == 3)
    producer.flush()
