"""`kodoctl pipeline ingest` on a real broker: exact, goes on behind itself, and never over a hole in silence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pulsar
import pytest
from kodo_pipeline.ingest import small_batch
from kodo_pipeline.ingest.ingest_checkpoint import IngestCheckpoint
from kodo_pipeline.landing.landing_commits import LandingCommit, TableFiles
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS
from pyspark.sql import functions as F

from kodoctl.errors import KodoctlError, error
from kodoctl.protocol import audit_records
from tests.brokers.topics import create_topics
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.spark.filling import fill, keep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
TOPICS = """
orders:
  partitions: 2
  fair_by: uid
  subscriptions:
    billing: {audit: true}
"""
ORIGIN = "7:12:1:3"


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """One ground topic with everything, created and empty."""
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    keep(workspace)
    create_topics(workspace.broker, str(workspace.topology(TOPICS)))
    return workspace


def _ingest(workspace: Workspace, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    found = workspace.run(
        "pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed", "--format", "json", *arguments, code=code
    )
    return found.lines_json()


def _landing(workspace: Workspace) -> Landing:
    return Landing(str(workspace.folder / "landed"), "trade", None)


def _numbers(spark: SparkSession, workspace: Workspace) -> tuple[int, int, int]:
    """(rows, distinct numbers, distinct places) on the ready topic."""
    events = _landing(workspace).read(spark, EVENTS).where(F.col("state") == "ready")
    found = events.agg(
        F.count("*"), F.countDistinct(F.col("properties")["n"]), F.countDistinct("msg_topic", "id")
    ).first()
    assert found is not None
    return found[0], found[1], found[2]


def _send(client: pulsar.Client, topic: str, payload: bytes, **properties: str) -> str:
    producer = client.create_producer(topic, batching_enabled=False)
    placed = producer.send(
        payload, {name.replace("_", "-"): value for name, value in properties.items()}, partition_key="k"
    )
    producer.close()
    return str(placed).strip("()").replace(",", ":")


def _record(number: int, **more: Any) -> audit_records.Record:
    usual: dict[str, Any] = {"run": "w-1", "subscription": "billing", "at": 1_700_000_000_000 + number, "topic": "persistent://a/b/orders",
             "id": f"7:{number}:0:-1", "identity": f"order-{number}", "hop": 0, "event": audit_records.Event.DONE, "rule": "done",
             "tenant": "u1", "age": 15}  # fmt: skip
    return audit_records.Record(number=number, **(usual | more))


class _Sent(NamedTuple):
    """Ids of messages that are not plain ones."""

    mark: str
    audited: str
    broken: str


def _send_special(shop: Workspace) -> _Sent:
    """A producer's mark, a dead letter, audit records, and what should be some."""
    records = [
        _record(1),
        _record(2, identity="7:2:0:-1", event=audit_records.Event.MOVED, rule="retrying", target="persistent://a/b/r",
                target_id="9:4:1:-1", reason="ValueError", hop=1),
    ]  # fmt: skip
    encoded = audit_records.encode(records)
    with shop.client() as client:
        mark = _send(
            client, shop.full("orders"), b"", kodo_seq="000018bcfe5680000:1:high=9:void=2,4-6:end", kodo_for="(mark)"
        )
        _send(
            client, shop.full("orders-billing-DLQ"), b"dead", uid="u7", kodo_origin_id=ORIGIN, kodo_hop="3",
            kodo_origin_time="1700000000123", kodo_attempts_retrying="2", kodo_reason="ValueError", kodo_level="L1",
            kodo_id="order-5", kodo_seq="000018bcfe5680000:1:77",
        )  # fmt: skip
        audit_topic = shop.full("orders-billing-AUDIT")
        audited = _send(client, audit_topic, encoded.payload, **encoded.properties)
        broken = _send(client, audit_topic, b"no records")
    return _Sent(mark, audited, broken)


def _check_events(events: dict[str, Any], sent: _Sent) -> None:
    assert len(events) == 4
    dead = next(row for row in events.values() if row["state"] == "dead")
    assert (dead["mid"], dead["kodo_id"], dead["tenant"], dead["hop"], dead["topic"]) == (
        ORIGIN,
        "order-5",
        "u7",
        3,
        "orders",
    )
    assert (dead["attempts"], dead["reason"], dead["died_in"]) == ({"retrying": 2}, "ValueError", "L1")
    assert (dead["subscription"], dead["level"], dead["payload"]) == ("billing", None, b"dead")
    assert (dead["seq_run"], dead["seq_number"], dead["seq_high"]) == ("000018bcfe5680000", 77, None)
    assert dead["origin_publish_ts"].timestamp() == 1_700_000_000.123
    marked = events[sent.mark]
    assert (marked["mid"], marked["level"], marked["tenant"], marked["subscription"]) == (
        sent.mark,
        "L1",
        "(none)",
        None,
    )
    assert (marked["seq_high"], marked["seq_end"], marked["for_subscription"]) == (9, True, "(mark)")
    assert [tuple(one) for one in marked["seq_void"]] == [(2, 2), (4, 6)]
    assert {events[sent.audited]["state"], events[sent.broken]["state"]} == {"audit"}


