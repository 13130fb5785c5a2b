"""Sending to a cluster whose nodes fail: a receipt is a stored message, and nothing is sent after it was given up."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.adapters.pulsar.receipts import ReceiptPosition
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.envelope import Outgoing

from kodoctl.pulsar.connection.client_options import create_client
from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.cluster import Cluster
from tests.services.polling import eventually

log = logging.getLogger(__name__)
pytestmark = pytest.mark.full
PARTITIONS = 6
NUMBER = "number"
_OUTAGE = float(os.environ.get("KODOCTL_TEST_OUTAGE", "600"))  # seconds
_PATIENCE = 150.0  # seconds that everything sent is stored within


class Moves:
    """Moves messages as a worker does: what has no receipt goes out again, until it has one."""

    def __init__(
        self, cluster: Cluster, namespace: str, *, deduplication: bool = True, partitions: int = PARTITIONS
    ) -> None:
        self.cluster, self.topic, self.partitions = cluster, f"persistent://{namespace}/moves", partitions
        self.path = self.topic.replace("://", "/")
        assert cluster.admin(
            "POST", f"namespaces/{namespace}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        ).ok
        assert cluster.admin("PUT", f"{self.path}/partitions", partitions).ok
        if deduplication:
            assert cluster.admin("POST", f"{self.path}/deduplicationEnabled", True).ok
            eventually(lambda: cluster.admin("GET", f"{self.path}/deduplicationEnabled").text == "true")
        self.receipts: dict[int, list[ReceiptPosition]] = {}
        self.clients = 0
        self._ticket = 0
        self._numbers: dict[int, int] = {}
        self._again: list[tuple[float, int]] = []
        self.publisher = PulsarPublisher(self._connect, [self.topic], self._receive)

    def _connect(self) -> Any:
        self.clients += 1
        return create_client(Connection(self.cluster.admin_urls[0], self.cluster.broker_url))

    def _receive(self, receipts: Any) -> None:
        for ticket, receipt in receipts:
            number = self._numbers.pop(ticket, None)
            if number is None:
                continue  # of a client that was given up
            if isinstance(receipt, Confirmed):
                assert isinstance(receipt.position, ReceiptPosition)
                self.receipts.setdefault(number, []).append(receipt.position)
            else:
                self._again.append((time.monotonic() + random.uniform(0.2, 1.0), number))

    def send(self, number: int, *, delayed: bool = False) -> None:
        due = round(time.time() * 1000) + 500 if delayed else None
        message = Outgoing(self.topic, b"", {NUMBER: str(number)}, key=f"k{number}", deliver_at=due)
        self._ticket += 1
        self._numbers[self._ticket] = number
        self.publisher.publish([(self._ticket, message)])

    def send_again(self) -> None:
        """What has no receipt and has waited."""
        due = [one for one in self._again if one[0] <= time.monotonic()]
        for one in due:
            self._again.remove(one)
            self.send(one[1])

    def renew(self) -> None:
        """As a worker does when sends hang."""
        self.publisher.renew()
        hanging = list(self._numbers.values())
        self._numbers.clear()
        for number in hanging:
            self.send(number)

    def finish(self, numbers: int, within: float = _PATIENCE) -> None:
        """Waits until each of so many has a receipt, and leaves."""
        latest = time.monotonic() + within
        while len(self.receipts) < numbers and time.monotonic() < latest:
            self.send_again()
            time.sleep(0.05)
        self.publisher.close()
        assert len(self.receipts) == numbers

    def unload(self) -> None:
        for number in range(self.partitions):
            self.cluster.admin("PUT", f"{self.path}-partition-{number}/unload")

    def stored(self) -> dict[tuple[str, int, int, int], int]:
        """Numbers of all messages that can be read, by their places."""
        client, found = self._connect(), {}
        try:
            for number in range(self.partitions):
                part = f"{self.topic}-partition-{number}"
                reader = client.create_reader(part, pulsar.MessageId.earliest)
                while reader.has_message_available():
                    message = reader.read_next(10_000)
                    place = message.message_id()
                    found[part, place.ledger_id(), place.entry_id(), place.batch_index()] = int(
                        message.properties()[NUMBER]
                    )
        finally:
            client.close()
        return found

    def copies(self) -> Counter[int]:
        """How often each number is stored. Each receipt's place has been looked up before."""
        stored = self.stored()
        for number, positions in self.receipts.items():
            for topic, token in positions:
                place = (topic, token.ledger_id(), token.entry_id(), token.batch_index())
                assert stored.get(place) == number, f"{number} has a receipt for {place}, where {stored.get(place)} is"
        return Counter(stored.values())


@contextmanager
def _meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Does something again and again beside the test."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.5):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _without_quorum(cluster: Cluster, moves: Moves, seconds: float) -> None:
    """Two bookies are away while the partitions move: what was sent has no receipt when its producer connects again."""
    cluster.pause("bookie-1")
    cluster.pause("bookie-2")
    try:
        unloading = threading.Thread(target=moves.unload)
        unloading.start()
        time.sleep(seconds)
    finally:
        cluster.resume("bookie-1")
        cluster.resume("bookie-2")
    unloading.join()


