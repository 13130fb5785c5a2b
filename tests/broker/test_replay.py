"""Replays on the real broker: handled messages come again, exactly those of the plan, and an undo takes them back."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pulsar
import pytest

from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker

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

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        workspace.topology(TOPICS)
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


def _ignored(*_: object) -> None:
    return


def moment() -> str:
    """Now, as an option takes it."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat()


@pytest.fixture
def replays(workspace: Workspace) -> Replays:
    """Applied topics without messages."""
    return Replays(workspace)


def test_a_plan_counts_what_runs_again_and_changes_nothing(replays: Replays) -> None:
    replays.send(range(10))
    time.sleep(0.1)
    since = moment()
    replays.send(range(10, 30))
    replays.send(range(100, 103), kodo_for="shipping")
    assert replays.take(keep={12, 13}) == Counter({**Counter(range(30)), **Counter(range(100, 103))})
    plan = replays.plan("--from", since)
    assert (plan["summary"]["again"], plan["summary"]["unfinished"]) == (18, 2)
    assert sum(row["messages"] for row in plan["partitions"]) == 18
    assert plan["gone"] == []
    assert replays.plan("--from", "1h")["gone"], "whether there was more cannot be known"
    text = replays.workspace.run(
        "replay", "plan", "topologies", "--topic", "orders", "--subscription", "billing", "--from", since
    ).out
    print(text)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert replays.take() == Counter({12, 13})
