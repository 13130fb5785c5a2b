"""Stored messages by the native border are those of the client's binding, and numbered ones are stored once, in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest

from kodoctl.pulsar.binary.bundled_producer import BundledProducer, dedup_producer
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.message_reader import ReadMessage, read_stored
from kodoctl.pulsar.binary.recall_transport import DedupProducer, RecalledMessage, Receipt
from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.broker import Broker
from tests.contract.worlds import NATIVE
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, NATIVE]
END = (2**62, 2**62)
NOISE = random.Random(7).randbytes(6 << 20)  # no compression makes it smaller


@pytest.fixture
def clients(broker: Broker) -> Iterator[tuple[BrokerClient, BrokerClient]]:
    """With the border, and without."""
    with (
        BrokerClient(Connection(broker.admin_url, broker.broker_url)) as native,
        BrokerClient(Connection(broker.admin_url, broker.broker_url, native=False)) as plain,
    ):
        assert native.border is not None
        assert plain.border is None
        yield native, plain


@pytest.fixture
def part(broker: Broker, namespace: str) -> str:
    """A partition that stores each number once."""
    assert broker.admin("PUT", f"persistent/{namespace}/t").ok
    assert broker.admin("POST", f"persistent/{namespace}/t/deduplicationEnabled", True).ok
    topic = f"persistent://{namespace}/t"
    eventually(lambda: broker.admin("GET", f"persistent/{namespace}/t/deduplicationEnabled").json())
    return topic


def _same(clients: tuple[BrokerClient, BrokerClient], part: str) -> list[ReadMessage]:
    native, plain = (list(read_stored(client, part, END)) for client in clients)
    assert native == plain
    return native


def test_whatever_is_stored_is_read_alike(clients: tuple[BrokerClient, BrokerClient], part: str) -> None:
    batched = (
        clients[1].get().create_producer(part, batching_enabled=True, batching_max_messages=7, block_if_queue_full=True)
    )
    for number in range(1_500):
        properties = {f"name {number % 5}": str(number), "ü": "\U0001f600", "a\0b": "c\0d"}
        batched.send_async(
            b"%d" % number, None, properties=properties, partition_key=f"k{number}", event_timestamp=number
        )
    batched.flush()
    alone = clients[1].get().create_producer(part, batching_enabled=False)
    alone.send(b"")
    alone.send(b"x" * 100_000, ordering_key="o\0", event_timestamp=2**52)
    alone.send(None, partition_key="gone")
    found = _same(clients, part)
    assert len(found) == 1_503
    assert [one.payload for one in found[:1_500]] == [b"%d" % number for number in range(1_500)]
    assert (found[-1].payload, found[-1].key) == (None, "gone")
    middle = found[700]
    later = list(read_stored(clients[0], part, END, after=(middle.ledger, middle.entry), only={found[1_501][1:5]}))
    assert later == [found[1_501]]


def test_what_stands_behind_a_batch_is_read_without_the_batch(
    clients: tuple[BrokerClient, BrokerClient], part: str
) -> None:
    batched = clients[1].get().create_producer(part, batching_enabled=True, batching_max_messages=5)
    for number in range(20):
        batched.send_async(b"%d" % number, None)
    batched.flush()
    found = _same(clients, part)
    place = found[7].ledger, found[7].entry
    behind = [one for one in found if (one.ledger, one.entry) > place]
    assert 0 < len(behind) < len(found)
    for client in clients:
        assert list(read_stored(client, part, END, after=place)) == behind


class Sent:
    """Messages to a lane, numbered from 1, and their receipts by number."""

    def __init__(self, lane: DedupProducer, messages: list[RecalledMessage]) -> None:
        self.receipts: dict[int, Receipt] = {}
        self.stops = 0
        for number, message in enumerate(messages, 1):
            lane.send(number, message, partial(self.receipts.__setitem__, number))
            if lane.full:
                self._flush(lane, len(messages))
        self._flush(lane, len(messages))
        eventually(lambda: len(self.receipts) == len(messages))
        lane.close()

    def _flush(self, lane: DedupProducer, last: int) -> None:
        while not lane.flush():
            self.stops += 1
            assert lane.last_number < last


def test_numbered_messages_are_stored_once_in_their_order(
    clients: tuple[BrokerClient, BrokerClient], part: str
) -> None:
    texts = {"a": "b", "n\0": "\0"}
    messages = [
        RecalledMessage(b"%d" % n, texts if n % 50 == 0 else {"n": str(n)}, f"k{n}", "o", n, 0) for n in range(1, 701)
    ]
    for turn in range(2):
        lane = dedup_producer(clients[0], part, "plan")
        assert isinstance(lane, BundledProducer)
        receipts = Sent(lane, messages).receipts.values()
        assert not any(one.problem for one in receipts)
        assert {bool(one.position) for one in receipts} == {turn == 0}, "the second time it has them"
    found = _same(clients, part)
    assert [(one.payload, one.properties, one.key, one.ordering_key, one.event_time) for one in found] == [
        one[:5] for one in messages
    ]


def test_what_is_too_large_as_it_is_goes_compressed_and_what_is_so_compressed_as_well_is_refused_alike_and_stops_what_is_behind_it(
    clients: tuple[BrokerClient, BrokerClient], part: str
) -> None:
    small, flat = (RecalledMessage(payload, {}, "", "", 0) for payload in (b"x", b"z" * 9_000_000))
    large = RecalledMessage(NOISE, {}, "", "", 0)
    native, plain = (
        Sent(dedup_producer(client, part, f"plan {number}"), [small, large, small, flat, small])
        for number, client in enumerate(clients)
    )
    assert (native.stops, plain.stops) == (1, 0)
    assert native.receipts[2] == plain.receipts[2]
    assert native.receipts[2].never
    for found in (native, plain):
        assert found.receipts[1].position
        assert all(found.receipts[number].position for number in (3, 4, 5))
    assert [one.payload for one in _same(clients, part)] == [b"x", b"x", flat.payload, b"x"] * 2
