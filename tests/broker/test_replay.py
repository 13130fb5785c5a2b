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

    def is_paused(self) -> bool:
        """True if a live order stands."""
        path = f"{self.workspace.path('orders')}/subscription/billing/properties"
        return "kodo-steer" in (self.workspace.admin("GET", path) or {})


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
    assert all(len(line) <= 80 for line in text.splitlines())
    assert replays.take() == Counter({12, 13})


def test_exactly_the_messages_of_a_plan_come_again_whatever_was_handled_since(replays: Replays) -> None:
    replays.send(range(10))
    time.sleep(0.1)
    since = moment()
    replays.send(range(10, 30))
    time.sleep(0.1)
    until = moment()
    replays.send(range(30, 40))
    replays.take(keep={12, 13})
    assert replays.plan("--from", since, "--until", until)["summary"]["again"] == 18
    replays.send(range(40, 60))
    assert replays.take(keep={13, 50}) == Counter({12, 13, *range(40, 60)})
    report = replays.apply()
    assert (report["complete"], report["entries"], report["problems"]) == (True, 18, [])
    assert not replays.is_paused()
    assert replays.take() == Counter({*range(10, 30), 50} - {12}), "12 was handled since the plan"
    assert "was applied already" in replays.workspace.run("replay", "apply", "p.json", code=4).text


def test_an_undo_takes_back_what_has_not_come_again(replays: Replays) -> None:
    replays.send(range(30))
    replays.take(keep={7})
    replays.plan("--from", "1h")
    replays.apply()
    replays.send(range(30, 35))
    again = replays.take(keep={*range(20, 30), 7})
    assert set(again) == set(range(35))
    report = replays.undo()
    assert (report["complete"], report["entries"], report["again_done"]) == (True, 10, 19)
    assert replays.take() == Counter({7}), "what was open before the replay, and nothing else"
    listed = replays.workspace.run("replay", "list", replays.workspace.namespace, "--format", "json").json()
    assert [one["state"] for one in listed["replays"]] == ["undone"]
    assert (
        "every replay"
        in replays.workspace.run("replay", "undo", "last", replays.workspace.namespace, "--auto-approve", code=64).text
    )
    replays.workspace.run("history", replays.workspace.namespace)
