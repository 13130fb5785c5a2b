"""The bar of the first complete path: two subscriptions, failures of every kind, topics moved under way; a ledger outside
the consumer decides.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, Producer
from kodo_consumer.core.state.in_flight import RECENT_SECONDS

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics, messages, unload
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 50_000
TENANTS = 10
SUBSCRIPTIONS = ("billing", "shipping")
RUNS_BEFORE_DEATH = 1 + 3 + 1 + 3  # ready, RETRYING, then B1 and its waits
TOPOLOGY = """
version: 1
name: bar
tenant: {tenant}
namespace: ns
topics:
  orders:
    levels: double
    backup: true
    fair_by: uid
    subscriptions:
      billing: &same
        in_place: []
        concurrency: 8
        retrying: {{delays: [1s, 2s], attempts: 3}}
        backup: {{delays: [1s, 6s], attempts: 3}}
      shipping:
        in_place: []
        concurrency: 8
        retrying: {{delays: [1s, 2s], attempts: 3}}
        backup: {{delays: [1s, 6s], attempts: 3}}
"""


def _failures(number: int) -> int:
    """How often a message fails: some 1, some 3, some 20 times, most never."""
    return {0: 1, 1: 3, 2: 20}.get(number % 50, 0)


class Ledger:
    """What the handlers of one subscription saw: counted outside the system under test."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.runs: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.mixed_up: list[str] = []  # identities that did not travel with their message
        self.done_at: dict[int, float] = {}
        self.soon_again: list[str] = []  # handled again while the worker should still have known that it was done

    def handle(self, message: Message) -> None:
        number = int(message.data)
        with self._lock:
            if (message.id, message.tenant) != (str(number), f"u{number % TENANTS}"):
                self.mixed_up.append(f"{number} came as {message!r}")
            self.runs[number] += 1
            now = time.monotonic()
            if not _failures(number) and now - self.done_at.get(number, now - RECENT_SECONDS) < RECENT_SECONDS:
                self.soon_again.append(f"{number}, {now - self.done_at[number]:.1f} s after it was done")
            fails = self.runs[number] <= _failures(number)
            self.done[number] += not fails
            if not fails:
                self.done_at[number] = now
        if fails:
            raise ValueError

    def repeats(self) -> int:
        """Handler runs beyond those that a world without faults would have seen."""
        return sum(max(0, runs - min(_failures(number) + 1, RUNS_BEFORE_DEATH)) for number, runs in self.runs.items())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_nothing_is_lost_and_subscriptions_do_not_meet(broker: Broker, tenant: str, tmp_path: Path) -> None:
    assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
    file = tmp_path / "bar.yaml"
    file.write_text(TOPOLOGY.format(tenant=tenant).replace("&same", ""), encoding="utf-8")
    create_topics(broker, str(file))
    place = broker.client_options
    with Producer.load(file, topic="orders", **place) as producer:
        for number in range(MESSAGES):
            producer.post(b"%d" % number, properties={"uid": f"u{number % TENANTS}"}, id=str(number))

    ledgers = {name: Ledger() for name in SUBSCRIPTIONS}
    consumers = {name: Consumer.load(file, topic="orders", subscription=name, **place) for name in SUBSCRIPTIONS}
    for name, consumer in consumers.items():
        consumer.handler(ledgers[name].handle)
        consumer.start()
    held = _run_and_unload_twice(broker, consumers, ledgers)
    eventually(lambda: not any(_left(broker, consumer) for consumer in consumers.values()), within=240, every=1)
    for consumer in consumers.values():
        consumer.stop()

    for name, consumer in consumers.items():
        _check(broker, name, consumer, ledgers[name], held[name])


def _run_and_unload_twice(broker: Broker, consumers: dict[str, Consumer], ledgers: dict[str, Ledger]) -> Counter[str]:
    """Moves every topic that is read, early and late; answers how many messages each worker held then."""
    held = Counter[str]()
    topics = {lane.topic for consumer in consumers.values() for lane in consumer.policy.lanes}
    for share in (0.2, 0.7):
        eventually(lambda at=share: all(len(ledger.runs) > MESSAGES * at for ledger in ledgers.values()), within=240)  # type: ignore[misc]
        held.update({name: _held(consumer) for name, consumer in consumers.items()})
        for topic in topics:
            unload(broker, topic)
    return held


def _held(consumer: Consumer) -> int:
    assert consumer._running is not None
    return (
        sum(lane.in_flight for lane in consumer._running.worker.engine.lanes)
        + len(consumer.policy.lanes) * consumer.policy.queue
    )


def _left(broker: Broker, consumer: Consumer) -> int:
    return sum(backlog(broker, lane.topic, consumer.policy.subscription) for lane in consumer.policy.lanes)


def _check(broker: Broker, name: str, consumer: Consumer, ledger: Ledger, held: int) -> None:
    assert consumer.policy.dead_letter is not None
    dead = Counter[int]()
    for letter in messages(broker, consumer.policy.dead_letter.topic):
        number, properties = int(letter.data()), letter.properties()
        dead[number] += 1
        assert (properties["kodo-reason"], properties["kodo-level"]) == ("ValueError", "B1")
        assert (properties["uid"], properties["kodo-id"]) == (f"u{number % TENANTS}", str(number))
        assert ledger.runs[number] >= RUNS_BEFORE_DEATH, "it died with attempts left"
    everything = set(range(MESSAGES))
    assert not ledger.mixed_up, ledger.mixed_up[:3]
    assert set(ledger.done) | set(dead) == everything, f"{name} lost messages"
    assert set(ledger.runs) == everything
    never_dead = {number for number in everything if _failures(number) < RUNS_BEFORE_DEATH}
    assert not set(dead) & never_dead, "a message died that would have been done"
    assert all(ledger.done[number] for number in never_dead)
    hopeless = everything - never_dead
    assert set(dead) | {number for number in hopeless if ledger.done[number]} >= hopeless
    doubled = sum(count - 1 for count in dead.values())
    repeats = ledger.repeats()
    print(f"{name}: repeats {repeats} of {held} held, {len(dead)} dead (doubled {doubled}), {consumer.summary()}")  # noqa: T201
    assert repeats + doubled <= held, "more repeats than what was held at the two disconnections explains"
    again = ledger.soon_again
    assert not again, f"{len(again)} were handled again by the worker that had finished with them: {again[:3]}"
    moved = next(line for line in consumer.summary() if line.startswith("moved"))
    for state in ("retrying", "escalated", "backup", "dead", "not_for_me"):
        assert state in moved
