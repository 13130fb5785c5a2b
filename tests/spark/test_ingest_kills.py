"""kill -9 of `kodoctl pipeline ingest` at each of its stages, with Spark and all its tasks: run again, every message is landed once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from kodo_pipeline.landing.landing_commits import batches
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, EVENTS, TABLES, TRANSITIONS
from pyspark.sql import functions as F

from kodoctl.protocol import audit_records
from tests.brokers.topics import create_topics
from tests.brokers.workspace import Workspace
from tests.source_roots import PATHS
from tests.spark.dying import DYING
from tests.spark.filling import fill, keep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]
MESSAGES, RECORDS = 4_000, 40
TOPICS = "orders: {partitions: 2, fair_by: uid, subscriptions: {billing: {audit: true}}}"
KILLING = f"""
{DYING}
import os, sys

IS_COMMAND = "kodoctl" in sys.orig_argv


def ends(_, commit):
    return commit.facts.get("complete")


if IS_COMMAND:
    from kodo_pipeline.ingest import job as ingest, small_batch
    from kodo_pipeline.landing.delta_tables import LandingTable
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.ingest.ingest_checkpoint import IngestCheckpoint

    if not os.environ["KILL_AT"].startswith("small"):
        small_batch.FEW_BYTES = 0
    around(IngestCheckpoint, "begin", "small batch planned.", 1)
    around(small_batch, "write_splits", "small batch read.", 1)
    around(IngestCheckpoint, "complete", "small batch named", 1)
    around(IngestCheckpoint, "complete", "small batch complete.", 1)
    around(IngestCheckpoint, "begin", "end planned.", 2)
    around(IngestCheckpoint, "complete", "batch complete, not told", 2)
    around(IngestCheckpoint, "complete", "batch told.", 2)
    around(Landing, "write_rows", "cursors read", 1)
    around(Landing, "commit", "cursors written", 1)
    around(Landing, "commit", "run begun.", 1)
    around(ingest, "_write_events", "events written.", 2)
    around(ingest._Writer, "_transitions", "records written.", 1)
    around(Landing, "write_rows", "coverage written.", 3)  # after the cursors, and that of the first batch
    around(Landing, "commit", "batch complete", 3)
    around(LandingTable, "add", "batch committed, in no table", 3)  # after those of the cursors, and of the first batch
    around(LandingTable, "add", "batch committed, in one table.", 2)
    around(Landing, "commit", "batch named.", 3)  # it counts, and the checkpoint does not say so
    around(Landing, "commit", "all read", 1, ends)
    around(Landing, "commit", "run ended.", 1, ends)
elif os.environ["KILL_AT"].startswith("read"):  # one that reads; the first batch has three splits, one of them audit records
    from kodo_pipeline.source import split_reader as reading

    around(reading.Columns, "batch", "reading", 4)
    around(reading._Missing, "met_span", "reading", 2)  # where batches come whole
    around(reading.Coverage, "record", "read, not told", 4)
"""
BRIEF = "batch named."
SMALL = {"small batch planned.": 0, "small batch read.": 0, "small batch named": 1, "small batch complete.": 1}
"""Stages of a batch that is landed without Spark, and whether it counts by then."""
STAGES = {
    "cursors read": 0,
    "cursors written": 0,
    "run begun.": 0,
    "end planned.": 1,
    "reading": None,
    "read, not told": None,
    "events written.": 1,
    "records written.": 0,
    "coverage written.": 1,
    "batch complete": 1,
    "batch committed, in no table": 1,
    "batch committed, in one table.": 1,
    BRIEF: 2,
    "batch complete, not told": 2,
    "batch told.": 2,
    "all read": None,
    "run ended.": None,
}
"""Stages of an ingest in their order, and how many batches count by then; None: it depends on which process reads, or on how many there are."""

VANISHING = """
import os, sys
from itertools import count

if "kodoctl" in sys.orig_argv:
    import requests

    from kodo_pipeline.ingest import small_batch
    from kodo_pipeline.source import data_source as spark

    small_batch.FEW_BYTES = 0

    planned, calls = spark.PulsarStream.partitions, count(1)

    def partitions(*arguments):
        found = planned(*arguments)
        if next(calls) == 2:
            requests.delete(os.environ["TRUNCATE"], timeout=30).raise_for_status()
        return found

    spark.PulsarStream.partitions = partitions
