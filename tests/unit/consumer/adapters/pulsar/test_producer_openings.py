"""A topic whose producer cannot be opened holds up its own messages only. The client library is a stand-in."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar import producer_openings
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing

from tests.services.polling import eventually


class Position:
    """Where a message is stored; a negative ledger: nowhere that the broker would name."""

    def __init__(self, ledger: int = 7) -> None:
        self._ledger = ledger

    def ledger_id(self) -> int:
        return self._ledger

    def entry_id(self) -> int:
        return 3

    def batch_index(self) -> int:
        return -1


class Producer:
    """Stores at once what it is sent, or fails."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic, self.closed = client, topic, False
        self.result, self.ledger = pulsar.Result.Ok, client.ledgers.pop(0) if client.ledgers else 7

    def send_async(self, payload: bytes, callback: Callable[[Any, Any], None], **_: Any) -> None:
        self.client.sent[self.topic].append(payload)
        callback(self.result, Position(self.ledger))

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
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.ledgers: list[int] = []  # what the next producers tell of what they are sent
        self.partitions: defaultdict[str, int] = defaultdict(int)

    def get_topic_partitions(self, topic: str) -> list[str]:
        self.wait(f"counting {topic}")
        count = self.partitions[topic]
        return [f"{topic}-partition-{number}" for number in range(count)] or [topic]

    def wait(self, name: str) -> None:
        if (gate := self.away.get(name)) is not None:
            gate.wait(30)

    def create_producer(self, topic: str, **given: Any) -> Producer:
        self.opening[topic] += 1
        self.asked.append((topic, given))
        problem = self.problems.get(topic)
        self.wait(topic)
        if problem is not None:
            raise problem
        self.made[topic].append(Producer(self, topic))
        return self.made[topic][-1]

    def close(self) -> None:
        self.wait("closing")
        self.closed.set()

    def shutdown(self) -> None:
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
        return all(isinstance(self.receipts.get(ticket), Confirmed) for ticket in tickets)


@contextmanager
def publishing() -> Iterator[Setting]:
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
    with publishing() as found:
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
        (pulsar.Timeout("no answer"), Unconfirmed("Timeout")),
        (pulsar.AuthorizationError("no"), Rejected("not authorised")),
        (KeyError("schema"), Rejected("KeyError")),
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
    assert setting.receipts[3] == Unconfirmed("its producer could not be opened"), "not at once again"
    assert setting.clients[0].opening["bad"] == 1


def test_an_opening_that_never_ends_is_given_up_and_what_comes_of_it_later_is_used(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_openings, "OPEN_WITHIN", 0.05)
    gate = setting.goes_away("bad")
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    assert setting.receipts[1] == Unconfirmed("its producer did not open within 0 s")
    monkeypatch.setattr(producer_openings, "OPEN_WITHIN", 60.0)
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
    monkeypatch.setattr(producer_openings, "OPEN_WITHIN", 0.05)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.producer_openings._CREATE_AGAIN", 0.0)
    gate, client = setting.goes_away("bad"), setting.clients[0]
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    monkeypatch.setattr(producer_openings, "OPEN_WITHIN", 60.0)
    setting.send("bad", 2, 3)
    eventually(lambda: client.opening["bad"] == 2)
    gate.set()
    eventually(lambda: setting.stored(2, 3))
    eventually(lambda: sum(producer.closed for producer in client.made["bad"]) == 1)
    setting.send("bad", 4)
    eventually(lambda: setting.stored(4))
    assert client.sent["bad"] == [b"2", b"3", b"4"]


def test_a_late_failure_says_nothing_of_the_try_after_it(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_openings, "OPEN_WITHIN", 0.05)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.producer_openings._CREATE_AGAIN", 0.0)
    first, client = setting.goes_away("bad"), setting.clients[0]
    client.problems["bad"] = pulsar.AuthorizationError("no")
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    monkeypatch.setattr(producer_openings, "OPEN_WITHIN", 60.0)
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
    names = [f"bad{number}" for number in range(producer_openings.MOST_AT_ONCE + 3)]
    gate, client = setting.goes_away(*names), setting.clients[0]
    for ticket, name in enumerate(names):
        setting.send(name, ticket)
    setting.send("good", 100)
    eventually(lambda: setting.stored(100))
    assert len(client.opening) <= producer_openings.MOST_AT_ONCE + 1, "and the good one, before"
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
    with publishing() as setting:
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
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_producers._LEAVE_WITHIN", 0.2)
    with publishing() as setting:
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


def test_an_answer_that_names_no_place_is_no_receipt_the_message_goes_out_again_by_another_producer(
    setting: Setting,
) -> None:
    client = setting.clients[0]
    client.ledgers = [-1, 7]
    setting.send("bad", 1, 2)
    eventually(lambda: setting.stored(1, 2))
    first, second = client.made["bad"]
    assert not first.closed, "what else it has on the way is well"
    assert not second.closed
    assert Counter(client.sent["bad"]) == {b"1": 2, b"2": 2}
    assert [receipt.position.topic for receipt in setting.receipts.values()] == ["bad", "bad"]  # type: ignore[union-attr]


def test_a_message_that_never_has_a_place_is_lost_and_not_stored(setting: Setting) -> None:
    client = setting.clients[0]
    client.ledgers = [-1] * 10
    setting.send("bad", 1)
    eventually(lambda: 1 in setting.receipts)
    assert setting.receipts[1] == Unconfirmed("the broker calls it a duplicate and does not say where it is stored")
    assert client.sent["bad"] == [b"1"] * 3
    client.ledgers = []
    setting.send("bad", 1)
    eventually(lambda: setting.stored(1))


def test_numbers_do_not_depend_on_what_the_broker_says_of_its_last_one(setting: Setting) -> None:
    """0 is taken for none by the library; without one it takes the broker's, again with each connection until a receipt came."""
    assert [given["initial_sequence_id"] for _, given in setting.clients[0].asked] == [1]


def test_messages_with_a_due_time_have_a_producer_of_their_own_where_others_wait_for_a_batch(setting: Setting) -> None:
    setting.publisher.publish([(1, Outgoing("good", b"1", {})), (2, Outgoing("good", b"2", {}, deliver_at=5))])
    eventually(lambda: setting.stored(1, 2))
    assert [given["batching_enabled"] for topic, given in setting.clients[0].asked] == [True, False]


def test_a_new_client_sends_nothing_before_the_old_one_is_closed(setting: Setting) -> None:
    old = setting.clients[0]
    gate = setting.goes_away("closing")
    setting.publisher.renew()
    setting.send("good", 1)
    eventually(lambda: len(setting.clients) == 2)
    assert 1 not in setting.receipts
    gate.set()
    eventually(lambda: setting.stored(1))
    assert old.closed.is_set()
    assert old.sent == {}
