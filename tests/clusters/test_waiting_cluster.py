"""`waiting apply` while the broker of a lane's partitions dies: run until it is complete, nothing is lost, nothing is there twice."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.broker.waiting_messages import TOPICS, Waits
from tests.cluster import Workspace
from tests.clusters.conftest import Cluster
from tests.support import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]
MESSAGES = 1_500
PARTITIONS = 3
ATTEMPTS = 6


def _kill_the_owner(cluster: Cluster, waits: Waits, lane_topic: str) -> str:
    """Ends the broker of one of the lane's partitions, another than the first broker; answers which."""
    topic = waits.workspace.full(lane_topic)

    def owner() -> str | None:
        found = {cluster.broker_of(f"{topic}-partition-{number}") for number in range(PARTITIONS)} - {"broker-1"}
        if not found:
            cluster.admin("PUT", f"namespaces/{waits.workspace.namespace}/unload")
        return min(found, default=None)

    victim = eventually(owner, within=120, every=1.0)
    assert victim
    cluster.kill(victim)
    return victim


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(("release",), id="release"),
        pytest.param(("move", "--to", "L2"), id="move", marks=pytest.mark.full),
        pytest.param(("discard",), id="discard", marks=pytest.mark.full),
    ],
)
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
    with Path(workspace.folder / "apply.log").open("w", encoding="utf-8") as log:
        process = workspace.process(*words, stdout=log, stderr=log)
        eventually(waits.orders, within=60, every=0.2)
        time.sleep(2.0)  # some of it is on its way: 200 a second
        _kill_the_owner(cluster, waits, "orders-billing-BLOCKING")
        assert process.poll() is None, "the broker died while messages were taken"
        process.wait(timeout=240)
    complete = process.returncode == 0
    for _ in range(ATTEMPTS):
        if complete:
            break
        run = workspace.run(*words, code=None)
        assert "Traceback" not in run.text, run.text
        complete = run.code == 0
    assert complete, "an attempt after the other brokers have the partitions is complete"
    assert "Traceback" not in (workspace.folder / "apply.log").read_text(encoding="utf-8")

    everything, rest = Counter(range(MESSAGES)), Counter(set(range(MESSAGES)) - set(chosen))
    assert waits.orders() == (), "no lane stays paused"
    assert waits.left("L1/blocking") == (everything if action == ("release",) else rest)
    assert waits.left("L2/ready") == (Counter(chosen) if action[0] == "move" else Counter())