"""


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """One ground topic, filled, and what a worker recorded."""
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    keep(workspace)
    create_topics(workspace.broker, str(workspace.topology(TOPICS)))
    fill(workspace, "orders", range(MESSAGES), 2, ledgers=2)
    encoded = audit_records.encode([_record(number) for number in range(1, RECORDS + 1)])
    with workspace.client() as client:
        producer = client.create_producer(workspace.full("orders-billing-AUDIT"), batching_enabled=False)
        producer.send(encoded.payload, properties=encoded.properties)
    return workspace


def _record(number: int) -> audit_records.Record:
    return audit_records.Record(
        run="w-1", subscription="billing", at=1_700_000_000_000 + number, topic="persistent://a/b/orders",
        id=f"7:{number}:0:-1", identity=f"order-{number}", hop=0, event=audit_records.Event.DONE, rule="done", tenant="u1", age=15,
        number=number,
    )  # fmt: skip


def _killed(shop: Workspace, stage: str) -> tuple[str, str]:
    """The command as a process of its own, which dies at a stage. What it said."""
    code, out, err = _with(shop, KILLING, KILL_AT=stage)
    assert code == -signal.SIGKILL, f"{stage}: {err}"
    return out, err


def _with(shop: Workspace, script: str, **environ: str) -> tuple[int, str, str]:
    """The command as a process of its own; every Python process of it runs the script first."""
    folder = shop.folder / "first"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "kodoctl", "pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed",
               "--max-bytes", "250000", "--master", "local[1]", *shop.connection()]  # fmt: skip
    environment = {**os.environ, **environ, "PYTHONPATH": f"{folder}:{PATHS}"}
    with subprocess.Popen(
        command, cwd=shop.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=600)
    assert "Traceback" not in err
    return process.returncode, out, err


def _batches(landing: Landing) -> list[int]:
    return sorted(batches(landing.commits()))


def _assert_whole(spark: SparkSession, shop: Workspace, messages: int = MESSAGES) -> None:
    """Every message once, every record once, coverage of just these, and no file that no commit names."""
    landing = _landing(shop)
    number = F.col("properties")["n"]
    events = landing.read(spark, EVENTS)
    ready = events.where("state = 'ready'").agg(
        F.count("*"), F.countDistinct(number), F.countDistinct("msg_topic", "id")
    )
    assert tuple(ready.first() or ()) == (messages,) * 3
    assert events.count() == messages + 1
    records = landing.read(spark, TRANSITIONS).agg(F.count("*"), F.countDistinct("number")).first()
    assert tuple(records or ()) == (RECORDS, RECORDS)
    covered = landing.read(spark, COVERAGE).agg(F.sum("rows"), F.bool_and("full")).first()
    assert tuple(covered or ()) == (messages + 1, True)
    landed = _batches(landing)
    assert landed == list(range(len(landed)))
    snapshot = landing.snapshot(*TABLES)
    for table in TABLES:
        there = [
            name
            for name in (landing.root / table.name).files()
            if name.endswith(".parquet") and "_delta_log" not in name
        ]
        assert there == sorted(one.path for one in snapshot.files[table.name])
        added = DeltaTable(f"{landing.root.uri}/{table.name}")
        assert sorted(added.file_uris()) == [f"{landing.root.uri}/{table.name}/{name}" for name in there], (
            "all were added"
        )
        assert added.to_pyarrow_dataset().count_rows() == sum(one.rows for one in snapshot.files[table.name])
    assert not (landing.root / "_work").folders()


def _assert_no_half(spark: SparkSession, landing: Landing) -> None:
    """What counts right after the kill, read by ourselves: of every batch all, and nothing of another."""
    snapshot = landing.snapshot(EVENTS, COVERAGE)
    events, coverage = (landing.read(spark, table, snapshot=snapshot) for table in (EVENTS, COVERAGE))
    covered = coverage.agg(F.sum("rows"), F.countDistinct("batch")).first()
    assert tuple(covered or ()) == (events.count() or None, len(batches(snapshot.commits)))


def _landing(shop: Workspace) -> Landing:
    return Landing(str(shop.folder / "landed"), "trade", None)


def _kill_and_again(spark: SparkSession, shop: Workspace, stage: str) -> str:
    out, err = _killed(shop, stage)
    assert out == ""
    counted = {number: one.run for number, one in batches(_landing(shop).commits()).items()}
    _assert_no_half(spark, _landing(shop))
    assert STAGES[stage] in (None, len(counted))
    run = shop.run("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed", "--format", "json")
    assert run.lines_json()[-1]["event"] == "end"
    _assert_whole(spark, shop)
    kept = {number: one.run for number, one in batches(_landing(shop).commits()).items() if number in counted}
    assert kept == counted, "what landed whole is not read again: it may not be there any more"
    return err


def test_a_kill_before_the_checkpoint_has_a_batch_and_again_everything_is_landed_once(
    spark: SparkSession, shop: Workspace
) -> None:
    said = _kill_and_again(spark, shop, BRIEF).splitlines()
    ours = [line for line in said if line.startswith(("Run", "Reading", "Batch"))]
    assert [line.split()[0] for line in ours] == ["Run", "Reading", "Batch"]
    assert said[said.index(ours[1]) :] == ours[1:], "not a line of Spark's own"


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != BRIEF])
def test_a_kill_at_any_stage_and_again_everything_is_landed_once(
    stage: str, spark: SparkSession, shop: Workspace
) -> None:
    _kill_and_again(spark, shop, stage)


@pytest.mark.parametrize("stage", SMALL)
def test_a_kill_in_a_small_batch_and_the_next_run_takes_it_as_it_was_planned(
    stage: str, spark: SparkSession, shop: Workspace
) -> None:
    command = ("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed")
    shop.run(*command)
    before = len(_batches(_landing(shop)))
    fill(shop, "orders", range(MESSAGES, MESSAGES + 100), 2)
    _killed(shop, stage)
    _assert_no_half(spark, _landing(shop))
    counted = {number: one.run for number, one in batches(_landing(shop).commits()).items()}
    assert len(counted) == before + SMALL[stage]
    fill(shop, "orders", range(MESSAGES + 100, MESSAGES + 150), 2)
    shop.run(*command)
    _assert_whole(spark, shop, MESSAGES + 150)
    kept = {number: one.run for number, one in batches(_landing(shop).commits()).items() if number in counted}
    assert kept == counted, "what landed whole is not read again"


def test_what_vanishes_between_plan_and_reading_fails_the_batch_and_is_never_stepped_over(
    spark: SparkSession, shop: Workspace
) -> None:
    place = f"{shop.broker.admin_url}/admin/v2/{shop.path('orders')}/truncate"
    code, _, err = _with(shop, VANISHING, TRUNCATE=place)
    assert (code, "[K574]" in err) == (1, True), err
    assert "entries" in err
    again = shop.run("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed", code=1)
    assert "[K574]" in again.err
    assert _batches(_landing(shop)) == [0]
    shop.run("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed", "--accept-holes")
    landing = _landing(shop)
    assert landing.read(spark, COVERAGE).where("not full").count() > 0
    assert landing.read(spark, EVENTS).count() < MESSAGES
