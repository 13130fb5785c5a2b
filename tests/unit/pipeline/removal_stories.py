"""Landings for tests of the removal of rows: a topic with one subscription, of whose messages each tells its day."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.audit.audit_state import AuditState, SettledTotals, landed_rows, last_batch
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit, TableFiles
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.state_tables import OPEN_EVENTS, OPEN_RECORDS
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TABLES, TRANSITIONS
from kodo_pipeline.upkeep.row_removal import RemovalPlan, landed_basis, plan_removal, remove_rows

from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology
from tests.unit.pipeline.landings import DAY, anew, stored

FILE = """
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders: {subscriptions: {billing: {states: [retrying], audit: true}}}
"""
READY = "persistent://kodo/trade/orders"
RETRYING = f"{READY}-billing-RETRYING"
RECORDS = f"{READY}-billing-AUDIT"
BOUND = int(datetime(2026, 1, 4, tzinfo=UTC).timestamp() * 1000)


class Story:
    """What lands in a landing of one topic with one subscription: a message a number, of which each tells its day."""

    def __init__(self, landing: Landing, expansion: Expansion) -> None:
        self.landing, self.expansion = landing, expansion
        self.number = self.records = 0
        self.events: list[dict[str, Any]] = []
        self.transitions: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.open_records: list[dict[str, Any]] = []
        self.state: LandingCommit | None = None

    def send(self, day: int, topic: str = READY, **columns: Any) -> dict[str, Any]:
        """A message; its entry is its number."""
        row = {
            "id": f"7:{self.number}:0:-1", "mid": f"7:{self.number}:0:-1", "msg_topic": topic, "msg_partition": 0, "ledger": 7,
            "entry": self.number, "batch_index": -1, "topic": "orders", "hop": 0, "size": 1,
            "state": {READY: "ready", RETRYING: "retrying", RECORDS: "audit"}[topic], "publish_ts": DAY + timedelta(day),
            "ingest_run": f"2026010{2 + day}-120000-r",
        } | columns  # fmt: skip
        self.number += 1
        self.events.append(row)
        return row

    def record(
        self, of: dict[str, Any], event: str = "done", to: dict[str, Any] | None = None, **columns: Any
    ) -> dict[str, Any]:
        """An audit record about it."""
        self.records += 1
        row = {
            "worker_run": "w", "number": self.records, "topic": "orders", "subscription": "billing", "at_ts": of["publish_ts"],
            "msg_topic": of["msg_topic"], "id": of["id"], "identity": of["id"], "event": event,
            "target_topic": to and to["msg_topic"], "target_id": to and to["id"],
        } | columns  # fmt: skip
        self.transitions.append(row)
        return row

    def done(self, day: int, **columns: Any) -> dict[str, Any]:
        """A message that is done."""
        row = self.send(day, **columns)
        self.record(row)
        return row

    def lost(self, day: int) -> dict[str, Any]:
        """One that is open for the audit."""
        row = self.send(day)
        self.open.append({name: row.get(name) for name in OPEN_EVENTS.names if name != "families"} | {"families": [0]})
        return row

    def land(self) -> None:
        """One batch."""
        number = last_batch(self.landing.commits()) + 1
        name, rows = f"{number:09d}-r", {EVENTS: self.events, TRANSITIONS: self.transitions}
        tables = {table.name: self.landing.write_rows(table, name, found) for table, found in rows.items()}
        covered = {
            "split_id": name,
            "msg_topic": READY,
            "msg_partition": 0,
            "first": "7:0",
            "last": "7:99",
            "state": "complete",
        }
        tables[COVERAGE.name] = self.landing.write_rows(
            COVERAGE, name, [covered | {"entries_planned": 1, "entries_seen": 1}]
        )
        self.landing.commit(LandingCommit("r", int(DAY.timestamp() * 1000) + number, number, tables))
        self.events, self.transitions = [], []

    @property
    def basis(self) -> str:
        return landed_basis(self.landing, self.landing.snapshot(*TABLES), self.expansion, None)

    def audit(self, **columns: Any) -> None:
        """Its state, as an audit leaves it."""
        commits = self.landing.commits()
        tables = {
            table.name: replace(self.landing.write_rows(table, f"state-a{len(commits)}", rows), replaced=())
            for table, rows in ((OPEN_EVENTS, self.open), (OPEN_RECORDS, self.open_records))
        }
        ends = {(READY, 0): (7, 10_000), (RETRYING, 0): (7, 10_000)}
        state = AuditState(
            self.basis, last_batch(commits), landed_rows(commits), ends, SettledTotals({(0, 3): 1}),
            {name: one.rows for name, one in tables.items()},
        )  # fmt: skip
        behind = None if self.state is None else self.state.number
        facts = replace(state, **columns).to_facts()
        self.state = self.landing.commit(LandingCommit(AUDIT_RUN, 1, tables=tables, facts=facts), behind=behind)

    def plan(self, before: int = BOUND) -> RemovalPlan:
        return plan_removal(self.landing, self.expansion, None, before)

    def remove(self, before: int = BOUND, run: str = "20260601-000000-m1") -> RemovalPlan:
        plan = self.plan(before)
        remove_rows(self.landing, run, plan)
        return plan

    def left(self) -> tuple[list[int], list[int]]:
        """Entries of messages, and of those that records are about, in the files and as a reader of one commit has them."""
        found = anew(self.landing)
        snapshot = found.snapshot(EVENTS, TRANSITIONS)
        rows = stored(self.landing), stored(self.landing, "transitions")
        assert [len(one) for one in rows] == [
            sum(file.rows for file in snapshot.files[name]) for name in ("events", "transitions")
        ]
        return sorted(one["entry"] for one in rows[0]), sorted(int(one["id"].split(":")[1]) for one in rows[1])


@pytest.fixture
def story(landing: Landing, tmp_path: Path) -> Story:
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    landing.commit(LandingCommit("r", 1, tables={CURSORS.name: TableFiles.of(())}))
    landing.commit(LandingCommit("r-end", 1, facts={"complete": True}))
    return Story(landing, expand(load_topology(str(file))))
