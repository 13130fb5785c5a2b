"""Sending where no broker can be made to misbehave: the client library is a stand-in."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.partition_producers import Producers
from kodo_consumer.adapters.pulsar.producer_factory import ProducerOptions
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.adapters.pulsar.refusals import FULL
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing

from kodoctl.errors import ClusterError, error
from tests.services.polling import eventually
from tests.unit.consumer.client_library import Client, Id, SlowReceiver


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
    assert isinstance(found[0], Rejected)
    assert asked[0]["batching_type"] is pulsar.BatchingType.KeyBased
    assert asked[0]["batching_enabled"] is False


@pytest.mark.parametrize("full", FULL)
def test_a_worker_starts_though_a_topic_is_full_that_it_may_be_the_one_to_empty(
    full: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal ended it, at each start: nobody read the topic any more, and its quota stayed used up."""
    refusals = [full("no"), full("no")]

    class Full(Client):
        def create_producer(self, *names: Any, **given: Any) -> Client:
            if refusals:
                raise refusals.pop()
            return super().create_producer(*names, **given)

    client = Full()
    client.gate.set()
    found: list[Receipt] = []
    publisher = PulsarPublisher(lambda: client, ["t"], lambda receipts: found.extend(one for _, one in receipts))
    assert "its backlog quota is used up" in caplog.text
    publisher.publish([(1, Outgoing("t", b"x", {}))])
    eventually(lambda: found)
    assert found == [Unconfirmed(full.__name__)], "it is sent again, as after any receipt that does not come"
    assert not refusals
    publisher.close()


def test_a_publisher_that_starts_afresh_sends_nothing_a_second_time_by_its_old_client() -> None:
    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client())
        return clients[-1]

    publisher = PulsarPublisher(connect, ["t"], lambda receipts: None)
    messages = [(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(3)]
    publisher.publish(messages)
    old = clients[0]
    assert old.sending.wait(60)
    publisher.renew()
    publisher.publish(messages)
    for client in clients:
        client.gate.set()
    assert old.closed.wait(60)
    eventually(lambda: len(clients[1].sent) == 3)
    publisher.close()
    assert old.sent == [b"0"], "what it had begun, and nothing that waited behind it"


def test_what_is_published_while_a_publisher_starts_afresh_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[Client] = []
    others: list[threading.Thread] = []

    def connect() -> Client:
        clients.append(Client())
        clients[-1].gate.set()
        return clients[-1]

    def begin_slowly(producers: Producers, *given: Any) -> None:
        make(producers, *given)
        if len(clients) == 2:
            assert clients[0].closed.wait(60)
            others.append(threading.Thread(target=publisher.publish, args=([(1, Outgoing("t", b"1", {}))],)))
            others[0].start()
            others[0].join(0.2)

    publisher = PulsarPublisher(connect, ["t"], lambda receipts: None)
    make = Producers.__init__
    monkeypatch.setattr(Producers, "__init__", begin_slowly)
    publisher.renew()
    others[0].join(60)
    eventually(lambda: clients[1].sent == [b"1"])
    publisher.close()


def test_a_publisher_whose_broker_gives_no_answer_closes_its_client_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_producers._LEAVE_WITHIN", 0.05)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_close._ORDERLY_WITHIN", 0.05)
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

        def is_connected(self) -> bool:
            return True

        def close(self) -> None:
            for callback in self.callbacks:
                callback(pulsar.Result.AlreadyClosed, None)

    client: Any = Client()
    client.create_producer = lambda *_, **__: Stuck()
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


class Fenced:
    """Producers of topics that store nothing until `works`: each connection ends after a moment, and what has no receipt is sent
    anew with the next one, as the client library does.
    """

    def __init__(self) -> None:
        self.works = False
        self.arrived: Counter[bytes] = Counter()  # what a broker got, each time
        self.sent: Counter[bytes] = Counter()  # what the publisher sent, connections aside
        self.most_at_once = 0
        self.opened = 0
        self.closed = threading.Event()
        self._producers: list[FencedProducer] = []

    def create_producer(self, *_: Any, **__: Any) -> FencedProducer:
        self.opened += 1
        self._producers.append(FencedProducer(self))
        return self._producers[-1]

    def get_topic_partitions(self, topic: str) -> list[str]:
        return [topic]

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
        self.closed.set()

    def shutdown(self) -> None:
        self.close()


