"""Failover on the real broker: how long a partition rests when workers come and go while messages come all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kodo_consumer import Message
from kodo_consumer.core.state.failover_partitions import RESTS_AT_MOST
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.message import parts_of

from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.contract.worlds import PulsarWorld, Sink
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
_PARTITIONS = 4
_A_SECOND = 40
_KEYS = 40


class Starts:
    """When the last handler run of each partition started, and what ran in which order."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.handled: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def handle(self, message: Message) -> None:
        with self._lock:
            self.last[parts_of(message)[0].partition] = time.monotonic()
            self.handled.setdefault(message.key, []).append(int(message.data))

    def all_since(self, moment: float) -> bool:
        """True if a run of each partition has started since then."""
        return len(self.last) == _PARTITIONS and min(self.last.values()) > moment


@contextmanager
def _arriving(setting: Setting) -> Iterator[list[int]]:
    """Messages come at a steady rate, of every partition; how many were sent."""
    over, sent = threading.Event(), [0]

    def send() -> None:
        with setting.producer() as producer:
            while not over.wait(1 / _A_SECOND):
                producer.post(b"%d" % sent[0], key=f"k{sent[0] % _KEYS}")
                sent[0] += 1

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield sent
    finally:
        over.set()
        sending.join()


@pytest.mark.parametrize("deployed", [0, pytest.param(5, marks=pytest.mark.full)])
def test_a_partition_that_changes_hands_is_handled_again_in_time_while_messages_come_all_the_time(
    broker: Broker, tenant: str, tmp_path: Path, deployed: int
) -> None:
    """A further worker joins and leaves; and each of five is replaced by a new one."""
    setting = Setting(broker, tenant, tmp_path)
    setting.declare(
        f"type: failover, concurrency: 4, in_place: [], states: [], expected_workers: {max(2, deployed)}",
        f"partitions: {_PARTITIONS}",
    )
    starts, rests = Starts(), list[float]()

    def rested() -> None:
        """Waits until each partition is handled again."""
        began = time.monotonic()
        eventually(lambda: starts.all_since(began), every=0.02)
        rests.append(time.monotonic() - began)

    with ExitStack() as stack:
        workers = [stack.enter_context(ExitStack()) for _ in range(max(2, deployed))]
        for worker in workers:
            worker.enter_context(setting.worker(starts.handle))
        with _arriving(setting) as sent:
            rested()
            rests.clear()
            with setting.worker(starts.handle):
                rested()
            rested()
            for worker in workers[:deployed]:
                worker.close()
                worker.enter_context(setting.worker(starts.handle))
                rested()
        eventually(lambda: sum(len(set(numbers)) for numbers in starts.handled.values()) == sent[0])
    print("rests:", *(f"{rest:.1f} s" for rest in rests))  # noqa: T201
    assert max(rests) <= 4 * RESTS_AT_MOST, "a busy machine adds its own; tests/simulation asserts the limit itself"
    for numbers in starts.handled.values():
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), "in order"


def test_a_lane_that_is_not_read_says_since_when_its_client_holds_messages(broker: Broker, namespace: str) -> None:
    world = PulsarWorld(broker, namespace)
    try:
        topic, sink = world.create("t", "s"), Sink(room=0)
        lane = world.open(topic, sink, kind="failover")
        world.publish(*(Outgoing(topic, b"%d" % number, {}) for number in range(5)))
        world.until(lambda: lane.seconds_since_empty()["0"] > 1.0)
        sink.free = 100
        lane.resume()
        world.until(lambda: len(sink.got) == 5)
        world.until(lambda: lane.seconds_since_empty()["0"] < 1.0)
    finally:
        world.close()
