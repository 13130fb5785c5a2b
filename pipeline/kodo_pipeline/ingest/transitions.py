"""Conversion of landed audit messages to rows of the table `transitions`, with built-in functions of Spark only (no row
is converted in Python).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.landing.tables import AUDIT, DATE, TRANSITIONS
from kodo_pipeline.spark.spark_columns import cause_column
from kodoctl.protocol.audit_records import COUNT_PROPERTY, FORMAT
from kodoctl.topology.units import LATEST

_RECORDS: Final = (
    "format int, run string, subscription string, first bigint, at bigint, topics array<string>, after array<bigint>, "
    "topic array<int>, id array<string>, identity array<string>, hop array<int>, event array<string>, rule array<string>, "
    "target array<int>, target_id array<string>, reason array<string>, tenant array<string>, age array<bigint>, "
    "error array<string>"
)


def audit_messages(landed: DataFrame) -> DataFrame:
    """Returns the audit messages among the landed events; the column `found` has their parsed records."""
    return landed.where(F.col("state") == AUDIT).withColumn("found", _records())


def transitions(read: DataFrame) -> DataFrame:
    """Rows of the table `transitions`, one for each audit record in `read`, the result of `audit_messages`.

    If `read` has the column `date`, so has the result: the day of a record, null if it is more than a day from the day
    of its message, which only forged records are. Records without a number, or with an impossible time, and messages
    without records in a known format give no row.
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
        "error",
    )
    empty = F.transform("found.id", lambda _: F.lit(None).cast("string"))  # no record has one: the column is left out
    read = read.withColumn("found", F.col("found").withField("error", F.coalesce("found.error", empty)))
    rows = read.where(F.col("found.format") == FORMAT).select(
        "*", F.posexplode(F.arrays_zip(*(F.col(f"found.{name}").alias(name) for name in zipped))).alias("at", "row")
    )
    number, moment = F.try_add(F.col("found.first"), F.col("at")), _moment(F.col("row.after"))
    columns = {
        "worker_run": F.col("found.run"),
        "number": number,
        "subscription": F.col("found.subscription"),
        "at_ts": F.timestamp_millis(moment),
        "msg_topic": _topic_at("row.topic"),
        "id": F.col("row.id"),
        "identity": F.coalesce("row.identity", "row.id"),
        "target_topic": F.when(F.col("row.target") >= 0, _topic_at("row.target")),
        "age_ms": F.col("row.age"),
        "cause": F.expr(cause_column("row.reason", "row.error")),
        "audit_topic": F.col("msg_topic"),
        "audit_id": F.col("id"),
    } | {name: F.col(f"row.{name}") for name in ("hop", "event", "rule", "target_id", "reason", "error", "tenant")}
    readable = rows.where(number.isNotNull() & moment.isNotNull())
    made = [columns.get(name, F.col(name)).alias(name) for name in TRANSITIONS.names]
    return readable.select(*made, *([_day(columns["at_ts"]).alias(DATE)] if DATE in read.columns else []))


def _day(moment: Column) -> Column:
    """Day of a record's time; null if it is more than one day from the day of its message. The records of one day of
    messages thus have at most three days.
    """
    day = F.to_date(moment)
    return F.when(F.abs(F.date_diff(day, F.col(DATE))) <= 1, day)


def unreadable() -> Column:
    """Condition on audit messages: true if a message has no readable records, another number of records than its
    properties say, or records without a number or a time.
    """
    found, counted = F.col("found"), F.col("properties").getItem(COUNT_PROPERTY).try_cast("int")
    readable = (
        (found["format"] == FORMAT)
        & (F.size(found["id"]) == counted)
        & (F.size(found["after"]) == counted)
        & F.forall(found["after"], lambda after: _moment(after).isNotNull())
        & F.try_add(found["first"], counted).isNotNull()
    )
    return ~F.coalesce(readable, F.lit(False))


def _moment(after: Column) -> Column:
    """Time at which the worker decided to acknowledge the message of a record, ms since the epoch; null if a timestamp
    cannot have that time.
    """
    at = F.try_add(F.col("found.at"), after)
    return F.when(at.between(0, LATEST), at)


def _records() -> Column:
    return F.from_json(F.col("payload").cast("string"), _RECORDS)


def _topic_at(index: str) -> Column:
    return F.get(F.col("found.topics"), F.col(index))
