"""The same commands on a Spark cluster: a master and two workers of this machine, by --master and by spark-submit."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import EVENTS
from pyspark.sql import functions as F

from tests.brokers.workspace import Workspace
from tests.spark.filling import fill, keep
from tests.spark.standalone import BIN, ENVIRON, WORKERS, Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(3_600)]
LAUNCHER = "from kodoctl.cli.main import main\n\nmain()\n"  # as docs/how-to/spark-cluster.md has it


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """One ground topic, applied; its namespace keeps everything."""
    workspace.topology("orders: {partitions: 2, fair_by: n, subscriptions: {billing: {audit: true}}}")
    workspace.apply("topologies")
    keep(workspace)
    return workspace


def test_an_ingest_outlives_a_worker_that_fails(spark: SparkSession, cluster: Cluster, shop: Workspace) -> None:
    fill(shop, "orders", range(6_000), 2, ledgers=3)
    landing = shop.folder / "landing"
    process = shop.process(
        "pipeline", "ingest", "topologies", "--landing", str(landing), "--master", cluster.address,
        "--max-bytes", "300000", "--format", "json", env=ENVIRON,
    )  # fmt: skip
    assert process.stdout is not None
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "batch" and events[-1]["batch"] == 0:
            cluster.kill("two")  # its executor has a task of the second batch by now, or gets one
    assert process.wait(timeout=1_200) == 0, process.stderr.read() if process.stderr else ""
    cluster.revive("two")
    batches = [one["batch"] for one in events if one["event"] == "batch"]
    assert batches == list(range(len(batches)))
    assert len(batches) > 2
    assert (events[-1]["event"], events[-1]["events"], events[-1]["holes"]) == ("end", 6_000, 0)
    rows = Landing(str(landing), "trade", None).read(spark, EVENTS)
    found = rows.agg(
        F.count("*"), F.countDistinct(F.col("properties")["n"]), F.countDistinct("msg_topic", "id")
    ).first()
    assert found is not None
    assert tuple(found) == (6_000, 6_000, 6_000)


def test_two_workers_read_count_and_judge_by_spark_submit(cluster: Cluster, shop: Workspace) -> None:
    fill(shop, "orders", range(400), 2, ledgers=2)
    (shop.folder / "run.py").write_text(LAUNCHER, encoding="utf-8")
    before = {name: cluster.apps(name) for name in WORKERS}

    def submit(*arguments: str) -> str:
        command = [str(BIN / "spark-submit"), "--master", cluster.address, "run.py", "pipeline", *arguments]
        done = subprocess.run(
            [*command, "--landing", str(shop.folder / "landing")],
            cwd=shop.folder, env=ENVIRON, capture_output=True, text=True, timeout=1_200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    asked = ("topologies", *shop.connection())
    assert "400 messages" in submit("ingest", *asked)
    counted = submit("rollup", "topologies")
    assert any(line.split()[:3] == ["L1", "ready", "400"] for line in counted.splitlines()), counted
    assert "\nNO LOSS\n" in submit("audit", *asked)
    assert cluster.finished()[:3] == ["kodoctl"] * 3
    assert all(len(cluster.apps(name) - before[name]) == 3 for name in WORKERS), "both had executors of each"
