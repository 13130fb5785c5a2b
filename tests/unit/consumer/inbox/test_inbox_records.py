"""Audit records of an inbox: a message is acknowledged after the record that it is stored, and its end has one more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.core.values.broker import Confirmed, Rejected, Unconfirmed
from kodo_consumer.core.values.policy import AuditTo
from kodo_consumer.inbox import Inbox
from kodo_consumer.inbox.inbox_records import InboxRecords
from sqlalchemy import Engine, create_engine

from kodoctl.protocol.audit_records import Event, Record, decode
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import delivery, policy
from tests.unit.consumer.inbox.test_inbox import Place

AUDIT = "persistent://p/n/t-s-AUDIT"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/shop.db")
    Inbox(made).create_table()
    yield made
    made.dispose()


def _records(place: Place) -> list[Record]:
    return [record for one in place.broker.messages(AUDIT) for record in decode(one.payload or b"")]


def test_each_message_is_recorded_as_stored_before_it_is_acknowledged_and_as_ended_afterwards(engine: Engine) -> None:
    place = Place(engine, policy(in_place=(), concurrency=4, audit=AuditTo(AUDIT, wait=True)))
    place.send("a", "b", "a", "dies")
    place.gate.clear()
    with place.pumped(), place.worker() as worker:
        eventually(lambda: place.left == 0, within=20)
        assert [one.event for one in _records(place)] == [Event.STORED, Event.STORED, Event.REPEATED, Event.STORED]
        assert {one.run for one in _records(place)} == {"w-inbox"}
        assert [one.number for one in _records(place)] == [1, 2, 3, 4]
        place.gate.set()
        eventually(lambda: worker.tick() >= 0 and place.store.counts()["done"] == 3, within=20)
    ends = {one.id: one.event for one in _records(place) if one.run == "w"}
    assert sorted(ends.values()) == [Event.DEAD, Event.DONE, Event.DONE]
    assert set(ends) <= {one.id for one in _records(place) if one.event is Event.STORED}


class Clock:
    """A clock to set."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall(self) -> int:
        return 1_700_000_000_000


class Publisher:
    """A publisher that notes its messages, in place of a broker that stores some of them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.renewed = self.closed = 0

    def publisher(self, topics: list[str], on_receipts: Any) -> Publisher:
        assert topics == [AUDIT]
        self.on_receipts = on_receipts
        return self

    def publish(self, messages: list[tuple[int, Any]]) -> None:
        self.sent += messages

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.closed += 1


def test_records_that_are_not_stored_are_published_again() -> None:
    clock, sink, rung = Clock(), Publisher(), list[int]()
    records = InboxRecords(policy(audit=AuditTo(AUDIT, wait=True)), clock)
    records.close()
    broker: Any = sink
    records.open(broker, "w", lambda: rung.append(1))
    assert records.is_settled
    records.publish([("t", delivery(number), Event.STORED) for number in range(1_500)])
    (first, one), (second, two) = sink.sent
    assert [len(decode(message.payload)) for message in (one, two)] == [1_000, 500]
    sink.on_receipts([(first, Confirmed("1:2")), (99, Unconfirmed("another's"))])
    assert (records.is_settled, records.settle(), len(sink.sent)) == (False, "", 2)
    sink.on_receipts([(second, Rejected("not authorised"))])
    assert records.settle() == "", "a second later"
    clock.at += 1.5
    assert records.settle() == "not authorised"
    (third, again) = sink.sent[2]
    assert (again, sink.renewed) == (two, 0)
    assert third != second
    clock.at += 80
    assert (records.settle(), sink.renewed) == ("", 1)
    (fourth, _) = sink.sent[3]
    sink.on_receipts([(third, Confirmed("1:3"))])
    assert not records.is_settled, "a receipt of a connection that was given up"
    sink.on_receipts([(fourth, Confirmed("1:4"))])
    assert records.is_settled
    assert len(rung) == 4
    records.close()
    assert sink.closed == 1
