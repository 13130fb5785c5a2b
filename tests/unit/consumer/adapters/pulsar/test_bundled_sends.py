"""Bundles of messages by the native border, which is a stand-in: receipts in lists, and nothing by a client that is given up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.pending_sends import PendingSends
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.core.values.broker import Confirmed, Receipt
from kodo_consumer.core.values.envelope import Outgoing

from tests.services.polling import eventually
from tests.unit.consumer.client_library import Client, Id, SlowReceiver


class Sender:
    """The border's sender. `shut`: it holds up what is published until it is opened."""

    def __init__(self) -> None:
        self.bundles: list[list[int]] = []
        self.producers: list[int] = []
        self.open = threading.Event()
        self.begun = threading.Event()
        self._results: list[tuple[int, list[tuple[int, Any]], list[tuple[int, int, Any]]]] = []
        self._some = threading.Event()

    def publish(self, number: int, messages: list[tuple[int, Outgoing]], _local: bool) -> int:
        self.bundles.append([ticket for ticket, _ in messages])
        self.producers.append(number)
        self.begun.set()
        self.open.wait(10)
        self._results.append((number, [(ticket, Id()) for ticket, _ in messages], []))
        self._some.set()
        return len(messages)

    def receipts(self, wait: int, _gather: int) -> list[tuple[int, list[tuple[int, Any]], list[tuple[int, int, Any]]]]:
        self._some.wait(wait / 1000)
        self._some.clear()
        taken = self._results[:]
        del self._results[: len(taken)]
        return taken

    def wake(self) -> None:
        self._some.set()


class Border:
    """The border with one sender. It knows every producer."""

    def __init__(self) -> None:
        self.made = Sender()

    def sender(self) -> Sender:
        return self.made

    def producer(self, _producer: Any, number: int) -> int:
        return number


class NativeClient(Client):
    """The client library, with what the border asks of its producers."""

    _producer = "the C++ object"


def publisher_of(
    border: Border, connect: Any = NativeClient
) -> tuple[PulsarPublisher, list[list[tuple[int, Receipt]]]]:
    lots: list[list[tuple[int, Receipt]]] = []

    def take(receipts: Sequence[tuple[int, Receipt]]) -> None:
        lots.append(list(receipts))

    return PulsarPublisher(connect, ["t"], take, border=border), lots  # type: ignore[arg-type]


def test_what_is_published_together_is_sent_together_and_each_has_its_receipt() -> None:
    border = Border()
    border.made.open.set()
    publisher, lots = publisher_of(border)
    publisher.publish([(ticket, Outgoing("t", b"x", {})) for ticket in range(600)])
    eventually(lambda: sum(map(len, lots)) == 600)
    publisher.close()
    assert [ticket for bundle in border.made.bundles for ticket in bundle] == list(range(600)), "in their order"
    assert len(border.made.bundles) < 30
    assert sorted(ticket for lot in lots for ticket, _ in lot) == list(range(600))
    assert all(isinstance(receipt, Confirmed) for lot in lots for _, receipt in lot)


def test_a_client_that_is_given_up_sends_nothing_more_of_a_bundle_that_waits_behind_another() -> None:
    border = Border()
    clients: list[NativeClient] = []

    def connect() -> NativeClient:
        clients.append(NativeClient())
        clients[-1].gate.set()
        return clients[-1]

    publisher, lots = publisher_of(border, connect)
    messages = [(ticket, Outgoing("t", b"x", {})) for ticket in range(2_800)]
    publisher.publish(messages)
    assert border.made.begun.wait(60)
    publisher.renew()
    publisher.publish([(10_000 + ticket, message) for ticket, message in messages])
    border.made.open.set()
    eventually(lambda: sum(ticket >= 10_000 for lot in lots for ticket, _ in lot) == 2_800)
    publisher.close()
    old = [ticket for bundle in border.made.bundles for ticket in bundle if ticket < 10_000]
    assert len(old) <= 1_024, "what it had begun, and nothing that waited behind it"


class Partly(NativeClient):
    """One topic cannot be opened."""

    def create_producer(self, topic: str, **_: Any) -> Client:
        if topic == "away":
            raise pulsar.ConnectError("no broker serves it")
        return self


def test_a_topic_that_cannot_be_opened_costs_no_other_its_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[int] = []
    monkeypatch.setattr(PendingSends, "add", lambda _, ticket, *__: one_by_one.append(ticket))
    border = Border()
    border.made.open.set()
    publisher, lots = publisher_of(border, Partly)
    publisher.publish([(0, Outgoing("t", b"x", {})), (1, Outgoing("away", b"x", {}))])
    eventually(lambda: sum(map(len, lots)) == 2)
    assert [ticket for lot in lots for ticket, receipt in lot if not isinstance(receipt, Confirmed)] == [1]
    before = len(border.made.bundles)
    publisher.publish([(ticket, Outgoing("t", b"x", {})) for ticket in range(100, 600)])
    eventually(lambda: sum(map(len, lots)) == 502)
    publisher.close()
    assert [ticket for bundle in border.made.bundles[before:] for ticket in bundle] == list(range(100, 600))
    assert not [ticket for ticket in one_by_one if ticket >= 100]


def test_results_that_come_while_others_are_handed_over_at_the_end_are_handed_over_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_producers._LEAVE_WITHIN", 0.05)
    border, receiver = Border(), SlowReceiver()
    border.made.open.set()
    publisher = PulsarPublisher(NativeClient, ["t"], receiver, border=border)  # type: ignore[arg-type]
    receiver.close_meanwhile(publisher, lambda: len(border.made.bundles) == 2)
    assert receiver.tickets == [1, 2]
