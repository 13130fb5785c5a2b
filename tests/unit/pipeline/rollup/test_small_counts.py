"""Counted tables of few rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from kodo_pipeline.landing.tables import LATENCIES, ROLLUP, SENT
from kodo_pipeline.rollup.counted_files import small_counts

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS = {"window_ts": AT, "topic": "orders", "subscription": None, "level": "L1", "state": "ready", "tenant": "u1"}
SCHEMA = pa.schema(
    [*(LATENCIES.arrow().field(name) for name in (*KEYS, "bucket")),
     *((name, pa.int64()) for name in (*ROLLUP.names[len(KEYS):], "sent"))]
)  # fmt: skip


def _row(bucket: int | None = None, sent: int | None = 0, **columns: object) -> dict[str, object]:
    return {**KEYS, **dict.fromkeys(ROLLUP.names[len(KEYS) :], 0), "bucket": bucket, "sent": sent, **columns}


def test_rows_of_one_key_are_one_and_null_is_a_key() -> None:
    rows = [
        _row(arrivals=3, sent=2), _row(arrivals=1, sent=1, level="L2"), _row(arrivals=4, state="retrying", subscription="billing"),
        _row(5, None, done=6, subscription="billing"), _row(6, None, done=1, subscription="billing"),
        _row(None, None, failed=2, subscription="billing"),
    ]  # fmt: skip
    made = small_counts(pa.Table.from_pylist(rows, SCHEMA))
    assert {table: found.column_names for table, found in made.items()} == {
        ROLLUP: ROLLUP.names, LATENCIES: LATENCIES.names, SENT: SENT.names,
    }  # fmt: skip
    rollup = {(one["subscription"], one["level"], one["state"]): one for one in made[ROLLUP].to_pylist()}
    assert len(rollup) == made[ROLLUP].num_rows == 4
    assert [rollup[None, level, "ready"]["arrivals"] for level in ("L1", "L2")] == [3, 1]
    assert [rollup["billing", "L1", "ready"][name] for name in ("arrivals", "done", "failed")] == [0, 7, 2]
    assert sorted((one["bucket"], one["messages"]) for one in made[LATENCIES].to_pylist()) == [(5, 6), (6, 1)]
    assert made[SENT].to_pylist() == [{"window_ts": AT, "topic": "orders", "tenant": "u1", "messages": 3}]


def test_of_nothing_there_is_nothing() -> None:
    made = small_counts(SCHEMA.empty_table())
    assert [found.num_rows for found in made.values()] == [0, 0, 0]
