"""Help for tests of the landing without Spark: batches, and what is stored as somebody without kodoctl reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, EVENTS

DAY = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def event(number: int, topic: str = "orders", at: datetime = DAY) -> dict[str, Any]:
    return {"id": f"7:{number}:0:-1", "topic": topic, "publish_ts": at, "size": 1, "properties": [("n", str(number))]}


def batch(landing: Landing, number: int, run: str = "r1", rows: int = 2) -> LandingCommit:
    """Written, and not committed."""
    name = f"{number:09d}-{run}"
    found = landing.write_rows(EVENTS, name, [event(one) for one in range(rows)])
    covered = landing.write_rows(COVERAGE, name, [{"split_id": name, "rows": rows, "batch": number}])
    return LandingCommit(run, 1, number, {EVENTS.name: found, COVERAGE.name: covered})


def stored(landing: Landing, table: str = "events") -> list[dict[str, Any]]:
    """As somebody without kodoctl reads it."""
    return list(DeltaTable(f"{landing.root.uri}/{table}").to_pyarrow_table().to_pylist())


def anew(landing: Landing) -> Landing:
    """The landing as another process finds it."""
    return Landing(str(landing.root.local.parents[1]), "trade", None)  # type: ignore[union-attr]
