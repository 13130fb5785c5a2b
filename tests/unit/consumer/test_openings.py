"""A topic whose producer cannot be opened holds up its own messages only. The client library is a stand-in."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest

from consumer.broker import Lost, NeverTaken, Receipt, Stored
from consumer.envelope import Outgoing
from consumer.pulsar_broker import openings
from consumer.pulsar_broker.publisher import PulsarPublisher
from tests.support import eventually


class Producer:
    """Stores at once what it is sent, or fails."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic, self.closed = client, topic, False
        self.result = pulsar.Result.Ok

    def send_async(self, payload: bytes, callback: Callable[[Any, Any], None], **_: Any) -> None:
        self.client.sent[self.topic].append(payload)
        callback(self.result, "position")

    def flush(self) -> None: ...

    def close(self) -> None:
        self.client.wait(f"closing {self.topic}")
        self.closed = True


class Client:
    """Opens producers at once, but of topics that are away: these wait until they are let, or forever."""

    def __init__(self) -> None:
        self.away: dict[str, threading.Event] = {}
        self.problems: dict[str, Exception] = {}
        self.sent: defaultdict[str, list[bytes]] = defaultdict(list)
        self.made: defaultdict[str, list[Producer]] = defaultdict(list)
        self.opening: Counter[str] = Counter()
        self.closed = threading.Event()

    def wait(self, name: str) -> None:
        if (gate := self.away.get(name)) is not None:
            gate.wait(30)

    def create_producer(self, topic: str, **_: Any) -> Producer:
        self.opening[topic] += 1
        problem = self.problems.get(topic)
        self.wait(topic)
        if problem is not None:
            raise problem
        self.made[topic].append(Producer(self, topic))
        return self.made[topic][-1]

    def close(self) -> None:
        self.closed.set()


