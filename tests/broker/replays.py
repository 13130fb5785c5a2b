"""Messages, handled ones and replays of a topology on the broker, for the tests of replays."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from random import Random
from typing import Any

import pulsar
import pytest

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.override_store import OverrideStore
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.brokers.workspace import Workspace

TOPICS = """
orders:
  partitions: 2
  fair_by: uid
  policies: {retention: {time: 1d, size: 100MiB}}
  message_properties: {uid: required}
  subscriptions:
    billing: {states: [retrying]}
    shipping: {states: []}
"""


class Replays:
    """A workspace with the topics of `orders` applied."""

    def __init__(self, workspace: Workspace, topics: str = TOPICS) -> None:
        self.workspace = workspace
        workspace.topology(topics)
        workspace.apply("topologies")

    def send(self, numbers: Iterable[int], *, batched: bool = False, **more: str) -> None:
        """Messages `{"n": number}` on the ground topic."""
        with self.workspace.client() as client:
            producer = client.create_producer(
                self.workspace.full("orders"), batching_enabled=batched, batching_max_publish_delay_ms=200
            )
            given = {name.replace("_", "-"): value for name, value in more.items()}
            for number in numbers:
                properties = {"uid": f"u{number % 3}", "kodo-id": f"id-{number}", **given}
                producer.send_async(
                    json.dumps({"n": number}).encode(), _ignored, partition_key=f"k{number}", properties=properties
                )
            producer.flush()
            producer.close()

    def take(self, seconds: float = 1.5, keep: Iterable[int] = ()) -> Counter[int]:
        """Number of a message -> how often `billing` gets it. Acknowledges all of them, except `keep`."""
        found: Counter[int] = Counter()
        with self.workspace.client() as client:
            consumer = client.subscribe(self.workspace.full("orders"), "billing", pulsar.ConsumerType.Shared)
            try:
                while True:
                    message = consumer.receive(int(seconds * 1000))
                    found[n := json.loads(message.data())["n"]] += 1
                    if n not in keep:
                        consumer.acknowledge(message)
            except pulsar.Timeout:
                consumer.close()
        return found

    def plan(self, *more: str, code: int = 0) -> dict[str, Any]:
        """A plan, written and as JSON."""
        named = ["topologies", "--topic", "orders", "--subscription", "billing", "--out", "p.json", "--format", "json"]
        run = self.workspace.run("replay", "plan", *named, *more, code=code)
        found: dict[str, Any] = run.json() if run.out else {}
        return found

    def apply(self, *more: str, code: int | None = 0) -> dict[str, Any]:
        """The report of an attempt."""
        run = self.workspace.run("replay", "apply", "p.json", "--format", "json", *more, code=code)
        found: dict[str, Any] = json.loads(run.out) if run.out else {}
        return found

    def undo(self, *more: str, run: str = "last", code: int | None = 0) -> dict[str, Any]:
        """The report of an undo."""
        words = ["replay", "undo", run, self.workspace.namespace, "--auto-approve", "--format", "json"]
        done = self.workspace.run(*words, *more, code=code)
        found: dict[str, Any] = json.loads(done.out) if done.out else {}
        return found

    def resume(self) -> None:
        """Ends every live order, as an engineer does."""
        with closing(HttpAdmin(Connection(admin_url=self.workspace.broker.admin_url))) as admin:
            store = OverrideStore(admin, self.workspace.full("orders"), "billing", Random(7))
            store.change(lambda _: (), int(time.time() * 1000))

    def is_paused(self) -> bool:
        """True if a live order stands."""
        path = f"{self.workspace.path('orders')}/subscription/billing/properties"
        return "kodo-steer" in (self.workspace.admin("GET", path) or {})


def _ignored(*_: object) -> None:
    return


def moment() -> str:
    """Now, as an option takes it."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat()


def published(producer: WireProducer, number: int, at: float) -> None:
    """Sends the message `{"n": number}` with a publish time in s since the epoch."""
    texts = binary(4, binary(1, b"uid") + binary(2, b"u1")) + binary(
        4, binary(1, b"kodo-id") + binary(2, b"%d" % number)
    )
    producer.send(wire_metadata(numeric(3, int(at * 1000)) + texts), json.dumps({"n": number}).encode())


@pytest.fixture
def replays(workspace: Workspace) -> Replays:
    """Applied topics without messages."""
    return Replays(workspace)
