"""The real adapter where no broker can be made to misbehave: the client library is a stand-in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pulsar
import pytest

from consumer.broker import LaneRequest, NeverTaken, Receipt
from consumer.envelope import Outgoing
from consumer.pulsar_broker.connection import PulsarBroker
from consumer.pulsar_broker.lanes import PulsarLane, _copied
from consumer.pulsar_broker.producers import ProducerOptions
from consumer.pulsar_broker.publisher import PulsarPublisher
from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection import Connection
from kodoctl.pulsar.thrown_away import ClientLog
from tests.support import eventually


class Id:
    """A message id as the client library makes them."""

    def ledger_id(self) -> int:
        return 7

    def entry_id(self) -> int:
        return 3

    def partition(self) -> int:
        return 0

    def batch_index(self) -> int:
        return -1


class ForeignMessage:
    """What a client in another language may send."""

    def message_id(self) -> Id:
        return Id()

    def data(self) -> bytes:
        return b"payload"

    def properties(self) -> dict[str, str]:
        return {"a": b"\xff".decode()}

    def partition_key(self) -> str:
        return "k"

    def ordering_key(self) -> str:
        return "o"

    def event_timestamp(self) -> int:
        return 4

    def publish_timestamp(self) -> int:
        return 5

    def encryption_context(self) -> None:
        return None


def test_properties_that_are_no_text_are_told_and_the_payload_is_kept() -> None:
    copied = _copied(ForeignMessage())
    assert (copied.broken, copied.payload) == ("not UTF-8 text, and lost: properties", b"payload")
    assert (copied.entry, copied.batch_index) == ((7, 3, 0), -1)
    assert (copied.properties, copied.key, copied.ordering_key, copied.event_time) == ({}, "k", "o", 4)


class Silent:
    """A consumer without messages, whose acknowledgements fail for one token."""

    def __init__(self) -> None:
        self.acked: list[object] = []
        self.closed = threading.Event()
        self._consumer = self  # the client library's own, inside of its wrapper
        self._asked: list[Callable[[Any, Any], None]] = []

    def receive_async(self, callback: Callable[[Any, Any], None]) -> None:
        self._asked.append(callback)

    def receive(self, _milliseconds: int) -> Any:
        raise pulsar.Timeout("nothing")

    def come(self, message: Any) -> None:
        """A message arrives."""
        eventually(lambda: self._asked)
        self._asked.pop()(pulsar.Result.Ok, message)

    def acknowledge(self, token: object) -> None:
        if token == "bad":
            raise pulsar.InvalidConfiguration("bad")
        self.acked.append(token)

    def is_connected(self) -> bool:
        return True

    def close(self) -> None:
        self.closed.set()
        while self._asked:
            self._asked.pop()(pulsar.Result.AlreadyClosed, None)


class Sink:
    """Room for everything; counts what it is told."""

    def __init__(self) -> None:
        self.lost = 0
        self.lost_partitions: list[str | None] = []
        self.problems: list[BaseException] = []

    def deliver(self, deliveries: Any) -> None: ...

    def room(self) -> int:
        return 1

    def disconnected(self, partition: str | None = None) -> None:
        self.lost += 1
        self.lost_partitions.append(partition)

    def broke(self, problem: BaseException) -> None:
        self.problems.append(problem)


class Client:
    """Gives out one consumer, and producers that block until they are let."""

    def __init__(self) -> None:
        self.consumer = Silent()
        self.gate = threading.Event()
        self.sent: list[bytes] = []
        self.sending = threading.Event()
        self.closed = threading.Event()

    def subscribe(self, *_: Any, **__: Any) -> Silent:
        return self.consumer

    def create_producer(self, *_: Any, **__: Any) -> Client:
        return self

    def send_async(self, payload: bytes, callback: Callable[[Any, Any], None], **_: Any) -> None:
        self.sending.set()
        self.gate.wait(20)
        self.sent.append(payload)
        callback(pulsar.Result.Ok, Id())

    def get_topic_partitions(self, topic: str) -> list[str]:
        return [topic]

    def close(self) -> None:
        self.closed.set()

    def shutdown(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def messages_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins need no wrapper."""
    monkeypatch.setattr("consumer.pulsar_broker.partitions._message", lambda raw: raw)


@pytest.fixture
def lane() -> Any:
    sink = Sink()
    request = LaneRequest("t", "s", "shared", "c", queue=10, batch=10, batch_bytes=1_000)
    return PulsarLane(Client(), request, sink), sink


def test_an_acknowledgement_that_fails_holds_up_no_other(lane: Any) -> None:
    reader, _ = lane
    consumer = reader._client.consumer
    reader.acknowledge(["a", "bad", "b"])
    assert consumer.acked == ["a", "b"]
    reader.close()


def test_closing_a_lane_is_no_lost_connection(lane: Any) -> None:
    reader, sink = lane
    reader.close()
    assert sink.lost == 0
    assert not reader._thread.is_alive()


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


