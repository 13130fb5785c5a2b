"""A small landing, and what DuckDB, Polars and plain Spark say of it by their own ordinary readers, without kodoctl."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
from deltalake import DeltaTable
from kodo_pipeline.landing.landing_commits import ROLLUP_RUN, LandingCommit, TableFiles
from kodo_pipeline.landing.tables import EVENTS, LATENCIES, ROLLUP, TABLES, TRANSITIONS
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from kodo_pipeline.landing.landing_store import Landing
    from pyspark.sql import SparkSession

DAY = datetime(2026, 1, 1, 12, tzinfo=UTC)
COUNTS = [(date(2026, 1, 1), "a:b", 2, 30), (date(2026, 1, 1), "orders", 2, 10), (date(2026, 1, 2), "orders", 2, 20)]
"""Of the landed events: day, topic, messages, bytes."""


def fill(landing: Landing) -> None:
    """Two batches, each of three events and a record, and two rollups of which the second replaces the first."""
    for number in range(2):
        rows = [{"id": f"7:{number}:{one}:-1", "topic": topic, "publish_ts": at, "size": size, "properties": [("n", "1")],
                 "attempts": [("retrying", 2)], "payload": b"x", "seq_void": [{"first": 1, "last": 2}]}
                for one, (topic, at, size) in enumerate([("orders", DAY, 5), ("orders", DAY + timedelta(days=1), 10), ("a:b", DAY, 15)])]  # fmt: skip
        records = [{"worker_run": "w", "number": number, "topic": "orders", "at_ts": DAY}]
        name = f"{number:09d}-r1"
        tables = {
            EVENTS.name: landing.write_rows(EVENTS, name, rows),
            TRANSITIONS.name: landing.write_rows(TRANSITIONS, name, records),
        }
        landing.commit(LandingCommit("r1", 1, number, tables))
    behind = -1
    for arrivals in (1, 7):
        rollup = [{"window_ts": DAY, "topic": "orders", "arrivals": arrivals}]
        late = [{"window_ts": DAY, "topic": "orders", "bucket": 3, "messages": arrivals}]
        made = {
            table.name: TableFiles.of(landing.write_rows(table, f"rollup-{arrivals}", rows).files or (), ())
            for table, rows in ((ROLLUP, rollup), (LATENCIES, late))
        }
        behind = landing.commit(LandingCommit(ROLLUP_RUN, 1, tables=made), behind=behind).number


def by_duckdb(landing: Landing, options: dict[str, str] | None = None) -> dict[str, Any]:
    """SQL on the Arrow dataset of a table, which passes filters on to it."""
    tables = {
        table.name: _open(landing, table.name, options).to_pyarrow_dataset() for table in (*TABLES, ROLLUP, LATENCIES)
    }
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        asked = "SELECT date, topic, count(*)::int, sum(size)::int FROM events GROUP BY ALL ORDER BY ALL"
        pruned = "SELECT count(*) FROM events WHERE date = '2026-01-02' AND topic = 'orders'"
        return {
            "events": connection.sql(asked).fetchall(),
            "pruned": connection.sql(pruned).fetchall()[0][0],
            "nested": connection.sql("SELECT properties['n'], attempts['retrying'], seq_void[1].\"last\" FROM events LIMIT 1").fetchall(),
            "joined": connection.sql("SELECT count(*) FROM events JOIN transitions USING (topic)").fetchall()[0][0],
            "rollup": connection.sql("SELECT arrivals FROM rollup").fetchall(),
        }  # fmt: skip


def by_polars(landing: Landing, options: dict[str, str] | None = None) -> dict[str, Any]:
    """scan_delta."""
    events, records, rollup = (
        pl.scan_delta(_uri(landing, name), storage_options=options) for name in ("events", "transitions", "rollup")
    )
    counted = events.group_by("date", "topic").agg(pl.len().cast(int), pl.col("size").sum()).sort("date", "topic")
    pruned = events.filter((pl.col("date") == date(2026, 1, 2)) & (pl.col("topic") == "orders")).select(pl.len())
    return {
        "events": counted.collect().rows(),
        "pruned": pruned.collect().item(),
        "joined": events.join(records, on="topic").select(pl.len()).collect().item(),
        "rollup": rollup.select("arrivals").collect().rows(),
    }


def by_spark(spark: SparkSession, landing: Landing) -> dict[str, Any]:
    """Parquet files that the table's log names, and its partitions by their folders: no class of kodoctl, no delta-spark."""

    def read(name: str) -> Any:
        folder = f"{landing.root.uri}/{name}"
        names = [one.removeprefix(folder) for one in DeltaTable(folder).file_uris()]
        return spark.read.options(basePath=folder, ignoreInvalidPartitionPaths="true").parquet(
            *(f"{folder}{one}" for one in names)
        )

    events = read("events")
    counted = events.groupBy("date", "topic").agg(F.count("*"), F.sum("size")).orderBy("date", "topic").collect()
    return {
        "events": [tuple(row) for row in counted],
        "pruned": events.where("date = '2026-01-02' AND topic = 'orders'").count(),
        "joined": events.join(read("transitions"), "topic").count(),
        "rollup": [tuple(row) for row in read("rollup").select("arrivals").collect()],
    }


def _uri(landing: Landing, name: str) -> str:
    return f"{landing.root.uri}/{name}".replace("s3a://", "s3://", 1)


def _open(landing: Landing, name: str, options: dict[str, str] | None) -> DeltaTable:
    return DeltaTable(_uri(landing, name), storage_options=options)