def _check_other_tables(spark: SparkSession, shop: Workspace, run: str, audited: str) -> None:
    landing = _landing(shop)
    moved = landing.read(spark, TRANSITIONS).orderBy("number").collect()
    assert [(row["number"], row["id"], row["identity"], row["event"], row["target_id"]) for row in moved] == [
        (1, "7:1:0:-1", "order-1", "done", None),
        (2, "7:2:0:-1", "7:2:0:-1", "moved", "9:4:1:-1"),
    ]
    assert {(row["worker_run"], row["topic"], row["subscription"], row["audit_id"]) for row in moved} == {
        ("w-1", "orders", "billing", audited)
    }
    assert [row["target_topic"] for row in moved] == [None, "persistent://a/b/r"]
    coverage = landing.read(spark, COVERAGE).collect()
    assert sum(row["rows"] for row in coverage) == 3_004
    assert all(row["full"] and row["ingest_run"] == run for row in coverage)
    cursors = landing.read(spark, CURSORS).collect()
    assert ("billing", shop.full("orders"), 1) in {
        (row["subscription"], row["msg_topic"], row["msg_partition"]) for row in cursors
    }
    assert {row["mark_entry"] for row in cursors if row["subscription"]} == {-1}
    stored = {(row["msg_topic"], row["msg_partition"]) for row in cursors if not row["subscription"]}
    assert stored >= {(row["msg_topic"], row["msg_partition"]) for row in coverage}, "looked at, then read"


def _interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end at the worst moment: the batch is landed, and the checkpoint does not say so."""
    complete = IngestCheckpoint.complete

    def completed(self: IngestCheckpoint, number: int) -> None:
        monkeypatch.setattr(IngestCheckpoint, "complete", complete)
        raise KodoctlError(error("K576", "the ingest failed", "on purpose"))

    monkeypatch.setattr(IngestCheckpoint, "complete", completed)


def test_a_topology_is_landed_and_the_next_run_goes_on_behind_it(
    spark: SparkSession, shop: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shop, "orders", range(3_000), 2, ledgers=2)
    sent = _send_special(shop)
    lines = _ingest(shop, "--max-bytes", "400000")
    assert [line["event"] for line in lines[:2]] == ["begin", "topics"]
    end = lines[-1]
    assert (end["event"], end["events"], end["transitions"], end["unreadable"], end["holes"]) == ("end", 3_004, 2, 1, 0)
    assert end["batches"] == len([line for line in lines if line["event"] == "batch"]) > 1
    landing = _landing(shop)
    assert _numbers(spark, shop) == (3_001, 3_000, 3_001)
    events = {row["id"]: row for row in landing.read(spark, EVENTS).where("properties['n'] is null").collect()}
    _check_events(events, sent)
    _check_other_tables(spark, shop, end["run"], sent.audited)

    shop.admin("POST", f"{shop.path('orders')}/partitions", 3)
    fill(shop, "orders", range(3_000, 3_600), 3)
    monkeypatch.setattr(small_batch, "FEW_BYTES", 0)  # else Spark reads nothing
    _interrupt_once(monkeypatch)
    _ingest(shop, code=1)
    commits = len(landing.commits())
    assert _ingest(shop)[-1]["events"] == 600
    assert len(landing.commits()) == commits + 2, "begin and end: what landed whole is not read again"
    assert _numbers(spark, shop) == (3_601, 3_600, 3_601)
    assert _ingest(shop)[-1]["events"] == 0


def test_what_is_gone_stops_the_ingest_until_somebody_accepts_it(spark: SparkSession, shop: Workspace) -> None:
    shop.admin("DELETE", f"{shop.path('orders')}/subscription/billing")
    fill(shop, "orders", range(500), 2, ledgers=1)
    assert _ingest(shop)[-1]["events"] == 500
    fill(shop, "orders", range(500, 1_500), 2, ledgers=2)
    keep(shop, 0)

    def trimmed() -> bool:
        parts = [f"{shop.path('orders')}-partition-{number}" for number in range(2)]
        for part in parts:
            shop.admin("POST", f"{part}/trim")
        return all(len(shop.admin("GET", f"{part}/internalStats")["ledgers"]) == 1 for part in parts)

    eventually(trimmed, every=0.5)
    fill(shop, "orders", range(1_500, 1_700), 2)
    refused = shop.run("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed", code=1)
    assert "stored messages could not be read [K574]" in refused.err
    assert "what came behind may be gone unread" in " ".join(refused.err.split())
    assert "Traceback" not in refused.text
    end = _ingest(shop, "--accept-holes")[-1]
    assert (end["events"], end["holes"]) == (200, 2)
    assert _numbers(spark, shop) == (700, 700, 700)
    holes = _landing(shop).read(spark, COVERAGE).where("not full").collect()
    assert {(row["state"], row["msg_partition"], row["rows"]) for row in holes} == {("hole", 0, 0), ("hole", 1, 0)}
    assert _ingest(shop)[-1]["events"] == 0


def test_a_lost_checkpoint_another_namespace_and_a_cluster_without_the_topics_are_told(
    spark: SparkSession, shop: Workspace, tmp_path: Path
) -> None:
    Landing(str(tmp_path / "landed"), "trade", None).commit(LandingCommit("r", 1, 0))
    found = shop.run("pipeline", "ingest", "topologies/trade.yaml", "--landing", "landed", code=1)
    assert "[K573]" in found.err
    theirs = Landing(str(tmp_path / "theirs"), "trade", None)
    theirs.commit(
        LandingCommit(
            "r",
            1,
            tables={CURSORS.name: TableFiles.of(())},
            facts={"topics": [f"persistent://{shop.tenant}/theirs/orders"]},
        )
    )
    before = theirs.commits()
    for command in ("ingest", "run"):
        found = shop.run("pipeline", command, "topologies/trade.yaml", "--landing", "theirs", code=1)
        assert "[K590]" in found.err, found.text
        told = f"topics of {shop.tenant}/theirs, and trade is in {shop.namespace}"
        assert told in " ".join(found.err.split())
    assert theirs.commits() == before, "refused before anything is written"
    shop.topology(TOPICS.replace("orders", "elsewhere"))
    assert "[K710]" in shop.run("pipeline", "ingest", "topologies/trade.yaml", code=1).err
