"""Stand-ins of the client library's objects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pulsar
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.core.values.broker import Receipt
from kodo_consumer.core.values.envelope import Outgoing

from tests.services.polling import eventually


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

    def is_connected(self) -> bool:
        return True

    def get_topic_partitions(self, topic: str) -> list[str]:
        return [topic]

    def close(self) -> None:
        self.closed.set()

    def shutdown(self) -> None:
        self.closed.set()


class SlowReceiver:
    """The application's side of a publisher: it takes the first receipt, and is busy with it until the end has begun."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self._free = threading.Event()

    def __call__(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        self.tickets.extend(ticket for ticket, _ in receipts)
        self._free.wait(20)

    def close_meanwhile(self, publisher: PulsarPublisher, is_second_sent: Callable[[], bool]) -> None:
        """Publishes two messages; closes the publisher while the first receipt is handed over."""
        publisher.publish([(1, Outgoing("t", b"1", {}))])
        eventually(lambda: self.tickets == [1])
        publisher.publish([(2, Outgoing("t", b"2", {}))])
        eventually(is_second_sent)
        closing = threading.Thread(target=publisher.close)
        closing.start()
        eventually(lambda: publisher._over)
        self._free.set()
        closing.join(20)
