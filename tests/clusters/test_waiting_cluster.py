"""`waiting apply` while the broker of a lane's partitions dies: run until it is complete, nothing is lost, nothing is there twice
that is not named.
"""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from tests.broker.waiting_messages import TOPIC_OF, TOPICS, Waits
from tests.brokers.cluster import Cluster
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(600)]
MESSAGES = 1_500
PARTITIONS = 3
ATTEMPTS = 6


def _parts(waits: Waits, lane: str) -> list[str]:
    return [f"{waits.workspace.full(TOPIC_OF[lane])}-partition-{number}" for number in range(PARTITIONS)]


def _entries(cluster: Cluster, part: str) -> int:
    stats = cluster.admin("GET", f"{part.replace('://', '/')}/internalStats").json()
    return int(stats["numberOfEntries"])


def _owner(cluster: Cluster, waits: Waits, lane: str) -> str:
    """The broker of one of the lane's partitions that have messages, another than the first broker."""
    parts = [part for part in _parts(waits, lane) if _entries(cluster, part)]

    def owner() -> str | None:
        found = {cluster.broker_of(part) for part in parts} - {"broker-1"}
        if not found:
            cluster.admin("PUT", f"namespaces/{waits.workspace.namespace}/unload")
        return min(found, default=None)

    found = eventually(owner, within=120, every=1.0)
    assert found
    return found


def _wait_served(cluster: Cluster, waits: Waits, dead: str) -> None:
    """Until other brokers have what the dead one had, of the topics that are looked at."""
    parts = [part for lane in ("L1/blocking", "L2/ready") for part in _parts(waits, lane)]
    eventually(lambda: all(cluster.broker_of(part) != dead for part in parts), within=120, every=1.0)


@pytest.mark.parametrize("action", [("release",), ("move", "--to", "L2"), ("discard",)], ids=lambda action: action[0])
def test_a_broker_dies_while_waiting_messages_are_taken(
    cluster: Cluster, workspace: Workspace, action: tuple[str, ...]
) -> None:
    admins = ",".join([cluster.admin_urls[0], *(url.partition("://")[2] for url in cluster.admin_urls[1:])])
    workspace.options = ["--admin-url", admins, "--broker-url", cluster.broker_url]
    waits = Waits(workspace, TOPICS.replace("orders:\n", f"orders:\n  partitions: {PARTITIONS}\n", 1))
    waits.put("L1/blocking", range(MESSAGES))
    chosen = [number for number in range(MESSAGES) if number % 3]
    plan = waits.plan("L1/blocking", "payload.n % 3 > 0", "--action", *action)
    assert plan["summary"]["chosen"] == len(chosen)

    words = ["waiting", "apply", "p.json", "--hash", plan["seal"][:12], "--rate", "200/s", "--format", "json"]
    victim = _owner(cluster, waits, "L1/blocking")
    out, err = workspace.folder / "apply.json", workspace.folder / "apply.log"
    with out.open("w", encoding="utf-8") as document, err.open("w", encoding="utf-8") as log:
        process = workspace.process(*words, stdout=document, stderr=log)
        eventually(waits.orders, within=60, every=0.2)
        if action != ("discard",):  # which is not sent, so no rate holds it up
            time.sleep(2.0)  # some of it is on its way: 200 a second
        cluster.kill(victim)
        assert process.poll() is None, "the broker died while messages were taken"
        process.wait(timeout=240)
    complete, printed = process.returncode == 0, out.read_text(encoding="utf-8")
    assert "Traceback" not in err.read_text(encoding="utf-8")
    for _ in range(ATTEMPTS):
        if complete:
            break
        run = workspace.run(*words, code=None)
        assert "Traceback" not in run.text, run.text
        complete, printed = run.code == 0, run.out
    assert complete, "an attempt after the other brokers have the partitions is complete"
    report = json.loads(printed)

    _wait_served(cluster, waits, victim)
    assert waits.orders() == (), "no lane stays paused"
    everything, rest = Counter(range(MESSAGES)), Counter(set(range(MESSAGES)) - set(chosen))
    assert waits.left("L1/blocking") == (everything if action == ("release",) else rest)
    moved = waits.left("L2/ready")
    assert set(moved) == (set(chosen) if action[0] == "move" else set())
    assert sum(moved.values()) - len(moved) == len(report["stored_twice"]), "what a broker stored twice is named"
