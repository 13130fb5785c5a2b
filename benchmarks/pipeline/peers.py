"""The core of audit and rollup as somebody writes it for one machine: `python peers.py duckdb|polars FOLDER` -> JSON of seconds.

Who was acknowledged (everything here) and has no record; who has two; records of nobody; holes in producers' numbers; then
counts and exact percentiles by window and tenant.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

LOST = 37
POINTS = (0.5, 0.95, 0.99)
BEGAN = time.monotonic()


def duckdb(events: str, records: str) -> dict[str, Any]:
    import duckdb as db

    connection = db.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW events AS SELECT * FROM '{events}'")
    connection.execute(f"CREATE VIEW records AS SELECT * FROM '{records}'")
    began = time.monotonic()
    lost, twice = connection.execute(
        "WITH told AS (SELECT msg_topic, id, count(*) AS n FROM records GROUP BY ALL) SELECT count(*) FILTER (n IS NULL),"
        " count(*) FILTER (n > 1) FROM events LEFT JOIN told USING (msg_topic, id) WHERE state <> 'audit'"
    ).fetchone()
    unknown = connection.execute("SELECT count(*) FROM records ANTI JOIN events USING (msg_topic, id)").fetchone()[0]
    holes = connection.execute(
        "SELECT sum(holes) FROM (SELECT max(seq_number) - count(DISTINCT seq_number) AS holes FROM events"
        " GROUP BY msg_topic, seq_run, seq_partition)"
    ).fetchone()[0]
    audit = time.monotonic() - began
    assert (lost, twice, unknown, holes) == (LOST, 0, 0, 0)
    began = time.monotonic()
    connection.execute(
        "SELECT time_bucket(INTERVAL 5 minutes, at_ts) AS w, topic, subscription, tenant, event, count(*) FROM records GROUP BY ALL"
    ).fetchall()
    connection.execute(
        "SELECT time_bucket(INTERVAL 5 minutes, publish_ts) AS w, topic, level, state, tenant, count(*) FROM events GROUP BY ALL"
    ).fetchall()
    rows = connection.execute(
        f"SELECT tenant, quantile_disc(age_ms, {list(POINTS)}) FROM records GROUP BY tenant"
    ).fetchall()
    rollup = time.monotonic() - began
    return {
        "audit": audit,
        "rollup": rollup,
        "percentiles": {tenant: [float(one) for one in found] for tenant, found in rows},
    }


def polars(events: str, records: str) -> dict[str, Any]:
    import polars as pl

    began = time.monotonic()
    stored, transitions = (pl.scan_parquet(one, hive_partitioning=True) for one in (events, records))
    counted = transitions.group_by("msg_topic", "id").len("n")
    joined = (
        stored.filter(pl.col("state") != "audit").select("msg_topic", "id").join(counted, ["msg_topic", "id"], "left")
    )
    found = joined.select(pl.col("n").is_null().sum().alias("lost"), (pl.col("n") > 1).sum().alias("twice")).collect()
    unknown = (
        transitions.select("msg_topic", "id")
        .join(stored.select("msg_topic", "id"), ["msg_topic", "id"], "anti")
        .collect()
        .height
    )
    numbers = pl.col("seq_number")
    by_run = stored.group_by("msg_topic", "seq_run", "seq_partition").agg(
        (numbers.max() - numbers.n_unique()).alias("holes")
    )
    holes = by_run.select(pl.col("holes").sum()).collect().item()
    audit = time.monotonic() - began
    assert (found["lost"][0], found["twice"][0], unknown, holes) == (LOST, 0, 0, 0)
    began = time.monotonic()
    for table, stamp, keys in (
        (transitions, "at_ts", ["topic", "subscription", "tenant", "event"]),
        (stored, "publish_ts", ["topic", "level", "state", "tenant"]),
    ):
        table.group_by(pl.col(stamp).dt.truncate("5m"), *keys).len().collect()
    points = [pl.col("age_ms").quantile(point).alias(str(point)) for point in POINTS]
    transitions.group_by("tenant").agg(points).collect()
    return {"audit": audit, "rollup": time.monotonic() - began}


def main() -> None:
    name, folder = sys.argv[1:]
    base = f"{folder}/landed/bench/base"
    found = {"duckdb": duckdb, "polars": polars}[name](
        f"{base}/events/*/*/*/*.parquet", f"{base}/transitions/*/*/*/*.parquet"
    )
    print(json.dumps({**found, "process": time.monotonic() - BEGAN}))


if __name__ == "__main__":
    main()