def test_what_is_sent_before_and_after_a_reconnection_without_receipts_is_all_stored(
    cluster: Cluster, namespace: str
) -> None:
    """The client used to give the numbers of the first ones to the others as well, and the broker dropped these as duplicates."""
    moves = Moves(cluster, namespace, partitions=1)
    cluster.pause("bookie-1")
    cluster.pause("bookie-2")
    try:
        for number in range(3):
            moves.send(number)
        time.sleep(1)
        unloading = threading.Thread(target=moves.unload)
        unloading.start()
        time.sleep(1.5)
        for number in range(3, 8):
            moves.send(number)
        time.sleep(0.5)
    finally:
        cluster.resume("bookie-1")
        cluster.resume("bookie-2")
    unloading.join()
    moves.finish(8)
    copies = moves.copies()
    assert copies.keys() == set(range(8))
    assert max(copies.values()) <= 2


def test_a_message_with_a_due_time_that_overtakes_a_batch_costs_no_message(cluster: Cluster, namespace: str) -> None:
    moves = Moves(cluster, namespace, partitions=1)
    for number in range(200):
        moves.send(number, delayed=number % 2 == 1)
        if number % 2:
            time.sleep(0.01)
    moves.finish(200)
    assert moves.copies() == Counter(range(200))


def test_every_receipt_names_a_stored_message_while_partitions_move_and_bookies_are_away(
    cluster: Cluster, namespace: str
) -> None:
    moves = Moves(cluster, namespace)
    with _meanwhile(moves.unload):
        for number in range(400):
            moves.send(number, delayed=number % 2 == 1)
            moves.send_again()
            time.sleep(0.02)
            if number == 200:
                _without_quorum(cluster, moves, 4)
    moves.finish(400)
    copies = moves.copies()
    assert copies.keys() == set(range(400))
    assert max(copies.values()) <= 2


@pytest.mark.timeout(1_200)
def test_ten_thousand_moves_with_every_fault_are_all_stored(cluster: Cluster, namespace: str) -> None:
    moves, faults = Moves(cluster, namespace), random.Random(18)

    def fault() -> None:
        match faults.randrange(4):
            case 0:
                moves.unload()
            case 1:
                _without_quorum(cluster, moves, faults.uniform(2, 20))
            case 2:
                broker = f"broker-{faults.randint(1, 3)}"
                cluster.pause(broker)
                time.sleep(faults.uniform(5, 45))
                cluster.resume(broker)
            case _:
                broker = f"broker-{faults.randint(1, 3)}"
                cluster.kill(broker)
                time.sleep(faults.uniform(1, 40))
                cluster.start(broker)
        time.sleep(5)

    with _meanwhile(fault):
        for number in range(10_000):
            moves.send(number, delayed=number % 2 == 1)
            moves.send_again()
            time.sleep(0.03)
    moves.finish(10_000, within=300)
    copies = moves.copies()
    assert copies.keys() == set(range(10_000))
    assert sum(copies.values()) < 12_000


def test_a_client_that_was_given_up_sends_nothing_when_bookies_are_back(cluster: Cluster, namespace: str) -> None:
    moves = Moves(cluster, namespace, deduplication=False)
    for number in range(50):
        moves.send(number)
    eventually(lambda: len(moves.receipts) == 50)
    cluster.kill("bookie-3")
    before = threading.active_count()
    for number in range(50, 150):
        moves.send(number)
    for _ in range(8):
        time.sleep(10)
        moves.send_again()
        moves.renew()
    assert threading.active_count() <= before + 20, "no thread was left behind"
    cluster.start("bookie-3")
    moves.finish(150)
    copies = moves.copies()
    assert copies.keys() == set(range(150))
    assert max(copies.values()) <= 2


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("how", ["dead", "hung"])
def test_ten_minutes_without_a_quorum_leave_two_copies_of_a_message_at_most(
    cluster: Cluster, namespace: str, how: str
) -> None:
    """Two bookies are away: dead all the time; or they hang, and end themselves when they find their sessions over. The brokers
    fence the topics and end the connections of their producers, several times a second.
    """
    moves = Moves(cluster, namespace, deduplication=False)
    for number in range(50):
        moves.send(number)
    eventually(lambda: len(moves.receipts) == 50)
    away, sent = ("bookie-2", "bookie-3"), 50
    for one in away:
        (cluster.kill if how == "dead" else cluster.pause)(one)
    for second in range(int(_OUTAGE)):
        if how == "hung" and second == _OUTAGE // 2:
            for one in away:
                cluster.resume(one)
        for _ in range(5 if sent < 1_050 else 0):
            moves.send(sent)
            sent += 1
        for _ in range(5):
            moves.send_again()
            time.sleep(0.2)
    cluster.heal()
    start = time.monotonic()
    moves.finish(sent)
    log.warning("all stored %.1f s after the bookies were back", time.monotonic() - start)
    copies = moves.copies()
    log.warning("%d messages, copies: %s", sent, sorted(Counter(copies.values()).items()))
    assert copies.keys() == set(range(sent))
    assert max(copies.values()) <= 2
