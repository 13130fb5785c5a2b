"""Audit messages among landed events -> the table `transitions`. Built-ins of Spark only: no row meets Python."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kodoctl.pipeline.ingest.tables import AUDIT, TRANSITIONS
from kodoctl.protocol.audit_records import COUNT_PROPERTY, FORMAT
from kodoctl.topology.units import LATEST

_RECORDS: Final = (
    "format int, run string, subscription string, first bigint, at bigint, topics array<string>, after array<bigint>, "
    "topic array<int>, id array<string>, identity array<string>, hop array<int>, event array<string>, rule array<string>, "
    "target array<int>, target_id array<string>, reason array<string>, tenant array<string>, age array<bigint>"
)


def audited(landed: DataFrame) -> DataFrame:
    """The audit messages among events, with what they hold as `found`."""
    return landed.where(f.col("state") == AUDIT).withColumn("found", _records())


def transitions(read: DataFrame) -> DataFrame:
    """The table `transitions` of audit messages. What is no record of a worker's, or has no number, or none of a
    moment, gives no row.
    """
    zipped = (
        "after",
        "topic",
        "id",
        "identity",
        "hop",
        "event",
        "rule",
        "target",
        "target_id",
        "reason",
        "tenant",
        "age",
    )
    rows = read.where(f.col("found.format") == FORMAT).select(
        "*", f.posexplode(f.arrays_zip(*(f.col(f"found.{name}").alias(name) for name in zipped))).alias("at", "row")
    )
    number, moment = f.try_add(f.col("found.first"), f.col("at")), _moment(f.col("row.after"))
    columns = {
        "worker_run": f.col("found.run"),
        "number": number,
        "subscription": f.col("found.subscription"),
        "at_ts": f.timestamp_millis(moment),
        "msg_topic": _listed("row.topic"),
        "id": f.col("row.id"),
        "identity": f.coalesce("row.identity", "row.id"),
        "target_topic": f.when(f.col("row.target") >= 0, _listed("row.target")),
        "age_ms": f.col("row.age"),
        "audit_topic": f.col("msg_topic"),
        "audit_id": f.col("id"),
    } | {name: f.col(f"row.{name}") for name in ("hop", "event", "rule", "target_id", "reason", "tenant")}
    readable = rows.where(number.isNotNull() & moment.isNotNull())
    return readable.select(*(columns.get(name, f.col(name)).alias(name) for name in TRANSITIONS.names))


def unreadable() -> Column:
    """Condition on audit messages: one that holds no records, others than its properties count, or some without a
    number or a time.
    """
    found, counted = f.col("found"), f.col("properties").getItem(COUNT_PROPERTY).try_cast("int")
    readable = (
        (found["format"] == FORMAT)
        & (f.size(found["id"]) == counted)
        & (f.size(found["after"]) == counted)
        & f.forall(found["after"], lambda after: _moment(after).isNotNull())
        & f.try_add(found["first"], counted).isNotNull()
    )
    return ~f.coalesce(readable, f.lit(False))


def _moment(after: Column) -> Column:
    """Time at which the worker decided to acknowledge the message of a record, ms since the epoch; null if the record has
    none that a timestamp can hold.
    """
    at = f.try_add(f.col("found.at"), after)
    return f.when(at.between(0, LATEST), at)


def _records() -> Column:
    return f.from_json(f.col("payload").cast("string"), _RECORDS)


def _listed(index: str) -> Column:
    return f.get(f.col("found.topics"), f.col(index))
