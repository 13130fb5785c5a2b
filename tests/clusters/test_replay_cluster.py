"""`replay apply` while the broker of a partition dies: run until it is complete, exactly the messages of the plan come again."""

from __future__ import annotations

from collections import Counter

import pulsar
import pytest

from tests.broker.replays import TOPICS, Replays
from tests.brokers.cluster import Cluster
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(600)]
PARTITIONS = 3
ATTEMPTS = 6


def _owner(cluster: Cluster, replays: Replays) -> str:
    """The broker of one of the partitions, another than the first broker."""
    parts = [f"{replays.workspace.full('orders')}-partition-{number}" for number in range(PARTITIONS)]

    def owner() -> str | None:
        found = {cluster.broker_of(part) for part in parts} - {"broker-1"}
        if not found:
            cluster.admin("PUT", f"namespaces/{replays.workspace.namespace}/unload")
        return min(found, default=None)

    found = eventually(owner, within=120, every=1.0)
    assert found
    return found


def test_a_broker_dies_while_cursors_move(cluster: Cluster, workspace: Workspace) -> None:
    admins = ",".join([cluster.admin_urls[0], *(url.partition("://")[2] for url in cluster.admin_urls[1:])])
    workspace.options = ["--admin-url", admins, "--broker-url", cluster.broker_url]
    replays = Replays(workspace, TOPICS.replace("partitions: 2", f"partitions: {PARTITIONS}"))
    replays.send(range(300))
    assert replays.take(5.0, keep={7, 8}) == Counter(range(300))
    assert replays.plan("--from", "1h")["summary"]["again"] == 298
    replays.send(range(300, 400))
    replays.take(5.0, keep={7, 8})

    with workspace.client() as client:
        client.subscribe(workspace.full("orders"), "billing", pulsar.ConsumerType.Shared, receiver_queue_size=1)
        log = (workspace.folder / "apply.log").open("w", encoding="utf-8")
        process = workspace.process("replay", "apply", "p.json", "--wait", "60s", stdout=log, stderr=log)
        eventually(replays.is_paused, within=60, every=0.2)
        cluster.kill(_owner(cluster, replays))
    process.wait(timeout=240)
    log.close()
    complete = process.returncode == 0
    assert "Traceback" not in (workspace.folder / "apply.log").read_text(encoding="utf-8")
    for _ in range(ATTEMPTS):
        if complete:
            break
        run = workspace.run("replay", "apply", "p.json", "--lock-timeout", "60s", code=None)
        assert "Traceback" not in run.text, run.text
        complete = run.code == 0 or "was applied already" in run.text
    assert complete, "an attempt after the other brokers have the partitions is complete"
    assert not replays.is_paused()
    half = set(range(0, 300, 2)) - {8}
    again = replays.take(10.0, keep=half | {7, 8})
    assert set(again) == set(range(300)), "nothing that was handled since comes again, and nothing is missing"
    report = replays.undo()
    assert (report["complete"], report["entries"]) == (True, len(half))
    assert set(replays.take(5.0)) == {7, 8}
