"""Partitions of a lane do not notice what happens to others: opening, losing and replacing their consumers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader, StartupWait
from kodo_consumer.core.broker import LaneRequest
from kodo_consumer.core.envelope import Delivery

from kodoctl.errors import ClusterError
from tests.support import eventually

TOPIC = "persistent://p/n/t"


class Id:
    """A message id: ledger, entry, partition."""

    def __init__(self, partition: int, number: int) -> None:
        self._partition, self.number = partition, number

    def ledger_id(self) -> int:
        return 7

    def entry_id(self) -> int:
        return self.number

    def partition(self) -> int:
        return self._partition

    def batch_index(self) -> int:
        return -1


class Message:
    """What the client library gives."""

    def __init__(self, partition: int, number: int) -> None:
        self._id = Id(partition, number)

    def message_id(self) -> Id:
        return self._id

    def data(self) -> bytes:
        return b"payload"

    def properties(self) -> dict[str, str]:
        return {}

    def partition_key(self) -> str:
        return ""

    def ordering_key(self) -> str:
        return ""

    def event_timestamp(self) -> int:
        return 0

    def publish_timestamp(self) -> int:
        return 0

    def encryption_context(self) -> None:
        return None


class Consumer:
    """One partition's. `there` are messages that it has already."""

    def __init__(self, topic: str) -> None:
        self.partition = int(topic.rpartition("-")[2])
        self.is_there, self.is_closed = True, False
        self.there: list[Message] = []
        self.acked: list[int] = []
        self._asked: list[Callable[[Any, Any], None]] = []
        self._consumer = self
        self.batches = 0

    def receive_async(self, callback: Callable[[Any, Any], None]) -> None:
        if self.there:
            callback(pulsar.Result.Ok, self.there.pop(0))
        else:
            self._asked.append(callback)

    def receive(self, _milliseconds: int) -> Message:
        if not self.there:
            raise pulsar.Timeout("nothing")
        return self.there.pop(0)

    def batch_receive(self) -> list[Message]:
        self.batches += 1
        found, self.there = self.there[:50], self.there[50:]
        return found

    def come(self, *numbers: int) -> None:
        """Messages arrive."""
        self.there += [Message(self.partition, number) for number in numbers]
        eventually(lambda: self._asked, every=0.001)
        self._asked.pop()(pulsar.Result.Ok, self.there.pop(0))

    def come_silently(self, number: int) -> None:
        """A message gets into the queue behind the look whether anybody waits: nobody is called."""
        eventually(lambda: self._asked, every=0.001)
        self.there.append(Message(self.partition, number))

    def fail(self) -> None:
        """Nothing more can come by it."""
        eventually(lambda: self._asked)
        self._asked.pop()(pulsar.Result.TopicTerminated, None)

    def acknowledge(self, token: Id) -> None:
        if self.is_closed:
            raise pulsar.AlreadyClosed("closed")
        self.acked.append(token.number)

    def is_connected(self) -> bool:
        return self.is_there

    def close(self) -> None:
        self.is_closed = True


class Client:
    """A cluster of `count` partitions. What subscribing to one raises, if anything, is in `problems`."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.problems: dict[int, Exception] = {}
        self.unknown: list[Exception] = []  # what asking for the partitions raises, one after the other
        self.made: dict[int, list[Consumer]] = {}
        self.options: list[dict[str, Any]] = []

    def get_topic_partitions(self, topic: str) -> list[str]:
        if self.unknown:
            raise self.unknown.pop(0)
        return [f"{topic}-partition-{number}" for number in range(self.count)]

    def subscribe(self, topic: str, *_: Any, **options: Any) -> Consumer:
        made = Consumer(topic)
        if made.partition in self.problems:
            raise self.problems[made.partition]
        self.options.append(options)
        self.made.setdefault(made.partition, []).append(made)
        return made

    def of(self, partition: int) -> Consumer:
        """The consumer that a partition has now."""
        return eventually(lambda: self.made.get(partition))[-1]


class Sink:
    """Keeps what it is given and told."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.lost: list[str | None] = []
        self.problems: list[BaseException] = []
        self.free = 100

    def deliver(self, deliveries: Any) -> None:
        self.got += deliveries

    def room(self) -> int:
        return self.free

    def disconnected(self, partition: str | None = None) -> None:
        self.lost.append(partition)

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)

    def numbers(self, partition: int) -> list[int]:
        return [one.entry[1] for one in self.got if one.partition == str(partition)]  # type: ignore[index]


