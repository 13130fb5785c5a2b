"""Whether a cluster is the one that was read: by when its partitions were made, as far as that is known."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.evidence import cluster_check
from kodo_pipeline.evidence.cluster_check import must_be_same_cluster, same_partitions
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import CURSORS
from kodo_pipeline.source.partition_stats import PartitionMetadata

from kodoctl.errors import KodoctlError
from tests.unit.topology.topology_files import expanded

TOPIC = "persistent://kodo/trade/orders"
MADE = datetime(2026, 1, 1, tzinfo=UTC)
SAME, OTHER, UNKNOWN = (
    PartitionMetadata(MADE, 9),
    PartitionMetadata(datetime(2026, 2, 1, tzinfo=UTC), 0),
    PartitionMetadata(),
)


def look(landing: Landing, run: str = "r1", made: datetime = MADE, *, ended: bool = True) -> None:
    """Of two partitions."""
    fixed = {"msg_topic": TOPIC, "topic": "orders", "mark_ledger": 7, "mark_entry": 3, "acknowledged": [], "first_ledger": 7,
             "created_ts": made, "rewrites": 0, "taken_ts": MADE, "ingest_run": run}  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"msg_partition": number, "subscription": name, **fixed} for number in (0, 1) for name in ("", "billing")
    ]
    landing.commit(LandingCommit(run, 1, tables={CURSORS.name: landing.write_rows(CURSORS, run, rows)}))
    if ended:
        landing.commit(LandingCommit(f"{run}-end", 1, facts={"complete": True}))


def part(number: int) -> str:
    return f"{TOPIC}-partition-{number}"


def test_nothing_is_said_before_the_first_look(landing: Landing) -> None:
    must_be_same_cluster(landing, {part(0): OTHER})


@pytest.mark.parametrize(
    "now",
    [{}, {part(0): UNKNOWN}, {part(5): OTHER}, {part(0): OTHER, part(1): SAME}, {part(0): SAME, part(1): UNKNOWN}],
)
def test_one_partition_that_was_read_is_enough(landing: Landing, now: dict[str, PartitionMetadata]) -> None:
    look(landing)
    must_be_same_cluster(landing, now)


@pytest.mark.parametrize("ended", [True, False])
def test_another_cluster_is_refused_by_the_newest_look_whether_its_run_ended_or_not(
    landing: Landing, ended: bool
) -> None:
    look(landing, "r0", datetime(2025, 1, 1, tzinfo=UTC))
    look(landing, ended=ended)
    with pytest.raises(KodoctlError, match=r"K589(?s:.*)of 2 partitions none(?s:.*)2026-01-01(?s:.*)2026-02-01"):
        must_be_same_cluster(landing, {part(0): OTHER, part(1): OTHER, part(5): UNKNOWN})
    with pytest.raises(KodoctlError, match="K589"):
        must_be_same_cluster(landing, {part(0): UNKNOWN, part(1): OTHER})


def test_of_partitions_that_were_made_again_an_audit_takes_no_facts(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(landing)
    expansion = expanded("topics:\n  orders: {partitions: 2, subscriptions: {billing: {}}}")
    made = {0: SAME, 1: OTHER, 2: OTHER}
    monkeypatch.setattr(cluster_check, "histories", lambda _, topic, parts: {one: made[one] for one in parts})
    admin: Any = SimpleNamespace()
    found = {(TOPIC, 0): 5, (TOPIC, 1): 6, (TOPIC, 2): 7}
    assert same_partitions(landing, admin, expansion, found) == {(TOPIC, 0): 5, (TOPIC, 2): 7}, "the last is a new one"
    made[0] = UNKNOWN
    with pytest.raises(KodoctlError, match="K589"):
        same_partitions(landing, admin, expansion, found)
    assert same_partitions(landing, admin, expansion, {}) == {}
