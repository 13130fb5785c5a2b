"""What maintenance and an erasure leave alone: the verdict. And what cannot be asked any more: conditions on payloads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kodo_pipeline.audit.job import audit
from kodo_pipeline.audit.judged_rows import LandedTables
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TABLES
from kodo_pipeline.recall.dead_letter_rows import check_payloads, stored_in
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain
from kodo_pipeline.upkeep.payload_removal import ErasureRequest, erase, select_tenant

from kodoctl.errors import UsageError
from kodoctl.recall.filter.condition import parse
from tests.unit.topology.topology_files import expanded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READY = "persistent://kodo/trade/orders"
AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
FILE = "topics: {orders: {fair_by: uid, subscriptions: {billing: {states: [], dead_letter: false, audit: true}}}}"


def _fill(landing: Landing) -> None:
    """Five batches of a message of u1 and one of u2: of each batch one was done, and one acknowledged without a record."""
    looked = [{"msg_topic": READY, "msg_partition": 0, "topic": "orders", "subscription": name, "mark_ledger": 1, "mark_entry": 9,
               "acknowledged": [], "first_ledger": 1, "taken_ts": AT, "ingest_run": "r"} for name in ("", "billing")]  # fmt: skip
    landing.commit(LandingCommit("r", 1, tables={CURSORS.name: landing.write_rows(CURSORS, "r", looked)}))
    for number in range(5):
        name, entries = f"{number:09d}-r", (2 * number, 2 * number + 1)
        rows: dict[Any, list[dict[str, Any]]] = {
            EVENTS: [
                {"mid": f"1:{one}:0:-1", "id": f"1:{one}:0:-1", "msg_topic": READY, "msg_partition": 0, "ledger": 1, "entry": one,
                 "batch_index": -1, "topic": "orders", "level": "L1", "state": "ready", "tenant": f"u{1 + one % 2}", "hop": 0,
                 "attempts": [], "publish_ts": AT, "origin_publish_ts": AT, "size": 5, "properties": [], "payload": b"12345",
                 "ingest_run": "r", "split_id": name} for one in entries
            ],
            TABLES[1]: [
                {"worker_run": "w", "number": number + 1, "topic": "orders", "subscription": "billing", "at_ts": AT,
                 "msg_topic": READY, "id": f"1:{entries[0]}:0:-1", "identity": f"1:{entries[0]}:0:-1", "hop": 0, "event": "done",
                 "rule": "done", "tenant": "u1", "age_ms": 5, "audit_topic": f"{READY}-billing-AUDIT",
                 "audit_id": f"2:{number}:0:-1", "publish_ts": AT, "ingest_run": "r", "split_id": name}
            ],
            COVERAGE: [
                {"split_id": name, "msg_topic": READY, "msg_partition": 0, "first": f"1:{entries[0]}", "last": f"1:{entries[1]}",
                 "entries_planned": 2, "entries_seen": 2, "rows": 2, "gaps": [], "ledgers_before": [1], "ledgers_after": [1],
                 "state": "complete", "full": True, "seconds": 0.1, "ingest_run": "r", "batch": number}
            ],
        }  # fmt: skip
        landing.commit(
            LandingCommit(
                "r", 1, number, {table.name: landing.write_rows(table, name, some) for table, some in rows.items()}
            )
        )
    landing.commit(LandingCommit("r-end", 1, facts={"complete": True}))


@pytest.mark.full
def test_the_verdict_is_the_same_after_maintenance_and_an_erasure(spark: SparkSession, tmp_path: Path) -> None:
    landing, expansion = Landing(str(tmp_path), "trade", None), expanded(FILE)
    _fill(landing)

    def judged() -> Any:
        found = landing.snapshot(*TABLES)
        frames: list[Any] = [landing.read(spark, one, snapshot=found) for one in TABLES]
        return audit(spark, LandedTables(*frames), expansion)

    before = judged()
    assert before["verdict"] != "no loss"
    assert sum(before["subscriptions"][0]["messages"].values()) == 10
    maintain(MaintenanceRequest(landing, "m1", retain=0))
    assert judged() == before
    asked = ErasureRequest(landing, "e1", "u2", None, "asked for", "ann")
    assert erase(asked, select_tenant(landing, "u2", None))[0] == 5
    assert judged() == before
    rows = landing.read(spark, EVENTS)
    assert rows.where("tenant = 'u2' AND payload IS NULL AND payload_state = 'erased'").count() == 5
    letters = stored_in(rows, READY)
    for where, whole in (("payload.n = 1", False), ("payload_size > 3", False), ("reason = 'x'", True)):
        with pytest.raises(UsageError, match=r"K587(?s:.*)of this topic's payloads 5 erased"):
            check_payloads(letters, parse(where, 0), whole=whole)
    check_payloads(letters, parse("reason = 'x' AND properties['payload'] = 'y'", 0), whole=False)
