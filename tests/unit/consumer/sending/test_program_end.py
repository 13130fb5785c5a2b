"""The end of a program that has not closed its producers: what was posted is awaited for a while, and what is not stored is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.producer import Producer
from kodo_consumer.sending import program_end
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError
from kodoctl.protocol.sequence_numbers import ProducerWatermark, read_number
from tests.unit.consumer.pump import pumped

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with pumped(TOPIC) as broker:
        yield broker


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kodo.producer"]


def test_receipts_are_awaited_and_the_last_mark_is_sent(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.hold_receipts = True
    receipts: list[Receipt] = []
    Producer(TOPIC, broker).post(b"1", receipts.append)  # which nobody has any more
    release = threading.Timer(0.05, setattr, (broker, "hold_receipts", False))
    release.start()
    program_end._end()
    release.join()
    assert isinstance(receipts[0], Confirmed)
    mark = read_number(broker.messages(TOPIC)[-1].properties["kodo-seq"])
    assert isinstance(mark, ProducerWatermark)
    assert (mark.high, mark.end, _told(caplog)) == (1, True, [])


def test_what_has_no_receipt_by_then_is_told(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_end, "PATIENCE", 0.05)
    broker.hold_receipts = True
    receipts: list[Receipt] = []
    producer = Producer(TOPIC, broker)
    producer.post(b"1")
    producer.post(b"2")
    producer.post(b"3", receipts.append)
    program_end._end()
    assert receipts == [Unconfirmed("no receipt in time")]
    said = f"the program ends without `close` of its producer: 2 messages for {TOPIC}; the first: no receipt in time"
    assert said in _told(caplog)


def test_what_was_refused_and_nobody_asked_for_is_told(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.fail_sends(TOPIC, Rejected("its schema does not fit"))
    Producer(TOPIC, broker).post(b"1")
    program_end._end()
    assert [text.partition("producer: ")[2] for text in _told(caplog)] == [
        f"1 message for {TOPIC}; the first: its schema does not fit"
    ]


def test_who_closed_or_was_told_hears_nothing(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    with Producer(TOPIC, broker) as producer:
        producer.post(b"1")
        producer.flush()
        broker.fail_sends(TOPIC, Rejected("too big"))
        producer.post(b"2")
        with pytest.raises(ClusterError):
            producer.flush()
    assert program_end._unfinished == {}
    program_end._end()
    assert _told(caplog) == []


def test_what_close_has_reported_is_not_told_again(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.hold_receipts = True
    producer = Producer(TOPIC, broker)
    producer.post(b"1")
    with pytest.raises(ClusterError, match=r"K715.*1 message for"):
        producer.close(timeout=0.05)
    assert program_end._unfinished == {}
    program_end._end()
    assert not [text for text in _told(caplog) if "without `close`" in text]


def test_one_that_fails_leaves_the_others_their_turn(caplog: pytest.LogCaptureFixture) -> None:
    class One:
        def __init__(self, problem: Exception | None) -> None:
            self.problem = problem

        def end(self, seconds: float) -> str:
            if self.problem is not None:
                raise self.problem
            return f"{seconds >= 0}"

    program_end.register(One(RuntimeError("can't start new thread")))
    program_end.register(One(None))
    program_end._end()
    assert [text.partition("producer: ")[2] for text in _told(caplog)] == [
        "RuntimeError: can't start new thread", "True",
    ]  # fmt: skip


def test_a_forked_process_leaves_them_to_its_parent(broker: MemoryBroker) -> None:
    producer = Producer(TOPIC, broker)
    producer.post(b"1")
    assert program_end._unfinished
    child = os.fork()
    if child == 0:
        os._exit(1 if program_end._unfinished else 0)
    assert os.waitpid(child, 0)[1] == 0
    producer.close()
