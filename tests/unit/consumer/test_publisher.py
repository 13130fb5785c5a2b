"""Sending where no broker can be made to misbehave: the client library is a stand-in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pulsar
import pytest

from consumer.broker import NeverTaken, Receipt
from consumer.envelope import Outgoing
from consumer.pulsar_broker.producers import ProducerOptions
from consumer.pulsar_broker.publisher import PulsarPublisher
from tests.support import eventually
from tests.unit.consumer.client_library import Client


@pytest.mark.parametrize("topic", ["t", "t-partition-11"])
def test_what_holds_for_a_topic_holds_for_its_partitions(topic: str) -> None:
    asked: list[dict[str, Any]] = []

    class Recording(Client):
        def create_producer(self, *names: Any, **given: Any) -> Client:
            asked.append(given)
            return super().create_producer(*names, **given)

    client = Recording()
    client.gate.set()
    found: list[Receipt] = []
    publisher = PulsarPublisher(
        lambda: client,
        [topic],
        lambda receipts: found.extend(one for _, one in receipts),
        ProducerOptions(by_key={"t"}, largest={"t": 9}),
    )
    publisher.publish([(1, Outgoing(topic, b"x" * 100, {}))])
    eventually(lambda: found)
    publisher.close()
    assert isinstance(found[0], NeverTaken)
    assert asked[0]["batching_type"] is pulsar.BatchingType.KeyBased
    assert asked[0]["batching_enabled"] is False


def test_a_publisher_that_starts_afresh_sends_nothing_a_second_time_by_its_old_client() -> None:
    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client())
        return clients[-1]

    publisher = PulsarPublisher(connect, ["t"], lambda receipts: None)
    messages = [(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(3)]
    publisher.publish(messages)
    old = clients[0]
    assert old.sending.wait(5)
    publisher.renew()
    publisher.publish(messages)
    for client in clients:
        client.gate.set()
    assert old.closed.wait(5)
    eventually(lambda: len(clients[1].sent) == 3)
    publisher.close()
    assert old.sent == [b"0"], "what it had begun, and nothing that waited behind it"


def test_a_publisher_whose_broker_gives_no_answer_closes_its_client_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.pulsar_broker.producers._LEAVE_WITHIN", 0.05)
    monkeypatch.setattr("consumer.pulsar_broker.closing._ORDERLY_WITHIN", 0.05)
    over = threading.Event()

    class Hanging(Client):
        def send_async(self, *_: Any, **__: Any) -> None: ...

        def close(self) -> None:
            over.wait(30)

        def shutdown(self) -> None:
            over.set()

    publisher = PulsarPublisher(Hanging, ["t"], lambda receipts: None)
    publisher.publish([(1, Outgoing("t", b"", {}))])
    publisher.close()
    assert over.is_set(), "no thread waits in the client any more"


def test_what_a_closed_producer_still_had_to_send_does_not_end_the_one_in_its_place() -> None:
    class Stuck:
        """Sends nothing until it is closed; then all of it has failed."""

        made: ClassVar[list[Stuck]] = []

        def __init__(self) -> None:
            self.callbacks: list[Callable[[Any, Any], None]] = []
            self.made.append(self)

        def send_async(self, _: bytes, callback: Callable[[Any, Any], None], **__: Any) -> None:
            self.callbacks.append(callback)

        def close(self) -> None:
            for callback in self.callbacks:
                callback(pulsar.Result.AlreadyClosed, None)

    client = Client()
    client.create_producer = lambda *_, **__: Stuck()  # type: ignore[method-assign]
    lost: list[int] = []
    publisher = PulsarPublisher(lambda: client, ["t"], lambda receipts: lost.extend(ticket for ticket, _ in receipts))
    publisher.publish([(1, Outgoing("t", b"", {})), (2, Outgoing("t", b"", {}))])
    eventually(lambda: len(Stuck.made[0].callbacks) == 2)
    Stuck.made[0].callbacks.pop(0)(pulsar.Result.Timeout, None)
    for ticket in (3, 4, 5):
        publisher.publish([(ticket, Outgoing("t", b"", {}))])
    eventually(lambda: len(Stuck.made[-1].callbacks) == 3)
    assert len(Stuck.made) == 2
    eventually(lambda: lost == [1, 2])
    publisher.close()
