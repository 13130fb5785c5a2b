"""Brokers of either kind behind the broker port, with topics of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
from kodo_consumer.core.values.broker import Broker as BrokerPort
from kodo_consumer.core.values.broker import LaneReader, LaneRequest, Publisher, Receipt, SubscriptionType
from kodo_consumer.core.values.clock import Clock, SystemClock
from kodo_consumer.core.values.envelope import Delivery, Outgoing
from kodo_consumer.testing import ManualClock, MemoryBroker

from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.broker import Broker
from tests.brokers.topics import EARLIEST, unload

NATIVE = pytest.mark.skipif(find_spec("kodo_fast") is None, reason="the native border is not built (make setup)")


class Sink:
    """Keeps what a lane delivers."""

    def __init__(self, room: int = 1_000) -> None:
        self.lock = threading.Lock()
        self.got: list[Delivery] = []
        self.free = room
        self.lost = 0
        self.problems: list[BaseException] = []
        self.confirmed: list[int] = []
        self.unknown: list[int] = []

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self.lock:
            self.got += deliveries

    def room(self) -> int:
        return self.free

    def on_disconnect(self, partition: str | None = None) -> None:
        self.lost += 1

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        with self.lock:
            self.confirmed += confirmed
            self.unknown += unknown

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)

    @property
    def payloads(self) -> list[bytes | None]:
        with self.lock:
            return [delivery.payload for delivery in self.got]


class World:
    """A broker of either kind, with topics of its own."""

    clock: Clock
    port: BrokerPort

    def __init__(self) -> None:
        self.receipts: list[tuple[int, Receipt]] = []
        self.lanes: list[LaneReader] = []
        self.publishers: list[Publisher] = []

    def topic(self, name: str) -> str:
        raise NotImplementedError

    def create(self, name: str, *subscriptions: str) -> str:
        raise NotImplementedError

    def disconnect(self, name: str) -> None:
        raise NotImplementedError

    def refused(self, topic: str) -> Outgoing:
        """A message that no topic takes."""
        return Outgoing(topic, b"x" * (5 << 20), {})

    def pause(self) -> None:
        raise NotImplementedError

    def open(
        self,
        topic: str,
        sink: Sink,
        subscription: str = "s",
        kind: SubscriptionType = "shared",
        name: str = "c",
        *,
        confirms: bool = False,
    ) -> LaneReader:
        request = LaneRequest(topic, subscription, kind, name, 100, 50, 1 << 20, confirms=confirms)
        lane = self.port.open(request, sink)
        self.lanes.append(lane)
        return lane

    def publisher(self, *topics: str) -> Publisher:
        publisher = self.port.publisher(topics, self.receipts.extend)
        self.publishers.append(publisher)
        return publisher

    def publish(self, *messages: Outgoing) -> None:
        """Sends and awaits the receipts."""
        already = len(self.receipts)
        self.publisher(*{message.topic for message in messages}).publish(list(enumerate(messages)))
        self.until(lambda: len(self.receipts) == already + len(messages))

    def until(self, found: Callable[[], Any], within: float = 90.0) -> None:
        deadline = time.monotonic() + within
        while not found():
            assert time.monotonic() < deadline, "it never came"
            self.pause()

    def for_a_while(self, seconds: float) -> None:
        """Lets time pass in which something must not happen."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.pause()

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        for publisher in self.publishers:
            publisher.close()
        self.port.close()


class MemoryWorld(World):
    clock: ManualClock

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.port = self.broker = MemoryBroker(self.clock)

    def topic(self, name: str) -> str:
        return f"persistent://p/n/{name}"

    def create(self, name: str, *subscriptions: str) -> str:
        self.broker.create(self.topic(name), subscriptions)
        return self.topic(name)

    def disconnect(self, name: str) -> None:
        self.broker.disconnect(self.topic(name))

    def pause(self) -> None:
        self.broker.step()
        self.clock.advance(0.01)


class PulsarWorld(World):
    def __init__(self, broker: Broker, namespace: str, *, native: bool = False) -> None:
        from kodo_consumer.adapters.pulsar import PulsarBroker

        super().__init__()
        self._broker, self._namespace = broker, namespace
        self.clock = SystemClock()
        self.port = PulsarBroker(Connection(broker.admin_url, broker.broker_url), native=native)
        assert self.port.border.native == native, self.port.border

    def topic(self, name: str) -> str:
        return f"persistent://{self._namespace}/{name}"

    def create(self, name: str, *subscriptions: str) -> str:
        path = f"persistent/{self._namespace}/{name}"
        assert self._broker.admin("PUT", f"{path}/partitions", 1).ok
        for subscription in subscriptions:
            assert self._broker.admin("PUT", f"{path}/subscription/{subscription}", EARLIEST).ok
        return self.topic(name)

    def disconnect(self, name: str) -> None:
        unload(self._broker, self.topic(name))

    def pause(self) -> None:
        time.sleep(0.02)
