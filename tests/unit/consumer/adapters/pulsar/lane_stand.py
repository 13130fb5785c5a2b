"""A lane over three partitions, with a client library that is not there: messages come when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pulsar
from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader, StartupWait
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.envelope import Delivery

from tests.services.polling import eventually

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

    def on_disconnect(self, partition: str | None = None) -> None:
        self.lost.append(partition)

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Nothing is confirmed here."""

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
        self.lane = PulsarLaneReader(Subscriber(self.client), request, self.sink, StartupWait(seconds, 0.0))
        return self.lane