def test_a_client_that_cannot_be_closed_orderly_is_left_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Client):
        def close(self) -> None:
            raise pulsar.AlreadyClosed("closed")

    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Broken())
    PulsarBroker(Connection("http://h:1", "pulsar://h:2")).close()


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


class Given(Silent):
    """A consumer with one message, or with what receiving it raises."""

    def __init__(self, first: Any) -> None:
        super().__init__()
        self.first = [first]

    def receive_async(self, callback: Callable[[Any, Any], None]) -> None:
        if not self.first:
            super().receive_async(callback)
        elif isinstance(self.first[0], BaseException):
            raise self.first.pop()
        else:
            callback(pulsar.Result.Ok, self.first.pop())


class Kept(Sink):
    """Keeps what is delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

    def deliver(self, deliveries: Any) -> None:
        self.got += deliveries


def lane_over(consumer: Any, sink: Sink, schemas: str = "") -> PulsarLane:
    client = Client()
    client.consumer = consumer
    request = LaneRequest("t", "s", "shared", "c", queue=10, batch=10, batch_bytes=1_000, schemas=schemas)
    return PulsarLane(client, request, sink)


def test_whatever_ends_the_thread_that_reads_a_lane_is_told_to_the_worker() -> None:
    sink = Sink()
    reader = lane_over(Given(RuntimeError("a bug")), sink)
    eventually(lambda: sink.problems)
    reader.close()
    assert [repr(problem) for problem in sink.problems] == ["RuntimeError('a bug')"]


def test_a_message_whose_copy_fails_is_delivered_as_broken_with_its_payload() -> None:
    sink = Kept()
    reader = lane_over(Given(ForeignMessage()), sink, schemas="L1")  # it has no schema version, which nobody expects
    eventually(lambda: sink.got)
    reader.close()
    (delivery,) = sink.got
    assert (delivery.payload, delivery.entry) == (b"payload", (7, 3, 0))
    assert delivery.broken == "it cannot be read: AttributeError"
    assert not sink.problems


def test_a_lane_whose_client_never_answers_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("consumer.pulsar_broker.lanes._LEAVE_WITHIN", 0.05)
    over = threading.Event()

    class Hanging(Silent):
        def close(self) -> None:
            over.wait(30)

    lane_over(Hanging(), Sink()).close()
    assert "t: its consumer does not close within 0 s and is left behind: t" in caplog.text
    over.set()


def test_a_client_that_never_closes_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("consumer.pulsar_broker.closing._ORDERLY_WITHIN", 0.05)
    monkeypatch.setattr("consumer.pulsar_broker.closing._AT_ONCE_WITHIN", 0.05)
    over = threading.Event()

    class Hanging(Client):
        def close(self) -> None:
            over.wait(30)

        shutdown = close

    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Hanging())
    PulsarBroker(Connection("http://h:1", "pulsar://h:2")).close()
    assert "the client of the binary port does not close" in caplog.text
    over.set()


def test_a_thread_of_the_adapter_that_ends_is_told_to_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: client)
    told: list[BaseException] = []
    broker = PulsarBroker(Connection("http://h:1", "pulsar://h:2"))
    broker.on_broken = told.append
    lane = broker.open(LaneRequest("t", "s", "failover", "c", queue=10, batch=10, batch_bytes=1_000), Sink())
    monkeypatch.setattr(client.consumer, "is_connected", lambda: 1 / 0)
    eventually(lambda: told)
    lane.close()
    broker.close()
    assert isinstance(told[0], ZeroDivisionError)


def test_the_client_librarys_log_is_read_also_where_nothing_is_but_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would cut it."""
    log = ClientLog()
    monkeypatch.setattr("kodoctl.pulsar.thrown_away._MOST", 500)
    monkeypatch.setattr("consumer.pulsar_broker.connection._LOG_EVERY", 0.01)
    monkeypatch.setattr("consumer.pulsar_broker.connection.client_log", lambda: log)
    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Client())
    broker = PulsarBroker(Connection("http://h:1", "pulsar://h:2"))
    publisher = broker.publisher(["t"], lambda _: None)
    with Path(log.path).open("a", encoding="utf-8") as file:
        file.write("an error, again and again\n" * 100)
    eventually(lambda: Path(log.path).stat().st_size == 0)
    publisher.close()
    broker.close()


def test_a_start_waits_for_producers_while_a_broker_is_away_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals: list[Exception] = [pulsar.Timeout("away"), pulsar.ConnectError("away")]

    class Away(Client):
        def create_producer(self, *_: Any, **__: Any) -> Client:
            if refusals:
                raise refusals.pop(0)
            return self

    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Away())
    broker = PulsarBroker(Connection("http://h:1", "pulsar://h:2"))
    broker.publisher(["t"], lambda _: None).close()
    assert refusals == []
    refusals.append(pulsar.TopicNotFound("none"))
    with pytest.raises(ClusterError, match="cannot publish"):
        broker.publisher(["t"], lambda _: None)
    broker.close()
