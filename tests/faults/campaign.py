"""Consumers, a producer and a broker at work, and one fault after the other. The ledger decides what it did.

Everything runs in one go: a fault meets what the one before it left behind. After the last one all is well, and all has
to come to an end by itself.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar
from kodo_consumer import Producer
from kodo_consumer.core.values.broker import Confirmed

from tests.brokers.topics import backlog, create_topics
from tests.faults.ledger import Ledger, Verdict, body
from tests.faults.machine import Machine
from tests.faults.nursery import Nursery
from tests.services.polling import eventually
from tests.source_roots import PATHS

TOPOLOGY = """
version: 1
name: faults
tenant: public
namespace: faults
topics:
  orders:
    payload: {type: json, schema: order.json}
    backup: true
    subscriptions:
      billing:
        concurrency: %(slots)s
        expected_workers: 2
        handler_timeout: 5s
        in_place: []
        lookahead: {messages: 2000}
        retrying: {delays: [1s, 6s], attempts: 4}
        backup: {delays: [2s], attempts: 3}
"""
SCHEMA = {"type": "object", "required": ["n", "proof"], "properties": {"n": {"type": "integer"}}}
SUFFIXES = ("", "-B1", "-billing-RETRYING", "-billing-PENDING", "-billing-BLOCKING")
SLOTS = 4
WORKERS = 2
LOOKAHEAD = 2_000
EVERYTHING = WORKERS * LOOKAHEAD  # what all of them hold: a broken connection brings it again
HELD = SLOTS + 64 + 1_000  # of one process: what runs, what it and the client gather of acknowledgements
Fault = Callable[["Campaign"], None]


@dataclass
class Tally:
    """What was done to them, for the report. `bound`: handler runs that these faults may have doubled."""

    faults: Counter[str] = field(default_factory=Counter)
    bound: int = 0
    hostile: int = 0  # messages that were meant to do harm
    slowest_recovery: float = 0.0  # seconds from the end of a fault to the next effect


class Campaign:
    """One broker, two consumers that are started again whenever they end, one producer that never stops."""

    def __init__(
        self,
        folder: Path,
        *,
        rate: int = 50,
        seed: int = 0,
        disk: int | None = None,
        machine: Any = None,
        topology: str = "",
        suffixes: Sequence[str] = SUFFIXES,
        failing: int = 10,
    ) -> None:
        """`machine`: what runs instead of a standalone, with `start`, `close`, `broker` and `wire`. Of the messages each
        `failing`-th fails at first. `suffixes`: of the topics that are read.
        """
        self.folder, self.rng, self.rate = folder, random.Random(seed), rate
        self.tally = Tally()
        self.story: list[str] = []  # a line for each fault
        self.environ: dict[str, str] = {}  # settings of consumers and producer
        self._suffixes, self._failing = suffixes, failing
        self.ledger = Ledger(folder, failing)
        self.file = folder / "topology" / "faults.yaml"
        self.file.parent.mkdir()  # its own folder: consumers watch it for changes
        self.file.write_text(topology or TOPOLOGY % {"slots": SLOTS}, encoding="utf-8")
        (self.file.parent / "order.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        (folder / "clock").write_text("0")
        self.machine = machine or Machine(folder / "broker", disk=disk)
        self.topic = "persistent://public/faults/orders"
        self._next = 0
        self._over, self._sending = threading.Event(), threading.Event()
        self._sending.set()
        self._workers: list[int] = []  # pids
        self._threads: list[threading.Thread] = []
        self._orders: list[dict[str, str]] = []  # variables of the next process: where it dies
        self._doomed: int | None = None  # the process that got them

    # ---- life

    @contextmanager
    def running(self) -> Iterator[None]:
        """The broker, the consumers and the producer, while the faults come."""
        machine = self.machine
        try:
            machine.start()
            self.prepare()
            with self._nursery():
                yield
        finally:
            machine.close()

    def prepare(self) -> None:
        """Makes the topics."""
        assert self.machine.broker.admin("PUT", "namespaces/public/faults").ok
        create_topics(self.machine.broker, str(self.file))

    def properties(self, number: int) -> dict[str, str]:
        """What a message is sent with."""
        return {}

    @contextmanager
    def _nursery(self) -> Iterator[None]:
        broker = self.machine.broker
        where = ["--admin-url", broker.admin_url, "--broker-url", broker.broker_url]
        arguments = ["run", str(self.file), "--topic", "orders", "--subscription", "billing"]
        handler = ["--handler", "tests.faults.victim:handle"]
        environ = {
            "KODO_CONSUMER_STORE": self.ledger.store, "VICTIM_HOME": str(self.folder), "KODO_CONSUMER_DRAIN_TIMEOUT": "10s",
            "PYTHONPATH": PATHS, "VICTIM_FAILING": str(self._failing), **self.environ,
        }  # fmt: skip
        self._children = Nursery(self.folder, [*arguments, *handler, *where], environ)
        self._threads = [threading.Thread(target=self._supervise) for _ in range(WORKERS)]
        self._threads.append(threading.Thread(target=self._produce))
        try:
            for thread in self._threads:
                thread.start()
            eventually(lambda: self.ledger.effects, within=90)
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
            self._children.close()

    def _supervise(self) -> None:
        """Starts a consumer, and another as soon as that ends."""
        while not self._over.is_set():
            variables = self._orders.pop() if self._orders else {}
            pid = self._children.start(**variables)
            self._workers.append(pid)
            if variables:
                self._doomed = pid
            while self._children.wait(pid, 0.2) is None and not self._over.is_set():
                pass
            if self._over.is_set():
                self._children.signal(pid, signal.SIGTERM)
                if self._children.wait(pid, 30) is None:
                    self._children.signal(pid, signal.SIGKILL)
            self._workers.remove(pid)

    def _produce(self) -> None:
        """Sends at its rate, whatever happens; the ledger learns of every receipt and of every lack of one."""
        broker = self.machine.broker
        place: dict[str, Any] = {
            "admin_url": broker.admin_url,
            "broker_url": broker.broker_url,
            "environ": self.environ,
        }
        with suppress(Exception), Producer.load(self.file, topic="orders", **place) as producer:
            while not self._over.wait(0.1):
                for _ in range(self.rate // 10 if self._sending.is_set() else 0):
                    self._send(producer)

    def _send(self, producer: Producer) -> None:
        number = self._next
        self._next += 1
        with suppress(Exception):  # it is not sent, and has no receipt

            def told(receipt: object) -> None:
                self.ledger.receipt(number, stored=isinstance(receipt, Confirmed))

            producer.post(body(number).encode(), told, properties=self.properties(number))

    # ---- faults

    def suffer(self, name: str, fault: Fault, *, repeats: int = HELD) -> None:
        """One fault, and then effects again. `repeats`: handler runs it may double."""
        began = time.monotonic()
        self.tally.faults[name] += 1
        self.tally.bound += repeats
        fault(self)
        self.recover()
        self.story.append(f"{time.monotonic() - began:6.1f} s  {self.ledger.effects:7} effects  {name}")

    def recover(self, within: float = 120.0) -> None:
        """Waits until consumers get on again, by themselves."""
        before, began = self.ledger.effects, time.monotonic()
        eventually(lambda: self.ledger.effects > before, within=within)
        self.tally.slowest_recovery = max(self.tally.slowest_recovery, time.monotonic() - began)

    def die_at(self, step: str) -> None:
        """The next consumer dies at this step, and the one in its place before it."""
        self._doomed = None
        self._orders.append({"KILL_AT": step, "KILL_AFTER": str(self.rng.randint(1, 30))})
        self._children.signal(self.rng.choice(self._workers), signal.SIGKILL)
        doomed = eventually(lambda: self._doomed, within=30)
        if step.startswith("drain"):
            eventually(lambda: self.ledger.handles(doomed), within=60)  # before that it has not begun to heed signals
            self._children.signal(doomed, signal.SIGTERM)
        how = eventually(lambda: self._children.ended.get(doomed), within=90)
        assert how == -signal.SIGKILL, f"the consumer that was to die at {step} ended with {how}"

    def kill(self) -> None:
        """Any consumer, at any moment."""
        time.sleep(self.rng.random() * 0.5)
        pid = self.rng.choice(self._workers)
        self._children.signal(pid, signal.SIGKILL)
        assert self._children.wait(pid, 30) is not None

    def drain(self) -> None:
        """SIGTERM to one of them: it ends by itself, in time, and with nothing to be said."""
        pid = eventually(self._one_that_handles, within=60)
        self._children.signal(pid, signal.SIGTERM)
        assert self._children.wait(pid, 30) == 0

    def _one_that_handles(self) -> int | None:
        """Not one that was killed a moment ago, and whose place nobody has yet."""
        alive = [pid for pid in self._workers if pid not in self._children.ended and self.ledger.handles(pid)]
        return self.rng.choice(alive) if alive else None

    def jump(self, milliseconds: int, seconds: float = 2.0) -> None:
        """The consumers' wall clocks jump, and jump back after that time."""
        (self.folder / "clock").write_text(str(milliseconds))
        time.sleep(seconds)
        (self.folder / "clock").write_text("0")

    # ---- the end

    def settle(self, within: float = 90.0) -> Verdict:
        """All is well; everything has to be handled. `within`: seconds in which there must be less left than before. Then
        the ledger is read.
        """
        self.machine.wire.set()
        assert self._threads[-1].is_alive(), "the producer gave up"
        self._sending.clear()
        least, deadline = self.left(), time.monotonic() + within
        while (left := self.left()) and time.monotonic() < deadline:
            if left < least:
                least, deadline = left, time.monotonic() + within
            time.sleep(0.5)
        return self.ledger.judge(self.dead_letters(), still_stored=left, bound=self.tally.bound)

    def left(self) -> int:
        return sum(backlog(self.machine.broker, self.topic + suffix, "billing") for suffix in self._suffixes)

    def dead_letters(self) -> dict[int, str]:
        """Bodies by number; what never was an order is left out."""
        client = pulsar.Client(self.machine.broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        found = {}
        try:
            reader = client.create_reader(f"{self.topic}-billing-DLQ-partition-0", pulsar.MessageId.earliest)
            while reader.has_message_available():
                text = reader.read_next(10_000).data().decode(errors="replace")
                with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
                    number = int(json.loads(text)["n"])
                    if number >= 0:
                        found[number] = text
        finally:
            client.close()
        return found
