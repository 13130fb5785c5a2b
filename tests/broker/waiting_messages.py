"""Help for tests of waiting messages on the real broker: a topology, messages as workers leave them, and who has them."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing
from random import Random
from typing import Any

import pulsar

from kodoctl.protocol.overrides import Override, OverrideKind, parse, with_override
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.message_reader import ReadMessage, read_stored
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.override_store import OverrideStore
from tests.brokers.workspace import Run, Workspace

TOPICS = """
orders:
  fair_by: uid
  levels: double
  backup: true
  policies: {deduplication: true}
  message_properties: {uid: required}
  subscriptions:
    billing: {states: [retrying, pending, blocking]}
    shipping: {states: [retrying]}
"""
TOPIC_OF = {
    "L1/retrying": "orders-billing-RETRYING",
    "L1/blocking": "orders-billing-BLOCKING",
    "L2/pending": "orders-L2-billing-PENDING",
    "L2/ready": "orders-L2",
    "B1/ready": "orders-B1",
}
HOUR = 3_600_000


class Waits:
    """A workspace with the topics of `orders` / `billing` applied, and nothing in them."""

    def __init__(self, workspace: Workspace, topics: str = TOPICS) -> None:
        self.workspace = workspace
        workspace.topology(topics)
        workspace.apply("topologies")

    def put(self, lane: str, numbers: Any, *, delay: int = HOUR, **changes: str) -> None:
        """Messages `{"n": number}` that wait in a lane for `delay` ms, 0: they are due. Keyword arguments are properties
        (`kodo_for` for `kodo-for`).
        """
        now = int(time.time() * 1000)
        with self.workspace.client() as client:
            producer = client.create_producer(self.workspace.full(TOPIC_OF[lane]), block_if_queue_full=True)
            for number in numbers:
                due = now + delay + number
                properties = {
                    "uid": f"u{number % 3}",
                    "kodo-id": f"id-{number}",
                    "kodo-due": str(due),
                    "kodo-reason": "ConnectionError" if number % 2 else "over its limit",
                    "kodo-attempts-retrying": "3",
                    "kodo-hop": "4",
                    "kodo-origin-id": f"9:{number}:0:-1",
                    "kodo-for": "billing",
                    **{name.replace("_", "-"): value for name, value in changes.items()},
                }
                producer.send_async(
                    json.dumps({"n": number}).encode(),
                    _ignored,
                    partition_key=f"k{number % 5}",
                    event_timestamp=1_000 + number,
                    properties=properties,
                    deliver_at=due if delay else None,
                )
            producer.flush()
            producer.close()

    def waiting(self, *words: str, code: int | None = 0) -> Run:
        """`kodoctl waiting …`"""
        return self.workspace.run("waiting", *words, code=code)

    def listed(self, *more: str) -> dict[str, Any]:
        """`waiting list` as JSON."""
        found: dict[str, Any] = self.waiting("list", "topologies", "--format", "json", *more).json()
        return found

    def plan(self, lane: str, where: str = "true", *more: str, file: str = "p.json", code: int = 0) -> dict[str, Any]:
        """A plan, written and as JSON."""
        named = ["topologies", "--topic", "orders", "--subscription", "billing", "--lane", lane, "--where", where]
        run = self.waiting("plan", *named, "--out", file, "--format", "json", *more, code=code)
        found: dict[str, Any] = run.json() if run.out else {}
        return found

    def apply(self, *more: str, file: str = "p.json", code: int | None = 0) -> dict[str, Any]:
        """The report of an attempt."""
        run = self.waiting("apply", file, "--rate", "5000/s", "--format", "json", *more, code=code)
        found: dict[str, Any] = json.loads(run.out) if run.out else {}
        return found

    def stored(self, lane: str) -> list[ReadMessage]:
        """Everything that a lane's topic stores, acknowledged or not."""
        broker = self.workspace.broker
        connection = Connection(admin_url=broker.admin_url, broker_url=broker.broker_url)
        with BrokerClient(connection) as client:
            part = f"{self.workspace.full(TOPIC_OF[lane])}-partition-0"
            return list(read_stored(client, part, (2**62, 2**62)))

    def left(self, lane: str, subscription: str = "billing") -> Counter[int]:
        """Number of a message -> how many of it the subscription has not acknowledged in a lane."""
        found: Counter[int] = Counter()
        with self.workspace.client() as client:
            consumer = client.subscribe(
                self.workspace.full(TOPIC_OF[lane]), subscription, pulsar.ConsumerType.Exclusive
            )
            try:
                while True:
                    found[json.loads(consumer.receive(700).data())["n"]] += 1
            except pulsar.Timeout:
                consumer.close()
                return found

    def delivered(self, lane: str, seconds: float) -> Counter[int]:
        """Number of a message -> how often a worker's consumer would get it within so many seconds. Acknowledges nothing."""
        found: Counter[int] = Counter()
        with self.workspace.client() as client:
            consumer = client.subscribe(self.workspace.full(TOPIC_OF[lane]), "billing", pulsar.ConsumerType.Shared)
            end = time.monotonic() + seconds
            while (rest := end - time.monotonic()) > 0:
                try:
                    found[json.loads(consumer.receive(max(1, int(rest * 1000))).data())["n"]] += 1
                except pulsar.Timeout:
                    break
            consumer.close()
        return found

    def orders(self) -> tuple[Override, ...]:
        """Live orders of the subscription."""
        path = f"{self.workspace.path('orders')}/subscription/billing/properties"
        return parse(self.workspace.admin("GET", path)["kodo-steer"]) if self._is_steered(path) else ()

    def pause(self, lane: str, lasting: int) -> Override:
        """The order of a person: the lane is paused for `lasting` ms."""
        now = int(time.time() * 1000)
        order = Override(OverrideKind.PAUSE, now, now + lasting, "me@here", lane=lane)
        connection = Connection(admin_url=self.workspace.broker.admin_url)
        with closing(HttpAdmin(connection)) as admin:
            store = OverrideStore(admin, self.workspace.full("orders"), "billing", Random(7))
            store.change(lambda orders: with_override(orders, order), now)
        return order

    def _is_steered(self, path: str) -> bool:
        return "kodo-steer" in (self.workspace.admin("GET", path) or {})


def _ignored(*_: object) -> None:
    return
