"""Commands on a Spark cluster that has no room at first, and recalls there: the store of what is done is asked by the command."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

import pytest

from tests.broker.recalling import RETRYING, Recalls
from tests.brokers.workspace import Workspace
from tests.spark.standalone import ENVIRON, WORKERS, Cluster

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(3_600)]
TOPICS = "orders:\n  partitions: 2\n  subscriptions:\n    billing: {states: [retrying]}\n"
NAMED = ("topologies", "--topic", "orders", "--subscription", "billing", "--where", "true")


@pytest.fixture
def recalls(workspace: Workspace) -> Recalls:
    found = Recalls(workspace, TOPICS)
    found.die(range(1, 7), **{"kodo-level": "L1"})  # type: ignore[arg-type]
    return found


def _started(recalls: Recalls, cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    more = ("--master", cluster.address, "--format", "json")
    return recalls.workspace.process("pipeline", "recall", *words, *more, env=ENVIRON)


def _ended(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out), err


def test_what_waits_for_an_executor_says_so_and_goes_on_when_there_is_one(recalls: Recalls, cluster: Cluster) -> None:
    for name in WORKERS:
        cluster.kill(name)
    process = _started(recalls, cluster, "plan", *NAMED)
    assert process.stderr is not None
    said = ""
    while "Ctrl-C ends it." not in said:
        said += process.stderr.readline().replace("\n", " ")
    assert f"Waiting for {cluster.address}: no executor has registered in 15 s" in said
    assert "1g of memory" in said
    cluster.revive(*WORKERS)
    plan, err = _ended(process)
    assert f"Executor available on {cluster.address} after " in " ".join(err.split())
    assert plan["summary"]["chosen"] == 6


def test_the_store_is_asked_by_the_command_and_no_executor(recalls: Recalls, cluster: Cluster) -> None:
    before = {name: cluster.apps(name) for name in WORKERS}
    recalls.remember(f"sqlite:///{recalls.workspace.folder}/kodo.db", 2, 5)
    store = "sqlite:///kodo.db"  # in the folder of the command; executors have others
    plan, err = _ended(_started(recalls, cluster, "plan", *NAMED, "--store", store, "--out", "p.json"))
    assert plan["summary"]["left_out"] == {"already_done": 2}
    assert "Waiting" not in err
    ledger = f"{recalls.workspace.folder}/ledger"
    report, _ = _ended(_started(recalls, cluster, "apply", "p.json", "--rate", "5000/s", "--ledger", ledger))
    assert (report["sent"], report["complete"]) == (4, True)
    assert all(len(cluster.apps(name) - before[name]) == 2 for name in WORKERS), "both had executors of each"
    assert recalls.arrived(RETRYING) == Counter([1, 3, 4, 6])