class FencedProducer:
    """Its connection ends 0.1 s after each send, and is there again 0.15 s later."""

    def __init__(self, owner: Fenced) -> None:
        self._owner = owner
        self._pending: dict[bytes, Callable[[Any, Any], None]] = {}
        self._lock = threading.Lock()
        self._connected, self._closed = True, threading.Event()
        threading.Thread(target=self._live, daemon=True).start()

    def send_async(self, payload: bytes, callback: Callable[[Any, Any], None], **_: Any) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._owner.sent[payload] += 1
                self._pending[payload] = callback
                self._arrive([payload])
                return
        callback(pulsar.Result.AlreadyClosed, None)

    def is_connected(self) -> bool:
        return self._connected

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            given_up, self._pending = self._pending, {}
        for callback in given_up.values():
            callback(pulsar.Result.AlreadyClosed, None)

    def _arrive(self, payloads: Sequence[bytes]) -> None:
        if self._connected:
            self._owner.arrived.update(payloads)
            self._owner.most_at_once = max(self._owner.most_at_once, len(self._pending))

    def _live(self) -> None:
        while not self._closed.wait(0.1):
            with self._lock:
                stored = list(self._pending.values()) if self._owner.works else []
                if self._owner.works:
                    self._pending.clear()
                    self._connected = True
                elif self._pending:
                    self._connected = False
            for callback in stored:
                callback(pulsar.Result.Ok, Id())
            if not self._connected and not self._closed.wait(0.15):
                with self._lock:
                    self._connected = not self._closed.is_set()
                    self._arrive(list(self._pending))


