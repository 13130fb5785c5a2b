"""Many messages in one call: pipelined, in order, and every one accounted for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kodo_consumer import Draft, Producer, SendManyError
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.values.broker import TOO_BIG, Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.sending import many_sends
from kodo_consumer.testing import MemoryBroker
from pydantic import BaseModel

from kodoctl.errors import ClusterError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer.pump import pumped

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with pumped(TOPIC) as broker:
        yield broker


@pytest.fixture
def producer(broker: MemoryBroker) -> Producer:
    return Producer(TOPIC, broker, form=MessageValidator(None, {"uid": "required"}, 1_000))


U = {"uid": "u"}


class Order(BaseModel):
    amount: int


def test_identities_come_in_order_and_a_draft_has_its_own_options_first(
    producer: Producer, broker: MemoryBroker
) -> None:
    names = producer.send_many(
        [{"n": 0}, Draft({"n": 1}, id="mine", key="own"), Draft({"n": 2}, properties={"uid": "v"})],
        key="k",
        properties=U,
    )
    stored = broker.messages(TOPIC)
    assert [one.payload for one in stored] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert [one.properties["kodo-id"] for one in stored] == names
    assert names[1] == "mine"
    assert [(one.message.key, one.properties["uid"]) for one in stored] == [("k", "u"), ("own", "u"), ("k", "v")]
    assert producer.send_many([]) == []
    assert repr(Draft(b"x", key="k")) == "Draft(b'x', key='k')"


def test_messages_are_read_as_there_is_room(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 3)
    broker.hold_receipts = True
    read: list[int] = []
    names: list[str] = []
    thread = threading.Thread(
        target=lambda: names.extend(producer.send_many((read.append(n) or b"x" for n in range(10)), properties=U))
    )
    thread.start()
    eventually(lambda: len(broker.messages(TOPIC)) == 3)
    assert len(read) == 4
    broker.hold_receipts = False
    thread.join(10)
    assert len(names) == len(broker.messages(TOPIC)) == 10


def test_all_failures_are_raised_at_once_by_index(producer: Producer, broker: MemoryBroker) -> None:
    broker.fail_sends(TOPIC, Confirmed("x"), Unconfirmed("Timeout"), Rejected(TOO_BIG))
    messages: list[Any] = [b"0", Draft(b"1", properties={}), b"2", b"3", b"x" * 1_000, {1, 2}, Draft(b"6", key=5)]  # type: ignore[arg-type]
    with pytest.raises(SendManyError, match=r"K733 .*6 of 7 messages for .*orders; \[1\] K717") as raised:
        producer.send_many(messages, properties=U)
    codes = {at: problem.diagnostics[0].code for at, problem in raised.value.failures.items()}
    assert codes == {1: "K717", 2: "K715", 3: "K729", 4: "K729", 5: "K716", 6: "K730"}
    assert [bool(name) for name in raised.value.identities] == [True, False, True, True, False, False, False]
    again = producer.send(b"2", properties=U, id=raised.value.identities[2])
    assert again == raised.value.identities[2]
    with pytest.raises(SendManyError, match=r"12 of 12 .*and 2 more, in `failures`"):
        producer.send_many([b"x"] * 12)
    producer.flush()


def test_it_ends_early_where_nothing_more_can_be_sent(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)
    monkeypatch.setattr("kodo_consumer.sending.numbered_publisher.RECEIPT_TIMEOUT", 0.05)
    monkeypatch.setattr(many_sends, "RECEIPT_TIMEOUT", 0.05)
    broker.hold_receipts = True
    numbers = itertools.count()
    with pytest.raises(SendManyError, match=r"2 of 2 .*it ended there: nothing from \[2\] on was read") as raised:
        producer.send_many((b"%d" % number for number in numbers), properties=U)
    assert [str(one) for one in raised.value.failures.values()] == [
        f"K715 error message without receipt: {TOPIC}: no receipt in time; it may have been stored",
        f"K715 error message without receipt: {TOPIC}: 1 are out already; it was not sent",
    ]
    assert next(numbers) == 2


def _then(problem: BaseException, *first: Any) -> Iterator[Any]:
    yield from first
    raise problem


def test_a_fault_of_the_messages_waits_for_those_before_and_hides_none(
    producer: Producer, broker: MemoryBroker
) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        producer.send_many(_then(ZeroDivisionError(), b"0", b"1"), properties=U)
    assert raised.value.__notes__ == [f"2 messages before it were sent to {TOPIC}"]
    broker.fail_sends(TOPIC, Unconfirmed("Timeout"))
    with pytest.raises(SendManyError, match=r"1 of 1 message .*Timeout") as failed:
        producer.send_many(_then(ZeroDivisionError(), b"2"), properties=U)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_what_an_interrupt_leaves_is_reported_by_flush(producer: Producer, broker: MemoryBroker) -> None:
    broker.fail_sends(TOPIC, Unconfirmed("first"), Unconfirmed("late"))

    def messages() -> Iterator[bytes]:
        yield b"0"
        eventually(lambda: producer.backpressure.pending == 0)
        broker.hold_receipts = True
        yield b"1"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        producer.send_many(messages(), properties=U)
    broker.hold_receipts = False
    with pytest.raises(ClusterError, match=r"2 messages for .*first"):
        producer.flush()


def test_what_cannot_be_meant_is_refused_before_anything_is_sent(producer: Producer, broker: MemoryBroker) -> None:
    with pytest.raises(UsageError, match=r"K730 .*an identity is of one message"):
        producer.send_many([b"x"], id="one", properties=U)
    for wrong, kind in (
        (b"xy", "bytes"),
        (bytearray(b"xy"), "bytes"),
        (memoryview(b"xy"), "bytes"),
        (Order(amount=60), "of type Order"),
        ("xy", "of type str"),
        ({"a": 1}, "a mapping"),
        (5, "a number"),
        (None, "None"),
    ):
        with pytest.raises(UsageError, match=f"K730 .*messages is {kind}, not a list"):
            producer.send_many(wrong, properties=U)  # type: ignore[arg-type]
    found: list[BaseException] = []

    def on_receipt(_: Receipt) -> None:
        try:
            producer.send_many([b"x"], properties=U)
        except UsageError as problem:
            found.append(problem)

    producer.post(b"y", on_receipt, properties=U)
    producer.flush()
    assert "K731" in str(found[0]), "it would wait for itself"
    producer.close()
    with pytest.raises(UsageError, match=r"K731 .*send_many: this producer is closed"):
        producer.send_many([b"x"])
    assert [one.payload for one in broker.messages(TOPIC) if one.payload] == [b"y"]
