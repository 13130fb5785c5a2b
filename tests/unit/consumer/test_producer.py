"""Producers: what may be sent, identity, receipts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.producer import Producer
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError, KodoctlError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer.pump import pumped
from tests.unit.consumer.topologies import DOUBLE, write

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with pumped(TOPIC) as broker:
        yield broker


@pytest.fixture
def producer(broker: MemoryBroker) -> Iterator[Producer]:
    check = Payloads("json", {"type": "object", "required": ["amount"]})
    with Producer(TOPIC, broker, form=MessageValidator(check, {"uid": "required", "size": "optional"}, 1_000)) as found:
        yield found


def test_what_is_sent_carries_an_identity(producer: Producer, broker: MemoryBroker) -> None:
    name = producer.send({"amount": 1}, key="k", properties={"uid": "u"}, event_time=5)
    (stored,) = broker.messages(TOPIC)
    assert json.loads(stored.payload) == {"amount": 1}
    assert stored.properties == {"uid": "u", "kodo-id": name, "kodo-seq": stored.properties["kodo-seq"]}
    assert (stored.message.key, stored.message.event_time) == ("k", 5)
    assert producer.send(b'{"amount": 2}', properties={"uid": "u", "size": "9"}, id="mine") == "mine"
    assert producer.send(None, properties={"uid": "u"}) != name


@pytest.mark.parametrize("payload", [{"price": 1}, b"{", b"{}", "text"])
def test_a_payload_that_breaks_its_schema_is_refused(producer: Producer, broker: MemoryBroker, payload: object) -> None:
    with pytest.raises(UsageError, match="K716"):
        producer.send(payload, properties={"uid": "u"})
    assert broker.messages(TOPIC) == []


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({}, "missing: uid; the topology requires it: send it in `properties={…}`, or by --property$"),
        ({"uid": "u", "x": "1"}, "not declared: x; declared: uid"),
        ({"uid": "u", "kodo-hop": "1"}, "reserved: kodo-hop; names that begin with kodo- are the platform's$"),
    ],
)
def test_properties_that_are_not_as_declared_are_refused(
    producer: Producer, properties: dict[str, str], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        producer.send({"amount": 1}, properties=properties)


def test_where_nothing_is_declared_only_reserved_properties_are_refused(broker: MemoryBroker) -> None:
    with Producer(TOPIC, broker) as producer:
        producer.send(b"x", properties={"anything": "1"})
        with pytest.raises(UsageError, match="reserved: kodo-for"):
            producer.send(b"x", properties={"kodo-for": "billing"})


@pytest.mark.parametrize(
    ("receipt", "sure"), [(Unconfirmed("Timeout"), "may have been stored"), (Rejected("too big"), "was not stored")]
)
def test_without_a_receipt_sending_raises(
    producer: Producer, broker: MemoryBroker, receipt: Receipt, sure: str
) -> None:
    broker.fail_sends(TOPIC, receipt)
    with pytest.raises(ClusterError, match=sure):
        producer.send({"amount": 1}, properties={"uid": "u"})


def test_what_the_broker_says_is_too_large_is_told_with_its_size(producer: Producer, broker: MemoryBroker) -> None:
    broker.fail_sends(TOPIC, Rejected("too big"), Rejected("too big"))
    said = r"K729 .*orders: 12 bytes of payload are more than the broker takes.*was not stored"
    with pytest.raises(ClusterError, match=said):
        producer.send({"amount": 1}, properties={"uid": "u"})
    with pytest.raises(ClusterError, match=said):
        asyncio.run(producer.send_async({"amount": 1}, properties={"uid": "u"}))


def test_what_is_larger_than_the_topic_takes_is_refused_before_it_is_sent_and_its_number_is_void(
    producer: Producer, broker: MemoryBroker
) -> None:
    large = {"amount": "x" * 1_000}
    for send in (
        lambda: producer.send(large, properties={"uid": "u"}),
        lambda: producer.post(large, properties={"uid": "u"}),
        lambda: asyncio.run(producer.send_async(large, properties={"uid": "u"})),
    ):
        with pytest.raises(UsageError, match=r"K729 .*orders: 1\d\d\d bytes with its properties; the topic takes 1000"):
            send()
    producer.send({"amount": 1}, properties={"uid": "u"})
    producer.flush()
    producer.close()
    sent, mark = broker.messages(TOPIC)
    assert sent.properties["kodo-seq"].endswith(":4")
    assert "1-3" in mark.properties["kodo-seq"], "nobody looks for them"


def test_a_message_that_may_grow_beyond_the_maximum_says_so() -> None:
    form = MessageValidator(largest=1_000, compression="lz4", ordered=True)
    said = (
        r"9\d\d bytes with .* takes 1000; lz4 may make it larger, and sent uncompressed it would overtake earlier ones"
    )
    assert re.search(said, str(form.too_large(Outgoing(TOPIC, b"x" * 800, {}))))
    assert "compressed" not in str(form.too_large(Outgoing(TOPIC, b"x" * 1_001, {})))


def test_what_hangs_is_given_up_and_sending_starts_afresh(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.numbered_publisher.HANGS", 0.05)
    monkeypatch.setattr("kodo_consumer.sending.numbered_publisher._CHECK_EVERY", 0.01)
    broker.hold_receipts = True
    receipts: list[Receipt] = []
    producer.post({"amount": 1}, receipts.append, properties={"uid": "u"})
    with pytest.raises(ClusterError, match=r"K715 .*no receipt in time; it may have been stored"):
        producer.send({"amount": 2}, properties={"uid": "u"})
    assert receipts == [Unconfirmed("no receipt in time")]
    monkeypatch.setattr(
        "kodo_consumer.sending.numbered_publisher.HANGS", 60.0
    )  # a receipt on a busy machine takes a while
    broker.hold_receipts = False
    producer.send({"amount": 3}, properties={"uid": "u"})


def test_posted_messages_are_awaited_by_flush(producer: Producer, broker: MemoryBroker) -> None:
    receipts: list[Receipt] = []
    broker.fail_sends(TOPIC, Confirmed("x"), Unconfirmed("Timeout"), Unconfirmed("Timeout"))
    producer.post({"amount": 1}, receipts.append, properties={"uid": "u"})
    producer.post({"amount": 2}, properties={"uid": "u"})
    producer.post({"amount": 3}, properties={"uid": "u"})
    with pytest.raises(ClusterError, match=r"2 messages.*Timeout"):
        producer.flush()
    eventually(lambda: receipts == [Confirmed("x")])
    producer.flush()
    broker.hold_receipts = True
    producer.post({"amount": 4}, properties={"uid": "u"})
    with pytest.raises(ClusterError, match="no receipt in time"):
        producer.flush(timeout=0.05)
    broker.hold_receipts = False


def test_a_producer_is_loaded_from_a_topology(tmp_path: Path) -> None:
    path = write(tmp_path, DOUBLE)
    with pytest.raises(UsageError, match="K709"):
        Producer.load(path, topic="orders", level="S1", environ={})
    with pytest.raises(KodoctlError, match="K503"):
        Producer.load(path, topic="orders", environ={"KODOCTL_CONFIG": str(tmp_path / "none.toml")})
    with pytest.raises(KodoctlError, match="K516"):
        Producer.load(path, topic="orders", environ={}, admin_url="http://127.0.0.1:1")


def test_a_payload_that_was_encoded_is_not_checked_again() -> None:
    form = MessageValidator(Payloads("json", {"type": "object", "required": ["amount"]}), {"uid": "required"}, 1_000)
    encoded = form.for_encoded()
    assert encoded.accept(b"{}", lambda: 0, properties={"uid": "u"}).payload == b"{}"
    with pytest.raises(UsageError, match="K717"):
        encoded.accept(b"{}", lambda: 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_an_encoded_message_is_as_large_as_any_other(*, ordered: bool) -> None:
    form = MessageValidator(largest=1_000, compression="zlib", ordered=ordered)
    large = Outgoing(TOPIC, b"a" * 5_000, {})
    assert form.too_large(large) is None
    assert form.for_encoded().too_large(large) is None