class Stand:
    """One lane over three partitions."""

    def __init__(self) -> None:
        self.client, self.sink = Client(), Sink()

    def open(self, seconds: float = 5.0, type_: Literal["shared", "key_shared"] = "shared") -> PulsarLaneReader:
        request = LaneRequest(TOPIC, "s", type_, "c", queue=300, batch=100, batch_bytes=1_000)
        self.lane = PulsarLaneReader(self.client, request, self.sink, StartupWait(seconds, 0.0))
        return self.lane


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_consumer._message", lambda raw: raw)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_consumer._AGAIN", 0.01)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._NAMES_AGAIN", 0.01)
    found = Stand()
    yield found
    if hasattr(found, "lane"):
        found.lane.close()
    assert found.sink.problems == []


def test_each_partition_has_its_part_of_the_receiver_queue(stand: Stand) -> None:
    stand.open()
    assert [one["receiver_queue_size"] for one in stand.client.options] == [99, 99, 99], "one more each is on its way"


def test_a_partition_that_no_broker_serves_is_read_once_one_does_and_the_others_meanwhile(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.client.problems[1] = pulsar.Timeout("no broker")
    lane = stand.open(0.05)
    assert lane.unconnected == [f"{TOPIC}-partition-1"]
    assert "partition-1: no broker serves it yet: the others are read meanwhile" in caplog.text
    stand.client.of(0).come(5)
    eventually(lambda: stand.sink.numbers(0) == [5])
    del stand.client.problems[1]
    stand.client.of(1).come(6)
    eventually(lambda: stand.sink.numbers(1) == [6])
    assert lane.connected


def test_a_refusal_ends_a_start_and_what_was_opened_is_closed(stand: Stand) -> None:
    stand.client.problems[2] = pulsar.ConsumerBusy("exclusive")
    with pytest.raises(ClusterError) as told:
        stand.open()
    assert f"s on {TOPIC}-partition-2: " in str(told.value)
    assert all(consumer.is_closed for made in stand.client.made.values() for consumer in made)


def test_partitions_are_asked_for_again_where_the_broker_asked_is_away(stand: Stand) -> None:
    stand.client.unknown = [pulsar.Timeout("away"), pulsar.ConnectError("away")]
    assert stand.open().connected
    stand.lane.close()
    stand.client.unknown = [pulsar.TopicNotFound("no such topic")]
    with pytest.raises(ClusterError, match="no such topic"):
        stand.open()


def test_a_lost_connection_is_told_with_its_partition_and_what_still_comes_by_it_is_not_delivered(stand: Stand) -> None:
    lane = stand.open()
    stand.client.of(1).is_there = False
    lane.check_connection()
    lane.check_connection()
    assert stand.sink.lost == ["1"], "once"
    assert (lane.reads("0"), lane.reads("1"), lane.reads(None), lane.reads("9")) == (True, False, True, False)
    stand.client.of(1).come(1, 2)
    stand.client.of(0).come(3)
    eventually(lambda: stand.sink.numbers(0) == [3])
    eventually(lambda: stand.client.of(1)._asked)
    stand.client.of(1).is_there = True
    lane.check_connection()
    stand.client.of(1).come(1)
    eventually(lambda: stand.sink.numbers(1) == [1])
    assert lane.connected


def test_only_the_partition_whose_connection_stays_away_gets_another_consumer_which_acknowledges_what_ended_meanwhile(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_consumer._GIVE_UP", 0.0)
    lane = stand.open()
    stand.client.of(1).come(4)
    eventually(lambda: stand.sink.numbers(1) == [4])
    stand.client.problems[1] = pulsar.Timeout("no broker")
    stand.client.of(1).is_there = False
    lane.check_connection()
    time.sleep(0.01)
    lane.check_connection()
    eventually(lambda: stand.client.of(1).is_closed)
    lane.acknowledge([stand.sink.got[0].token])
    stand.client.of(2).come(9)
    eventually(lambda: stand.sink.numbers(2) == [9])
    del stand.client.problems[1]
    eventually(lambda: len(stand.client.made[1]) == 2)
    eventually(lambda: stand.client.of(1).acked == [4])
    assert stand.sink.lost == ["1", "1"]
    assert [len(stand.client.made[number]) for number in (0, 2)] == [1, 1]


def test_a_backlog_comes_in_batches(stand: Stand) -> None:
    stand.open()
    stand.client.of(0).come(*range(300))
    eventually(lambda: len(stand.sink.got) == 300)
    assert stand.sink.numbers(0) == list(range(300)), "in order"
    assert stand.client.of(0).batches


@pytest.mark.parametrize("type_", ["shared", "key_shared"])
def test_a_message_that_nobody_is_called_for_is_delivered_and_so_is_the_next(
    stand: Stand, type_: Literal["shared", "key_shared"]
) -> None:
    """The client library calls nobody whose wait began while a message was on its way into its queue."""
    stand.open(type_=type_)
    consumer = stand.client.of(0)
    consumer.come_silently(1)
    eventually(lambda: stand.sink.numbers(0) == [1])
    consumer.come(2)
    eventually(lambda: stand.sink.numbers(0) == [1, 2])


@pytest.mark.parametrize("behind", [0, 2])
def test_where_order_is_kept_a_message_that_nobody_was_called_for_is_before_the_one_of_the_call(
    stand: Stand, behind: int
) -> None:
    stand.open(type_="key_shared")
    consumer = stand.client.of(0)
    consumer.come_silently(1)
    eventually(lambda: consumer._asked)
    asked = consumer._asked.pop()
    consumer.there += [Message(0, 3 + number) for number in range(behind)]
    asked(pulsar.Result.Ok, Message(0, 2))
    eventually(lambda: len(stand.sink.got) == 2 + behind)
    assert stand.sink.numbers(0) == list(range(1, 3 + behind))


def test_where_order_is_kept_a_message_that_was_found_waits_for_a_call_that_is_on_its_way(stand: Stand) -> None:
    stand.open(type_="key_shared")
    consumer = stand.client.of(0)
    eventually(lambda: consumer._asked)
    asked = consumer._asked.pop()  # the call for 1 is on its way, 2 is in the queue
    consumer.there.append(Message(0, 2))
    eventually(lambda: not consumer.there)
    assert stand.sink.numbers(0) == []
    asked(pulsar.Result.Ok, Message(0, 1))
    eventually(lambda: stand.sink.numbers(0) == [1, 2])


def test_what_a_consumer_that_is_closed_meanwhile_raises_at_a_look_harms_nobody(stand: Stand) -> None:
    stand.open()
    consumer = stand.client.of(0)
    looks = list[int]()

    def receive(milliseconds: int) -> Message:
        looks.append(milliseconds)
        raise pulsar.AlreadyClosed("closed")

    consumer.receive = receive  # type: ignore[method-assign]
    eventually(lambda: len(looks) > 1)
    stand.client.of(1).come(7)
    eventually(lambda: stand.sink.numbers(1) == [7])


def test_a_consumer_by_which_nothing_can_come_is_replaced(stand: Stand) -> None:
    stand.open()
    first = stand.client.of(0)
    first.fail()
    eventually(lambda: len(stand.client.made[0]) == 2)
    assert first.is_closed
    eventually(lambda: stand.sink.lost == ["0"])


def test_one_partition_is_connected_anew_or_all_are(stand: Stand) -> None:
    lane = stand.open()
    lane.reconnect(0.0, 0.0, "2")
    lane.check_connection()
    eventually(lambda: stand.lane.connected and len(stand.client.made[2]) == 2)
    assert stand.sink.lost == ["2"]
    lane.reconnect(0.0, 0.01)
    lane.check_connection()
    eventually(lambda: sorted(map(str, stand.sink.lost)) == ["0", "1", "2", "2"])
    eventually(lambda: [len(stand.client.made[number]) for number in range(3)] == [2, 2, 3])


def test_a_partition_that_is_to_be_connected_anew_while_it_is_opened_tells_so_at_once(stand: Stand) -> None:
    stand.client.problems[1] = pulsar.Timeout("no broker")
    lane = stand.open(0.0)
    lane.reconnect(0.0, 0.0, "1")
    lane.check_connection()
    assert stand.sink.lost == ["1"], "nothing came since"


def test_a_topic_that_gets_more_partitions_is_read_whole(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    lane = stand.open()
    stand.client.unknown = [pulsar.Timeout("away")]
    stand.client.count = 4
    eventually(lambda: lane.check_connection() or 3 in stand.client.made)
    stand.client.of(3).come(1)
    eventually(lambda: stand.sink.numbers(3) == [1])
    lane.acknowledge([stand.sink.got[0].token])
    assert stand.client.of(3).acked == [1]


def test_how_long_partitions_have_been_connected(stand: Stand) -> None:
    lane = stand.open()
    stand.client.of(1).is_there = False
    lane.check_connection()
    assert lane.long_connected(0.0) == {"0", "2"}
    assert lane.long_connected(60.0) == frozenset()


def test_who_starts_waits_for_all_its_lanes_together() -> None:
    class Late:
        first_try = threading.Event()

    patience = StartupWait(0.2, 0.05)
    began = time.monotonic()
    assert len(patience.wait([Late(), Late()])) == 2  # type: ignore[list-item]
    assert time.monotonic() - began >= 0.2
    began = time.monotonic()
    patience.wait([Late()])  # type: ignore[list-item]
    assert time.monotonic() - began >= 0.05


def test_a_lane_that_is_left_has_no_consumers_until_it_is_joined(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    lane = stand.open()
    lane.leave(30.0)
    lane.check_connection()
    assert stand.sink.lost == [], "what is queued is acknowledged before"
    lane.join()
    lane.leave(0.0)
    lane.check_connection()
    eventually(lambda: sorted(map(str, stand.sink.lost)) == ["0", "1", "2"])
    assert all(stand.client.of(number).is_closed for number in range(3))
    assert lane.connected, "nothing of it is missed"
    stand.client.count = 4
    time.sleep(0.05)
    lane.check_connection()
    assert [len(made) for made in stand.client.made.values()] == [1, 1, 1]
    lane.join()
    eventually(lambda: [len(stand.client.made[number]) for number in range(3)] == [2, 2, 2])
    stand.client.of(1).come(5)
    eventually(lambda: stand.sink.numbers(1) == [5])
    eventually(lambda: lane.check_connection() or 3 in stand.client.made)


def test_a_partition_that_is_found_while_the_lane_is_left_is_not_opened_until_it_is_joined(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    lane = stand.open()
    asked, answer = threading.Event(), threading.Event()
    names = stand.client.get_topic_partitions

    def get_topic_partitions(topic: str) -> list[str]:
        asked.set()
        assert answer.wait(20)
        return names(topic)

    monkeypatch.setattr(stand.client, "get_topic_partitions", get_topic_partitions)
    stand.client.count = 4
    eventually(lambda: lane.check_connection() or asked.is_set())
    lane.leave(0.0)
    lane.check_connection()
    answer.set()
    eventually(lambda: "3" in lane._consumers)
    eventually(lambda: not any(thread.name == "kodo-partitions" for thread in threading.enumerate()))
    lane.check_connection()
    assert 3 not in stand.client.made
    assert "no broker serves it yet" not in caplog.text
    lane.join()
    eventually(lambda: 3 in stand.client.made)
    assert not stand.client.of(3).is_closed


def test_a_lane_joined_before_it_was_left_reconnects_because_it_gave_messages_up(stand: Stand) -> None:
    lane = stand.open()
    lane.leave(0.0)
    lane.join()
    lane.check_connection()
    eventually(lambda: sorted(map(str, stand.sink.lost)) == ["0", "1", "2"])
    eventually(lambda: [len(stand.client.made[number]) for number in range(3)] == [2, 2, 2])


def test_a_partition_that_opens_while_the_lane_is_left_is_closed_and_opened_again_when_it_is_joined(
    stand: Stand,
) -> None:
    stand.client.problems[1] = pulsar.Timeout("no broker")
    lane = stand.open(0.0)
    lane.leave(0.0)
    lane.check_connection()
    eventually(lambda: set(map(str, stand.sink.lost)) == {"0", "1", "2"})
    del stand.client.problems[1]
    time.sleep(1.2)
    assert all(one.is_closed for one in stand.client.made.get(1, ()))
    lane.join()
    eventually(lambda: any(not one.is_closed for one in stand.client.made.get(1, ())))
