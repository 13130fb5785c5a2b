"""Traffic whose order is checked: a `Producer` and an outbox relay send keys to a topic, of which each message is moved to another.

Both topics have a subscription that keeps order. What is stored in each, and what its handler starts, has the order in which
the messages of a key were sent.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pulsar
from kodo_consumer import Consumer, Message, Producer, Transfer
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.outbox import TABLE, Outbox
from kodo_consumer.outbox.outbox_store import OutboxStore
from kodo_consumer.outbox.producers import Senders
from kodo_consumer.outbox.relay import Relay
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.runtime.settings import read_settings
from kodo_consumer.sending.environment import Environment
from sqlalchemy import create_engine, event

from tests.services.key_order import overtaken
from tests.services.polling import eventually

TOPICS = """
  events:
    partitions: 3
    policies: {retention: {time: unlimited, size: unlimited}}
    subscriptions: {copy: {type: key_shared, states: [], dead_letter: false, on_failure: block, produces: [copies]}}
  copies:
    partitions: 2
    policies: {retention: {time: unlimited, size: unlimited}}
    subscriptions: {read: {type: failover, states: [], dead_letter: false, on_failure: block}}
"""
_KEYS = 5
_PATIENCE = 240.0  # seconds without progress


class OrderedTraffic:
    """Sends `rate` messages a second by each way. `unsure`: numbers whose sender was told that there is no receipt."""

    def __init__(self, file: Path, folder: Path, namespace: str, place: dict[str, Any], *, rate: int = 20) -> None:
        self._file, self._namespace, self._place, self._rate = file, namespace, place, rate
        self._engine = create_engine(f"sqlite:///{folder / 'ordered.db'}", connect_args={"timeout": 30})
        event.listen(self._engine, "connect", lambda made, _: made.execute("PRAGMA journal_mode=WAL"))
        TABLE.create(self._engine)
        self._over, self._calm = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._handled: dict[str, list[tuple[str, int]]] = {"events": [], "copies": []}
        self._receipts: set[int] = set()
        self._next = 0
        self.unsure: set[int] = set()
        self.problems: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything at work, until the end of the block."""
        with ExitStack() as stack:
            for topic, subscription, handle in (("events", "copy", self._copy), ("copies", "read", self._read)):
                consumer = Consumer.load(self._file, topic=topic, subscription=subscription, **self._place)
                consumer.handler(handle)
                consumer.start()
                stack.callback(consumer.stop)
            threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._relay, self._produce)]
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._over.set)
            yield

    def settle(self) -> None:
        """Nothing more is sent; until everything that was stored is handled."""
        self._calm.set()
        known, since = -1, time.monotonic()
        while (left := self._left()) > 0:
            if left != known:
                known, since = left, time.monotonic()
            assert time.monotonic() < since + _PATIENCE, f"{left} are not handled; {self.problems}"
            time.sleep(0.5)

    def verdict(self) -> dict[str, list[tuple[int, int]]]:
        """What was overtaken, by where that shows; empty where order was kept."""
        seen = {f"stored in {topic}": self._stored(topic) for topic in self._handled}
        seen |= {f"handled of {topic}": numbers for topic, numbers in self._handled.items()}
        found = {place: overtaken(numbers, self.unsure) for place, numbers in seen.items()}
        return {place: pairs for place, pairs in found.items() if pairs}

    @property
    def handled(self) -> int:
        """How many messages came through both topics."""
        with self._lock:
            return len({number for _, number in self._handled["copies"]})

    # ---- handlers

    def _copy(self, message: Message) -> None:
        self._note("events", message)
        raise Transfer("copies")

    def _read(self, message: Message) -> None:
        self._note("copies", message)

    def _note(self, topic: str, message: Message) -> None:
        with self._lock:
            self._handled[topic].append((message.key, message.json()["n"]))

    # ---- senders

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - a thread that ended would be taken for one that sent nothing
            self.problems.append(f"{work.__name__}: {problem!r}")

    def _produce(self) -> None:
        outbox = Outbox()
        with suppress(Exception), Producer.load(self._file, topic="events", **self._place) as producer:
            while not self._over.wait(1 / self._rate):
                if self._calm.is_set():
                    continue
                number, self._next = self._next, self._next + 2
                self._post(producer, number)
                with self._engine.begin() as connection:
                    key = f"o{number % (2 * _KEYS)}"
                    outbox.add(connection, topic="events", payload={"n": number + 1}, key=key)

    def _post(self, producer: Producer, number: int) -> None:
        def on_receipt(receipt: object) -> None:
            with self._lock:
                (self._receipts if isinstance(receipt, Confirmed) else self.unsure).add(number)

        try:
            producer.post({"n": number}, on_receipt, key=f"p{number % (2 * _KEYS)}")
        except Exception:  # noqa: BLE001 - it is not sent
            with self._lock:
                self.unsure.add(number)

    def _relay(self) -> None:
        surroundings = Environment.of(**self._place)
        settings = read_settings(surroundings.environ, surroundings.folder)
        send_targets, connection = OutboxTopics(surroundings.topology(self._file)), surroundings.connection()
        senders = Senders(send_targets, lambda send_target: Producer.to(send_target, connection, settings))
        with closing(senders):
            relay = Relay(OutboxStore(self._engine), senders, SystemClock(), Random(0))
            relay.serve(self._over, drain_timeout=5.0, until_empty=lambda: False)

    # ---- the end

    def _left(self) -> int:
        """Messages that are stored for certain, or are to be, and are not handled."""
        with self._lock:
            posted = self._next // 2
            out = posted - len(self._receipts) - len(self.unsure)
            done = {number for _, number in self._handled["copies"]}
            due = self._receipts | set(range(1, self._next, 2))
            return out + len(due - done)

    def _stored(self, topic: str) -> list[tuple[str, int]]:
        """Key and number of all that is stored, by partition."""
        client = pulsar.Client(self._place["broker_url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        found: list[tuple[str, int]] = []
        try:
            for partition in client.get_topic_partitions(f"persistent://{self._namespace}/{topic}"):
                reader = client.create_reader(partition, pulsar.MessageId.earliest)
                while reader.has_message_available():
                    message = reader.read_next(30_000)
                    if message.data():  # none: a mark of the producer
                        found.append((message.partition_key(), json.loads(message.data())["n"]))
                reader.close()
        finally:
            client.close()
        return found


def await_traffic(traffic: OrderedTraffic, more: int = 20) -> None:
    """Until so many messages more came through."""
    before = traffic.handled
    eventually(lambda: traffic.handled >= before + more, within=120)
