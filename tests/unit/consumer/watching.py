"""Help for tests of what others see: a worker with threads on a broker in memory, asked over real HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from kodo_consumer.adapters.metrics.http_server import HttpEndpoint
from kodo_consumer.adapters.metrics.worker_view import WorkerView
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Level, Outgoing, State
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import Message
from kodo_consumer.runtime.supervisor import WorkerSupervisor
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.consumer.engine_bench import topic
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.runtime.worker_place import MemoryCluster


class Watched:
    """A worker, its service and its window. Payload `fail` fails, `bug` dies of another error."""

    def __init__(self, of: Policy, port: int = 0) -> None:
        self.broker = MemoryBroker(SystemClock())
        self.broker.create_for(of)
        self.cluster = MemoryCluster(of)
        self.worker = Worker(of, self.broker, ThreadExecutor(self.handle, of.concurrency), SystemClock(), Random(0))
        self.service = WorkerSupervisor(self.worker, self.cluster, consumer_name="w0", drain_timeout=5.0)
        self.sight = WorkerView(self.worker, self.service, tenants=3)
        self.window = HttpEndpoint(self.sight, "127.0.0.1", port)
        self.pump = Pump(self.broker)

    def handle(self, message: Message) -> None:
        """The handler."""
        if message.data == b"fail":
            raise ValueError

    def send(self, payload: bytes = b"x", **properties: str) -> None:
        """One message to L1."""
        self.broker.send(Outgoing(topic(Level.L1, State.READY), payload, properties))

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        return get(self.window.address, path)

    def health(self, path: str) -> tuple[int, list[list[str]]]:
        """Status and every worker's problems."""
        status, body = self.get(path)
        return status, [one["problems"] for one in json.loads(body)["workers"]]

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of all series with these labels, None without any."""
        found = [value for _, value in series(self.get("/metrics")[1], name, labels)]
        return sum(found) if found else None


def get(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    """One request over the network."""
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def series(text: str, name: str, labels: dict[str, str]) -> Iterator[tuple[dict[str, str], float]]:
    """Samples of one name as Prometheus would parse them."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample.labels, sample.value


@contextmanager
def watched(of: Policy, **options: Any) -> Iterator[Watched]:
    """Started, and ended afterwards."""
    found = Watched(of, **options)
    try:
        found.service.start()
        yield found
        found.service.stop()
    finally:
        found.window.close()
        found.pump.stop()
