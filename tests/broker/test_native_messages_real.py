"""The native border on the real broker: texts with NULs whole, bundles limited in bytes, and no memory kept."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from kodo_consumer.core.values.broker import Confirmed, LaneRequest
from kodo_consumer.core.values.envelope import Delivery, Outgoing

from tests.brokers.broker import Broker
from tests.contract.worlds import NATIVE, PulsarWorld, Sink
from tests.native.client_messages import resident

pytestmark = [pytest.mark.broker, NATIVE]
MESSAGES = int(os.environ.get("KODOCTL_TEST_MESSAGES", "40000"))
_ROUND = 10_000
_TOLD = 1_000_000 if MESSAGES >= 1_000_000 else _ROUND  # messages between two lines about memory
_LIMIT = 24 << 20  # bytes of growth: caches of the client, arenas of malloc


@pytest.fixture
def world(broker: Broker, namespace: str) -> Iterator[PulsarWorld]:
    found = PulsarWorld(broker, namespace, native=True)
    yield found
    found.close()


def test_a_nul_in_a_text_arrives_unaltered_and_keeps_its_turn(world: PulsarWorld) -> None:
    topic = world.create("t", "s")
    sent = [
        Outgoing(topic, b"0", {"plain": "text"}, key="k"),
        Outgoing(topic, b"1", {"a\x00b": "c\x00d", "a": "e"}, key="k"),
        Outgoing(topic, b"2", {"plain": "text"}, key="k"),
        Outgoing(topic, b"3", {}, key="k\x00y", ordering_key="o\x00"),
        Outgoing(topic, b"4", {}, key="k"),
    ]
    world.publish(*sent)
    assert all(isinstance(receipt, Confirmed) for _, receipt in world.receipts)
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: len(sink.got) == 5)
    found = [(one.payload, dict(one.properties), one.key, one.ordering_key) for one in sink.got]
    expected = [(one.payload, dict(one.properties), one.key, one.ordering_key) for one in sent]
    assert sorted(found) == sorted(expected)
    assert [one[0] for one in found if one[2] == "k"] == [b"0", b"1", b"2", b"4"]


def test_a_bundle_ends_with_the_message_that_reaches_the_limit_of_bytes(world: PulsarWorld) -> None:
    class Bundles(Sink):
        def __init__(self) -> None:
            super().__init__(room=0)
            self.sizes: list[int] = []

        def deliver(self, deliveries: Sequence[Delivery]) -> None:
            self.sizes.append(sum(len(one.payload or b"") for one in deliveries))
            super().deliver(deliveries)

    topic, sink = world.create("t", "s"), Bundles()
    world.publish(*[Outgoing(topic, b"x" * 1_000, {})] * 200)
    lane = world.port.open(LaneRequest(topic, "s", "shared", "c", 1_000, 100, 10_000), sink)
    world.lanes.append(lane)
    time.sleep(0.5)  # all of them are there
    sink.free = 1_000
    lane.resume()
    world.until(lambda: len(sink.got) == 200)
    assert max(sink.sizes) == 10_000


class _Traffic(Sink):
    """Acknowledges what comes, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.tokens = 0, list[object]()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self.lock:
            self.tokens += [one.token for one in deliveries]
            self.count += len(deliveries)


@pytest.mark.timeout(300 + MESSAGES // 500)
def test_memory_stays_as_it_was_over_many_messages(world: PulsarWorld) -> None:
    """KODOCTL_TEST_MESSAGES says how many; a fifth of them is warming up."""
    topic, sink, all_there = world.create("t", "s"), _Traffic(), threading.Event()
    lane, receipts = world.open(topic, sink), [0]

    def count(found: object) -> None:
        receipts[0] += len(found)  # type: ignore[arg-type]
        all_there.set()

    publisher = world.port.publisher([topic], count)
    world.publishers.append(publisher)
    sizes: list[int] = []
    for sent in range(_ROUND, MESSAGES + 1, _ROUND):
        publisher.publish(
            [(n, Outgoing(topic, b"x" * 500, {"number": str(n), f"name-{n}": "v"}, key=f"k{n}")) for n in range(_ROUND)]
        )
        deadline = time.monotonic() + 120
        while receipts[0] < sent or sink.count < sent:
            assert time.monotonic() < deadline, (sent, receipts, sink.count)
            all_there.wait(0.05)
            with sink.lock:
                tokens, sink.tokens = sink.tokens, []
            lane.acknowledge(tokens)
        sizes.append(resident())
        if sent % _TOLD == 0:
            print(f"{sent:,} messages: {sizes[-1] >> 20} MiB", flush=True)  # noqa: T201
    settled = sizes[len(sizes) // 4 :]
    assert settled[-1] - settled[0] < _LIMIT, sizes
