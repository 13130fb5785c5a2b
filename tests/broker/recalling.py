"""Help for tests of recalls on the real broker: a topology, dead letters as a worker leaves them, and what arrives."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pulsar
from kodo_consumer.adapters.stores.factory import StorePlace, parse_store
from kodo_consumer.core.values.store import Exchange
from kodo_consumer.policy_builder import policy_of

from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.message_reader import ReadMessage, read_stored
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import RecallEvent
from kodoctl.topology.load import load_topology
from tests.brokers.workspace import Run, Workspace
from tests.services.polling import eventually

TOPICS = """
orders:
  fair_by: uid
  levels: double
  backup: true
  message_properties: {uid: required}
  subscriptions:
    billing: {}
"""
ONE_LANE = "orders:\n  subscriptions:\n    billing: {states: [retrying]}\n"
DLQ = "orders-billing-DLQ"
RETRYING = "orders-billing-RETRYING"


class Recalls:
    """A workspace with the topics of `orders` / `billing` applied."""

    def __init__(self, workspace: Workspace, topics: str = TOPICS) -> None:
        self.workspace = workspace
        self._lanes = (RETRYING,) if topics == ONE_LANE else (RETRYING, "orders-L2-billing-RETRYING")
        workspace.topology(topics)
        workspace.apply("topologies")

    def die(self, numbers: Any, *, batch: int = 1, **changes: str) -> None:
        """Dead letters `{"n": number}`, several in an entry when `batch` is more than 1. Keyword arguments are properties
        (`kodo_recall` for `kodo-recall`).
        """
        with self.workspace.client() as client:
            producer = client.create_producer(
                self.workspace.full(DLQ),
                batching_enabled=batch > 1,
                batching_max_messages=max(2, batch),
                batching_max_publish_delay_ms=1000,
                block_if_queue_full=True,
            )
            for number in numbers:
                producer.send_async(
                    json.dumps({"n": number, "currency": "DEM"}).encode(),
                    _ignored,
                    partition_key=f"k{number % 5}",
                    ordering_key="o",
                    event_timestamp=1_000 + number,
                    properties={
                        "uid": f"u{number % 3}",
                        "kodo-id": f"id-{number}",
                        "kodo-reason": "timeout" if number % 2 else "refused",
                        "kodo-level": "L2" if number % 4 == 0 else "L1",
                        "kodo-attempts-retrying": "12",
                        "kodo-hop": "13",
                        "kodo-origin-id": f"9:{number}:0:-1",
                        **{name.replace("_", "-"): value for name, value in changes.items()},
                    },
                )
            producer.flush()
            producer.close()

    def remember(self, url: str, *numbers: int) -> None:
        """A worker with this store has done these."""
        policy = policy_of(load_topology(str(self.workspace.folder / "topologies/trade.yaml")), "orders", "billing")
        store = StorePlace(parse_store(url)).open(policy.lanes[0].subscription)
        store.create()
        store.exchange(Exchange(done=[f"id-{number}" for number in numbers]))
        store.close()

    def recall(self, *words: str, code: int | None = 0) -> Run:
        """`kodoctl recall …`"""
        return self.workspace.run("recall", *words, code=code)

    def plan(
        self, where: str = "true", *more: str, file: str = "p.json", verb: str = "plan", code: int = 0
    ) -> dict[str, Any]:
        """A plan, written and as JSON."""
        named = ["topologies", "--topic", "orders", "--subscription", "billing", "--where", where]
        run = self.recall(verb, *named, "--out", file, "--format", "json", *more, code=code)
        found: dict[str, Any] = run.json() if run.out else {}
        return found

    def apply(self, *more: str, file: str = "p.json", code: int | None = 0) -> dict[str, Any]:
        """What an attempt reports."""
        run = self.recall("apply", file, "--rate", "5000/s", "--format", "json", *more, code=code)
        found: dict[str, Any] = json.loads(run.out) if run.out else {}
        return found

    def stored(self, local: str) -> list[ReadMessage]:
        """Everything a topic stores, read by a reader of the test's own."""
        broker = self.workspace.broker
        connection = Connection(admin_url=broker.admin_url, broker_url=broker.broker_url)
        with BrokerClient(connection) as client:
            return list(read_stored(client, f"{self.workspace.full(local)}-partition-0", (2**62, 2**62)))

    def arrived(self, *locals_: str) -> Counter[int]:
        """Number of a letter -> how often it is stored in these topics."""
        topics = locals_ or self._lanes
        return Counter(json.loads(one.payload or b"{}")["n"] for local in topics for one in self.stored(local))

    def limit(self, local: str, size: int) -> None:
        """A topic takes no more than so many bytes a message."""
        path = f"{self.workspace.path(local)}/maxMessageSize"
        self.workspace.admin("POST", path, size)
        eventually(lambda: self.workspace.admin("GET", path) == size)

    def plan_one_too_large(self) -> None:
        """Letters 0 to 5, of which their lane does not take the second."""
        self.die([0])
        self.die([1], pad="x" * 70_000)
        self.die(range(2, 6))
        self.limit(RETRYING, 66 << 10)
        self.plan()

    def let_go(self, *numbers: int) -> None:
        """Somebody acknowledges these letters by hand."""
        with self.workspace.client() as client:
            consumer = client.subscribe(self.workspace.full(DLQ), "kodo-hold", batch_index_ack_enabled=True)
            left = set(numbers)
            while left:
                message = consumer.receive(10_000)
                if (number := json.loads(message.data())["n"]) in left:
                    consumer.acknowledge(message)
                    left.discard(number)
            consumer.close()

    def booked(self) -> dict[str, str]:
        """Dead letters that are booked as sent, by their places -> where they were stored."""
        entries = DeltaLedger(str(self.workspace.folder / ".kodoctl/recall")).entries(self.workspace.full(DLQ))
        return {one.position: one.receipt for one in entries if one.event is RecallEvent.SENT}

    def receipts(self) -> Counter[str]:
        """Where letters are stored in the lanes, as receipts name it."""
        return Counter(f"{one.ledger}:{one.entry}" for local in self._lanes for one in self.stored(local))

    def held(self) -> set[int]:
        """Numbers of the letters that the holder still has: what a consumer of it gets."""
        found = set()
        with self.workspace.client() as client:
            consumer = client.subscribe(self.workspace.full(DLQ), "kodo-hold", pulsar.ConsumerType.Shared)
            try:
                while True:
                    found.add(json.loads(consumer.receive(700).data())["n"])
            except pulsar.Timeout:
                consumer.close()
                return found


def _ignored(*_: object) -> None:
    return
