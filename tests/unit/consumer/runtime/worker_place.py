"""A worker at work, with a cluster as a test says it is. Threads and real time, broker in memory."""

from __future__ import annotations

import threading
from random import Random

from kodo_consumer.core.values.broker import LaneStats, UnackedLimits
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Level, Outgoing, State
from kodo_consumer.core.values.handler_executor import HandlerExecutor
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import Message
from kodo_consumer.runtime.supervisor import WorkerSupervisor
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError, error
from kodoctl.topology.model.policies import DelayedDelivery
from tests.unit.consumer.engine_bench import topic
from tests.unit.consumer.pump import Pump


class MemoryCluster:
    """What a test says the cluster has."""

    def __init__(self, of: Policy) -> None:
        self.topics = {lane.topic for lane in of.every_lane} | set(of.written_topics)
        self.subscribed = {lane.topic for lane in of.every_lane}
        self.live: int | None = 1
        self.blocked: frozenset[str] = frozenset()
        self.limits: UnackedLimits | None = None
        self.rules: DelayedDelivery | None = None
        self.sizes: dict[str, int] | None = None
        self.asked = 0
        self.count = 1  # of partitions of each topic
        self.answers = threading.Event()
        self.answers.set()
        self.properties: dict[str, str] = {}
        self.named: dict[str, str] = {}  # active consumers

    def partitions(self, name: str) -> int | None:
        return self.count if name in self.topics else None

    def subscriptions(self, name: str) -> frozenset[str]:
        return frozenset({"s"} if name in self.subscribed else ())

    def active(self, name: str, subscription: str) -> dict[str, str]:
        return self.named

    def unacked_limits(self, name: str) -> UnackedLimits | None:
        return self.limits

    def delays(self, name: str) -> DelayedDelivery | None:
        return self.rules

    def largest(self, name: str) -> int | None:
        return None if self.sizes is None else self.sizes.get(name, 0)

    def schema(self, name: str, version: int) -> None:
        """None."""

    def latest_schema(self, name: str) -> int:
        """None."""
        return -1

    def close(self) -> None:
        pass

    def stats(self, name: str, subscription: str) -> LaneStats | None:
        self.asked += 1
        self.answers.wait(20)
        if self.live is None:
            raise ClusterError(error("K514", "no broker answers"))
        workers = frozenset(f"w{number}" for number in range(self.live))
        return LaneStats(workers, self.blocked, properties=self.properties, partitions=self.count)


class Place:
    """A service on a broker in memory, and what its handler saw."""

    def __init__(self, of: Policy, drain_timeout: float = 5.0, runner: HandlerExecutor | None = None) -> None:
        self.policy, self.seen = of, []
        self.broker = MemoryBroker(SystemClock())
        self.broker.create_for(of)
        self.cluster = MemoryCluster(of)
        self.gate = threading.Event()
        self.gate.set()
        runner = runner or ThreadExecutor(self.handle, of.concurrency)
        self.worker = Worker(of, self.broker, runner, SystemClock(), Random(0))
        self.service = WorkerSupervisor(self.worker, self.cluster, consumer_name="w", drain_timeout=drain_timeout)
        self.pump = Pump(self.broker)

    seen: list[str]

    def handle(self, message: Message) -> None:
        self.gate.wait(20)
        self.seen.append(message.id)
        if message.data == b"fail":
            raise ValueError

    def send(self, payload: bytes = b"x") -> None:
        self.broker.send(Outgoing(topic(Level.L1, State.READY), payload, {}))

    def left(self) -> int:
        return len(self.broker.backlog(topic(Level.L1, State.READY), "s"))