class Setting:
    """A publisher, its clients and the receipts by ticket."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.receipts: dict[int, Receipt] = {}
        self.order: list[int] = []
        self.broken: list[BaseException] = []
        self.publisher = PulsarPublisher(self._connect, ["good"], self._receive, on_broken=self.broken.append)

    def _connect(self) -> Client:
        self.clients.append(Client())
        return self.clients[-1]

    def _receive(self, receipts: Any) -> None:
        for ticket, receipt in receipts:
            self.receipts[ticket] = receipt
            self.order.append(ticket)

    def goes_away(self, *topics: str) -> threading.Event:
        """They answer nothing until the event is set."""
        gate = threading.Event()
        self.clients[-1].away.update(dict.fromkeys(topics, gate))
        return gate

    def send(self, topic: str, *tickets: int) -> None:
        self.publisher.publish([(ticket, Outgoing(topic, b"%d" % ticket, {})) for ticket in tickets])

    def stored(self, *tickets: int) -> bool:
        return all(isinstance(self.receipts.get(ticket), Stored) for ticket in tickets)


@contextmanager
def _publishing() -> Iterator[Setting]:
    setting = Setting()
    try:
        yield setting
    finally:
        for client in setting.clients:
            for gate in client.away.values():
                gate.set()
        setting.publisher.close()
        assert setting.broken == []


@pytest.fixture
def setting() -> Iterator[Setting]:
    with _publishing() as found:
        yield found


def test_a_topic_that_cannot_be_opened_holds_up_its_own_messages_only(setting: Setting) -> None:
    gate = setting.goes_away("bad")
    setting.send("bad", 1, 2)
    setting.send("good", *range(10, 60))
    setting.send("bad", 3)
    setting.send("other", 4)
    eventually(lambda: setting.stored(4, *range(10, 60)))
    assert not setting.receipts.keys() & {1, 2, 3}
    gate.set()
    eventually(lambda: setting.stored(1, 2, 3))
    assert setting.clients[0].sent["bad"] == [b"1", b"2", b"3"], "in order"
    assert setting.clients[0].opening["bad"] == 1


@pytest.mark.parametrize(
    ("problem", "receipt"),
    [
        (pulsar.Timeout("no answer"), Lost("Timeout")),
        (pulsar.AuthorizationError("no"), NeverTaken("not authorised")),
        (KeyError("schema"), NeverTaken("KeyError: 'schema'")),
    ],
)
def test_all_that_waited_for_a_producer_are_told_why_there_is_none(
    setting: Setting, problem: Exception, receipt: Receipt
) -> None:
    gate = setting.goes_away("bad")
    setting.clients[0].problems["bad"] = problem
    setting.send("bad", 1, 2)
    eventually(lambda: setting.clients[0].opening["bad"])
    gate.set()
    eventually(lambda: len(setting.receipts) == 2)
    assert setting.receipts == {1: receipt, 2: receipt}
    setting.send("bad", 3)
    eventually(lambda: 3 in setting.receipts)
    assert setting.receipts[3] == Lost("its producer could not be opened"), "not at once again"
    assert setting.clients[0].opening["bad"] == 1


def test_an_opening_that_never_ends_is_given_up_and_what_comes_of_it_later_is_used(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openings, "OPEN_WITHIN", 0.05)
    gate = setting.goes_away("bad")
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    assert setting.receipts[1] == Lost("its producer did not open within 0 s")
    gate.set()
    setting.send("good", 2)
    eventually(lambda: setting.stored(2))
    eventually(lambda: _sends(setting, "bad"))
    assert setting.clients[0].opening["bad"] == 1


def _sends(setting: Setting, topic: str) -> bool:
    ticket = 1_000 + len(setting.receipts)
    setting.send(topic, ticket)
    eventually(lambda: ticket in setting.receipts)
    return setting.stored(ticket)


def test_of_two_openings_of_a_topic_the_first_to_end_is_used_and_the_other_closed(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openings, "OPEN_WITHIN", 0.05)
    monkeypatch.setattr("consumer.pulsar_broker.publisher._CREATE_AGAIN", 0.0)
    gate, client = setting.goes_away("bad"), setting.clients[0]
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    monkeypatch.setattr(openings, "OPEN_WITHIN", 60.0)
    setting.send("bad", 2, 3)
    eventually(lambda: client.opening["bad"] == 2)
    gate.set()
    eventually(lambda: setting.stored(2, 3))
    eventually(lambda: sum(producer.closed for producer in client.made["bad"]) == 1)
    setting.send("bad", 4)
    eventually(lambda: setting.stored(4))
    assert client.sent["bad"] == [b"2", b"3", b"4"]


def test_a_late_failure_says_nothing_of_the_try_after_it(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "OPEN_WITHIN", 0.05)
    monkeypatch.setattr("consumer.pulsar_broker.publisher._CREATE_AGAIN", 0.0)
    first, client = setting.goes_away("bad"), setting.clients[0]
    client.problems["bad"] = pulsar.AuthorizationError("no")
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    monkeypatch.setattr(openings, "OPEN_WITHIN", 60.0)
    second = setting.goes_away("bad")
    del client.problems["bad"]
    setting.send("bad", 2)
    eventually(lambda: client.opening["bad"] == 2)
    first.set()
    setting.send("good", 3)
    eventually(lambda: setting.stored(3))
    second.set()
    eventually(lambda: setting.stored(2))


def test_so_many_threads_open_producers_and_no_more(setting: Setting) -> None:
    names = [f"bad{number}" for number in range(openings.MOST_AT_ONCE + 3)]
    gate, client = setting.goes_away(*names), setting.clients[0]
    for ticket, name in enumerate(names):
        setting.send(name, ticket)
    setting.send("good", 100)
    eventually(lambda: setting.stored(100))
    assert len(client.opening) <= openings.MOST_AT_ONCE + 1, "and the good one, before"
    gate.set()
    eventually(lambda: setting.stored(*range(len(names))))
    assert client.opening.total() == len(names) + 1


def test_a_producer_that_does_not_even_close_holds_up_no_other_topic(setting: Setting) -> None:
    client = setting.clients[0]
    setting.send("bad", 1)
    eventually(lambda: setting.stored(1))
    client.made["bad"][0].result = pulsar.Result.NotConnected
    setting.send("bad", 2)
    eventually(lambda: 2 in setting.receipts)
    gate = setting.goes_away("closing bad")
    setting.send("bad", 3)
    setting.send("good", 4)
    eventually(lambda: setting.stored(4))
    assert 3 not in setting.receipts
    gate.set()
    eventually(lambda: setting.stored(3))
    assert client.made["bad"][0].closed


def test_closing_while_a_producer_opens_sends_what_waits_for_it() -> None:
    with _publishing() as setting:
        gate = setting.goes_away("bad")
        setting.send("bad", 1, 2)
        eventually(lambda: setting.clients[0].opening["bad"])
        closing = threading.Thread(target=setting.publisher.close)
        closing.start()
        gate.set()
        closing.join(20)
        assert not closing.is_alive()
        assert setting.clients[0].sent["bad"] == [b"1", b"2"]
        assert setting.clients[0].closed.is_set()


def test_closing_ends_although_a_producer_never_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.pulsar_broker.publisher._LEAVE_WITHIN", 0.2)
    with _publishing() as setting:
        setting.goes_away("bad")
        setting.send("bad", 1)
        eventually(lambda: setting.clients[0].opening["bad"])
        setting.publisher.close()
        assert not setting.clients[0].away["bad"].is_set(), "nobody waited for it"


def test_what_waits_for_a_producer_of_an_old_client_is_sent_by_the_new_one_only(setting: Setting) -> None:
    gate, old = setting.goes_away("bad"), setting.clients[0]
    setting.send("bad", 1, 2)
    eventually(lambda: old.opening["bad"])
    setting.publisher.renew()
    setting.send("bad", 1, 2)
    eventually(lambda: setting.stored(1, 2))
    gate.set()
    assert old.closed.wait(20)
    assert old.sent == {}
