"""The real adapter where no broker can be made to misbehave: the client library is a stand-in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
from kodo_consumer.adapters.pulsar.delivery_decoding import _copy_message
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader
from kodo_consumer.adapters.pulsar.pulsar_broker import PulsarBroker
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.runtime.threads import log_end

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.discarded_messages import ClientLog
from tests.services.polling import eventually
from tests.unit.consumer.client_library import Client, Id, Silent


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
    copied = _copy_message(ForeignMessage())
    assert (copied.broken, copied.payload) == ("not UTF-8 text, and lost: properties", b"payload")
    assert (copied.entry, copied.batch_index) == ((7, 3, 0), -1)
    assert (copied.properties, copied.key, copied.ordering_key, copied.event_time) == ({}, "k", "o", 4)


class Sink:
    """Room for everything; counts what it is told."""

    def __init__(self) -> None:
        self.lost = 0
        self.lost_partitions: list[str | None] = []
        self.problems: list[BaseException] = []

    def deliver(self, deliveries: Any) -> None: ...

    def room(self) -> int:
        return 1

    def on_disconnect(self, partition: str | None = None) -> None:
        self.lost += 1
        self.lost_partitions.append(partition)

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Nothing is confirmed here."""

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)


@pytest.fixture(autouse=True)
def messages_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins need no wrapper."""
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_consumer._message", lambda raw: raw)


@pytest.fixture
def lane() -> Any:
    sink = Sink()
    request = LaneRequest("t", "s", "shared", "c", queue=10, batch=10, batch_bytes=1_000)
    return PulsarLaneReader(Subscriber(Client()), request, sink), sink


def test_an_acknowledgement_that_fails_holds_up_no_other(lane: Any) -> None:
    reader, _ = lane
    consumer = reader._subscriber._client.consumer
    reader.acknowledge(["a", "bad", "b"])
    assert consumer.acked == ["a", "b"]
    reader.close()


def test_closing_a_lane_is_no_lost_connection(lane: Any) -> None:
    reader, sink = lane
    reader.close()
    assert sink.lost == 0
    assert not reader._thread.is_alive()


def test_a_client_that_cannot_be_closed_orderly_is_left_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Client):
        def close(self) -> None:
            raise pulsar.AlreadyClosed("closed")

    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Broken())
    PulsarBroker(Connection("http://h:1", "pulsar://h:2")).close()


def test_a_worker_asks_another_broker_before_its_topics_stood_still_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A subscribe that went to a broker that hangs has no answer, also once that broker is back: it waits for the client's time-out."""
    made: list[dict[str, Any]] = []

    def client(_url: str, **options: Any) -> Client:
        made.append(options)
        return Client()

    monkeypatch.setattr(pulsar, "Client", client)
    PulsarBroker(Connection("http://h:1", "pulsar://h:2")).close()
    assert [options["operation_timeout_seconds"] for options in made] == [8]


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


def lane_over(consumer: Any, sink: Sink, schemas: str = "") -> PulsarLaneReader:
    client = Client()
    client.consumer = consumer
    request = LaneRequest("t", "s", "shared", "c", queue=10, batch=10, batch_bytes=1_000, schemas=schemas)
    return PulsarLaneReader(Subscriber(client), request, sink)


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
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._LEAVE_WITHIN", 0.05)
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
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_close._ORDERLY_WITHIN", 0.05)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_close._AT_ONCE_WITHIN", 0.05)
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
    broker.report_to(told.append, lambda _: None)
    lane = broker.open(LaneRequest("t", "s", "failover", "c", queue=10, batch=10, batch_bytes=1_000), Sink())
    monkeypatch.setattr(client.consumer, "is_connected", lambda: 1 / 0)
    eventually(lambda: told)
    lane.close()
    broker.close()
    assert isinstance(told[0], ZeroDivisionError)


def test_the_client_librarys_log_is_read_also_where_nothing_is_but_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would cut it."""
    log = ClientLog()
    monkeypatch.setattr("kodoctl.pulsar.connection.discarded_messages._MOST", 500)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.pulsar_broker._LOG_EVERY", 0.01)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.pulsar_broker.client_log", lambda: log)
    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Client())
    broker = PulsarBroker(Connection("http://h:1", "pulsar://h:2"))
    publisher = broker.publisher(["t"], lambda _: None)
    with Path(log.path).open("a", encoding="utf-8") as file:
        file.write("an error, again and again\n" * 100)
    eventually(lambda: Path(log.path).stat().st_size == 0)
    publisher.close()
    broker.close()


def test_what_is_thrown_away_while_a_lane_opens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client receives as soon as it subscribes. What it threw away then was taken for another worker's."""
    log = ClientLog()

    class Receiving(Client):
        def subscribe(self, *given: Any, **options: Any) -> Any:
            with Path(log.path).open("a", encoding="utf-8") as file:
                file.write("[persistent://p/n/t-partition-0, s, 0] Discarding corrupted message at 7:3\n")
            looked = len(reads)
            eventually(lambda: len(reads) > looked + 1)
            return super().subscribe(*given, **options)

    reads: list[object] = []
    news = log.news
    monkeypatch.setattr(log, "news", lambda since: (reads.append(since), news(since))[1])
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.pulsar_broker._LOG_EVERY", 0.01)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.pulsar_broker.client_log", lambda: log)
    monkeypatch.setattr(PulsarBroker, "_new_client", lambda _self: Receiving())
    broker = PulsarBroker(Connection("http://h:1", "pulsar://h:2"))
    alarms: list[Alarm] = []
    broker.report_to(log_end, alarms.append)
    publisher = broker.publisher(["t"], lambda _: None)
    request = LaneRequest("persistent://p/n/t", "s", "failover", "c", queue=10, batch=10, batch_bytes=1_000)
    lane = broker.open(request, Sink())
    lane.close()
    publisher.close()
    broker.close()
    assert [(alarm.kind, "7:3" in alarm.text) for alarm in alarms] == [("thrown_away", True)]


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
    with pytest.raises(ClusterError, match=r"cannot publish: no such topic: t; `kodoctl apply FILE` creates it$"):
        broker.publisher(["t"], lambda _: None)
    broker.close()
