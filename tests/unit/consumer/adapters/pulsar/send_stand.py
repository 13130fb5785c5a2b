"""A stand for the sending of one client: a partition with its log, connections that break, and a clock, all by one thread.

The sending thread, the openings and the closings run when the stand says so: one seed is one course of events.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pulsar
import pytest
from kodo_consumer.adapters.pulsar import partition_producers, pending_sends, producer_openings, topic_routes
from kodo_consumer.adapters.pulsar.partition_producers import Producers
from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory, ProducerOptions
from kodo_consumer.core.engine.publishing import SEND_TIMEOUT
from kodo_consumer.core.values.broker import Confirmed, Receipt
from kodo_consumer.core.values.envelope import Outgoing

from tests.services.key_order import overtaken
from tests.unit.consumer.client_library import Id

TOPIC: Final = "t"
_SESSION: Final = 30.0  # seconds after which a broker that hung has lost its topics


class _Sent(NamedTuple):
    """A message that the client has. `since`: when it got it."""

    ticket: int
    callback: Callable[[Any, Any], None]
    since: float


class Wire:
    """A connection. `coming`: what the broker has still to read; `receipts`: what the client has still to read."""

    def __init__(self) -> None:
        self.coming: deque[tuple[float, _Sent]] = deque()
        self.receipts: deque[_Sent] = deque()


class ClientProducer:
    """A producer of the client library: it sends everything without a receipt once more with each connection."""

    def __init__(self, stand: SendStand) -> None:
        self._stand = stand
        self.pending: deque[_Sent] = deque()
        self.wire: Wire | None = None
        self.is_closed = False
        self.connect()

    def send_async(self, payload: bytes, callback: Callable[[Any, Any], None], **_: Any) -> None:
        if self.is_closed:
            callback(pulsar.Result.AlreadyClosed, None)
            return
        sent = _Sent(int(payload), callback, self._stand.now)
        self.pending.append(sent)
        if self.wire is not None:
            self.wire.coming.append((self._stand.now, sent))

    def is_connected(self) -> bool:
        return self.wire is not None

    def connect(self) -> None:
        self.wire = Wire()
        self.wire.coming.extend((self._stand.now, sent) for sent in self.pending)
        self._stand.wires.append(self.wire)

    def disconnect(self) -> None:
        """The connection ends; what the broker has still to read of it may be stored all the same."""
        self.wire = None

    def close(self) -> None:
        self.is_closed, self.wire = True, None
        self.fail(pulsar.Result.AlreadyClosed)

    def fail(self, result: Any) -> None:
        """Gives up everything."""
        pending, self.pending = self.pending, deque()
        for sent in pending:
            sent.callback(result, None)

    def refuse(self) -> None:
        """Gives up the first one alone."""
        self.pending.popleft().callback(pulsar.Result.UnknownError, None)

    def receive(self) -> None:
        """Reads one receipt."""
        if self.wire is not None and self.wire.receipts:
            sent = self.wire.receipts.popleft()
            if self.pending and self.pending[0] is sent:
                self.pending.popleft().callback(pulsar.Result.Ok, Id())


class SendStand:
    """Sends to one partition by `producers`. `stored`: tickets in the order of the partition's log."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int, options: ProducerOptions, *, cautious: bool) -> None:
        self.rng, self.now = random.Random(seed), 1_000.0
        self.threads: list[Callable[[], object]] = []
        self.wires: list[Wire] = []
        self.stored: list[int] = []
        self.keys: dict[int, str] = {}
        self.answers: dict[int, list[Receipt]] = {}
        self.is_away = False
        self._made: list[ClientProducer] = []
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=time.sleep)
        for module in (partition_producers, pending_sends, producer_openings, topic_routes):
            patch.setattr(module, "time", clock)
        for module in (partition_producers, producer_openings):
            patch.setattr(module, "begin", self._begin)
        self.producers = Producers(
            ProducerFactory(self, options), self._answer, lambda _: None, (lambda: None) if cautious else None
        )
        self.threads.clear()  # the sending itself

    # ---- what the client library and the threads of the house are to the producers

    def get_topic_partitions(self, topic: str) -> list[str]:
        return [topic]

    def create_producer(self, *_: Any, **__: Any) -> ClientProducer:
        if self.is_away:
            raise pulsar.ConnectError("no broker serves it")
        self._made.append(ClientProducer(self))
        return self._made[-1]

    def _begin(self, work: Callable[[], object], *_: Any, **__: Any) -> None:
        self.threads.append(work)

    def _answer(self, receipts: Iterable[tuple[int, Receipt]]) -> None:
        for ticket, receipt in receipts:
            self.answers.setdefault(ticket, []).append(receipt)

    # ---- the course of events

    @property
    def open(self) -> list[ClientProducer]:
        """Producers that are not closed."""
        return [one for one in self._made if not one.is_closed]

    def post(self, key: str) -> None:
        ticket = len(self.keys)
        self.keys[ticket] = key
        self.producers.send([(ticket, Outgoing(TOPIC, b"%d" % ticket, {}, key))])

    def turn(self) -> None:
        self.producers._turn()

    def run_thread(self) -> None:
        """One of the openings and closings comes to its end."""
        if self.threads:
            self.threads.pop(self.rng.randrange(len(self.threads)))()

    def store(self) -> None:
        """The broker reads one message of a connection, be it an old one, and stores it. One that hung for too long has lost the
        partition: it stores nothing more.
        """
        over = [wire for wire in self.wires if wire.coming and wire.coming[0][0] < self.now - _SESSION]
        for one in self.open:
            if one.wire in over:
                one.disconnect()
        self.wires = [wire for wire in self.wires if wire not in over]
        if reading := [wire for wire in self.wires if wire.coming]:
            wire = self.rng.choice(reading)
            _, sent = wire.coming.popleft()
            self.stored.append(sent.ticket)
            wire.receipts.append(sent)

    def lose_what_is_on_its_way(self) -> None:
        """A broker dies: nothing that it had still to read is stored."""
        for one in self.open:
            one.disconnect()
        self.wires.clear()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for one in self.open:
            if one.pending and self.now - one.pending[0].since >= SEND_TIMEOUT:
                one.fail(pulsar.Result.Timeout)

    def step(self, *, well: bool) -> None:
        """One event, mostly a good one where all is `well`."""
        rng = self.rng
        producer = rng.choice(self.open) if self.open else None
        match rng.choices(range(10), (3, 8, 4, 6, 6, 4, *((0, 0, 0, 0) if well else (5, 1, 1, 0.2))))[0]:
            case 0:
                self.post(rng.choice(["", "a", "a", "b", "c"]))
            case 1:
                self.turn()
            case 2:
                self.run_thread()
            case 3:
                self.store()
            case 4 if producer is not None and producer.wire is not None:
                producer.receive()
            case 4 if producer is not None:
                producer.connect()
            case 5:
                self.pass_time(rng.choice([0.02, 0.06, 0.06, 0.5, 1.0] if well else [0.06, 0.06, 0.5, 2.0, 5.0]))
            case 6 if producer is not None:
                producer.disconnect()
            case 7:
                self.lose_what_is_on_its_way()
            case 8:
                self.is_away = not self.is_away
            case 9 if producer is not None and producer.pending:
                producer.refuse()

    def settle(self) -> None:
        """All is well, until each message has its receipt."""
        self.is_away = False
        for _ in range(100_000):
            if self.answers.keys() == self.keys.keys():
                return
            self.turn()
            self.run_thread()
            self.store()
            for one in self.open:
                one.receive() if one.wire is not None else one.connect()
            self.pass_time(0.06)
        raise AssertionError(f"without a receipt: {sorted(self.keys.keys() - self.answers.keys())}")

    def overtaken(self) -> list[tuple[int, int]]:
        """See tests.services.key_order."""
        unsure = {ticket for ticket, (receipt, *_) in self.answers.items() if not isinstance(receipt, Confirmed)}
        return overtaken(((self.keys[ticket], ticket) for ticket in self.stored), unsure)