def test_where_nothing_is_stored_messages_wait_and_one_tries_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.send_breakers._FIRST_PAUSE", 0.05)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.send_breakers._LONGEST_PAUSE", 0.1)
    topic, stored = Fenced(), list[int]()
    publisher = PulsarPublisher(lambda: topic, ["t"], lambda receipts: stored.extend(ticket for ticket, _ in receipts))
    publisher.publish([(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(30)])
    eventually(lambda: topic.opened > 6)
    topic.most_at_once = 0
    eventually(lambda: topic.opened > 9)
    assert topic.most_at_once == 1
    publisher.publish([(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(30, 40)])
    eventually(lambda: topic.opened > 15)
    assert stored == []
    topic.works = True
    eventually(lambda: len(stored) == 40)
    publisher.close()
    assert sorted(stored) == list(range(40)), "each has one receipt"
    assert max(topic.sent.values()) <= 3, "before it was known that nothing is stored, as a trial, and in the end"
    assert sum(topic.sent.values()) <= 30 + topic.opened + 40


def test_where_nothing_is_stored_for_too_long_each_message_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.send_breakers._FIRST_PAUSE", 0.05)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.pending_sends.SEND_TIMEOUT", 2.0)
    topic, answers = Fenced(), dict[int, Receipt]()
    publisher = PulsarPublisher(lambda: topic, ["t"], answers.update)
    publisher.publish([(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(10)])
    eventually(lambda: len(answers) == 10)
    publisher.close()
    assert all(isinstance(receipt, Unconfirmed) for receipt in answers.values())


def test_a_new_client_sends_one_message_to_each_topic_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.send_breakers.LONG", 99.0)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.send_breakers.BREAKS", 99)
    clients: list[Fenced] = []

    def connect() -> Fenced:
        clients.append(Fenced())
        return clients[-1]

    stored: list[int] = []
    publisher = PulsarPublisher(connect, ["t"], lambda receipts: stored.extend(ticket for ticket, _ in receipts))
    messages = [(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(5)]
    publisher.publish(messages)
    eventually(lambda: len(clients[0].arrived) == 5)
    publisher.renew()
    publisher.publish(messages)
    eventually(lambda: clients[1].arrived)
    assert clients[1].most_at_once == 1
    clients[1].works = True
    eventually(lambda: len(stored) == 5)
    publisher.close()
    assert set(clients[1].arrived.values()) == {1}


def test_a_message_that_no_topic_takes_does_not_keep_others_waiting_behind_its_try() -> None:
    """It has its answer without a word about whether the topic stores anything."""
    topic, answers = Fenced(), dict[int, Receipt]()
    topic.works = True
    options = ProducerOptions(largest={"t": 5_000})
    publisher = PulsarPublisher(lambda: topic, ["t"], answers.update, options)
    publisher.renew()
    publisher.publish([(1, Outgoing("t", b"x" * 9_000, {})), (2, Outgoing("t", b"2", {}))])
    eventually(lambda: len(answers) == 2)
    publisher.close()
    assert isinstance(answers[1], Rejected)
    assert isinstance(answers[2], Confirmed)


def test_a_topic_that_a_role_may_not_write_says_so_at_once_also_while_there_is_doubt() -> None:
    class Forbidden(Fenced):
        def create_producer(self, *_: Any, **__: Any) -> FencedProducer:
            if self.opened:
                raise pulsar.AuthorizationError("no")
            return super().create_producer()

    topic, answers = Forbidden(), dict[int, Receipt]()
    publisher = PulsarPublisher(lambda: topic, ["t"], answers.update)
    publisher.renew()
    publisher.publish([(1, Outgoing("t", b"1", {})), (2, Outgoing("t", b"2", {}))])
    eventually(lambda: len(answers) == 2)
    publisher.close()
    assert all(isinstance(receipt, Rejected) for receipt in answers.values())


def test_a_client_that_is_given_up_lets_nothing_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.send_breakers._FIRST_PAUSE", 0.3)
    clients: list[Fenced] = []

    def connect() -> Fenced:
        clients.append(Fenced())
        return clients[-1]

    publisher = PulsarPublisher(connect, ["t"], lambda _: None)
    publisher.publish([(ticket, Outgoing("t", b"%d" % ticket, {})) for ticket in range(5)])
    eventually(lambda: clients[0].opened > 1)
    publisher.renew()
    assert clients[0].closed.wait(60)
    opened, arrived = clients[0].opened, clients[0].arrived.total()
    time.sleep(1.0)
    publisher.close()
    assert (clients[0].opened, clients[0].arrived.total()) == (opened, arrived)


class _Unreadable:
    """Schemas of topics that cannot be read."""

    def version(self, _topic: str, version: str) -> str:
        return version

    def schema(self, _key: Any) -> None:
        raise ClusterError(error("K701", "cannot read", "schema"))


def test_a_publisher_that_cannot_begin_leaves_no_client_and_no_thread() -> None:
    client = Client()
    with pytest.raises(ClusterError, match="K701"):
        PulsarPublisher(lambda: client, ["t"], lambda _: None, ProducerOptions(outlets=_Unreadable()))  # type: ignore[arg-type]
    assert client.closed.is_set()
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "kodo-publish"])


def test_receipts_that_come_while_others_are_handed_over_at_the_end_are_handed_over_too() -> None:
    client, receiver = Client(), SlowReceiver()
    client.gate.set()
    receiver.close_meanwhile(PulsarPublisher(lambda: client, ["t"], receiver), lambda: len(client.sent) == 2)
    assert receiver.tickets == [1, 2]


def test_what_is_published_just_before_the_end_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    client, got, closing = Client(), list[int](), list[threading.Thread]()
    client.gate.set()
    turn = Producers._turn

    def turn_and_close(producers: Producers) -> None:
        """The queue is found empty; then a message comes, and the end."""
        turn(producers)
        if not closing and not producers._over:
            producers.send([(1, Outgoing("t", b"1", {}))])
            (end := threading.Thread(target=producers.close)).start()
            closing.append(end)
            eventually(lambda: producers._over)

    monkeypatch.setattr(Producers, "_turn", turn_and_close)
    publisher = PulsarPublisher(lambda: client, ["t"], lambda receipts: got.extend(ticket for ticket, _ in receipts))
    eventually(lambda: closing)
    closing[0].join(20)
    publisher.close()
    assert (client.sent, got) == ([b"1"], [1])
