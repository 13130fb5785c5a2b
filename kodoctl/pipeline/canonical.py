"""What the source gives -> canonical events, and audit messages -> transitions. Built-ins of Spark only: no row meets Python.

Which topic belongs to which ground, level, state and subscription is the topology's to say: a broadcast join, no parsing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kodoctl.pipeline.schema import AUDIT, EVENTS, RANGES, TRANSITIONS
from kodoctl.topology import control
from kodoctl.topology.audit import COUNT_PROPERTY, FORMAT
from kodoctl.topology.model import KEY
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kodoctl.topology.expand import Expansion

NOBODY: Final = "(none)"  # tenant of a message without the fair_by property, as the consumer counts it
_ATTEMPTS: Final = {
    State.RETRYING.value: control.ATTEMPTS_RETRYING,
    State.PENDING.value: control.ATTEMPTS_PENDING,
    State.BLOCKING.value: control.ATTEMPTS_BLOCKING,
    "backup": control.ATTEMPTS_BACKUP,
}
_SEQ: Final = r"^([0-9a-f]{15,43}):(\d{1,15}):(?:(\d{1,15})|high=(\d{1,15})(?::void=([\d,-]+))?(:end)?)$"
_RECORDS: Final = (
    "format int, run string, subscription string, first bigint, at bigint, topics array<string>, after array<bigint>, "
    "topic array<int>, id array<string>, identity array<string>, hop array<int>, event array<string>, rule array<string>, "
    "target array<int>, target_id array<string>, reason array<string>, tenant array<string>, age array<bigint>"
)
_FAMILY: Final = "msg_topic string, topic string, level string, state string, subscription string, fair_by string"


def family(spark: SparkSession, expansion: Expansion) -> DataFrame:
    """The topics of a topology with their places in it: a few rows, to be joined with."""
    grounds = expansion.topology.spec.topics
    rows = [
        (one.name.full, one.ground, one.level and one.level.value, one.state.value if one.state else AUDIT, one.subscription,
         grounds[one.ground].fair_by)
        for one in expansion.topics
    ]  # fmt: skip
    return spark.createDataFrame(rows, _FAMILY)


def events(messages: DataFrame, topics: DataFrame, run: str) -> DataFrame:
    """The table `events` of what the source read."""
    stored = messages.withColumnRenamed("topic", "msg_topic")
    joined = stored.join(f.broadcast(topics), on="msg_topic", how="left")
    own = f.concat_ws(":", "ledger", "entry", f.greatest("partition", f.lit(0)), "batch_index")
    sequence = [f.regexp_extract(_property(control.SEQ), _SEQ, group) for group in range(7)]
    seq = [f.when(sequence[0] != "", f.nullif(group, f.lit(""))) for group in sequence]
    origin_time = f.timestamp_millis(_property(control.ORIGIN_TIME).try_cast("bigint"))
    columns = {
        "mid": f.coalesce(_property(control.ORIGIN_ID), own),
        "id": own,
        "kodo_id": _property(control.ID),
        "msg_partition": f.col("partition"),
        "tenant": _tenant(),
        "hop": f.coalesce(_property(control.HOP).try_cast("int"), f.lit(0)),
        "attempts": _attempts(),
        "reason": _property(control.REASON),
        "died_in": _property(control.FROM_LEVEL),
        "parent": _property(control.PARENT),
        "recall": _property(control.RECALL),
        "for_subscription": _property(control.FOR),
        "seq_run": seq[1],
        "seq_partition": seq[2].try_cast("int"),
        "seq_number": seq[3].try_cast("bigint"),
        "seq_high": seq[4].try_cast("bigint"),
        "seq_void": _ranges(seq[5]),
        "seq_end": f.when(seq[4].isNotNull(), seq[6].isNotNull()),
        "origin_publish_ts": f.coalesce(origin_time, f.col("publish_ts")),
        "ingest_run": f.lit(run),
    }
    return joined.select(*(columns.get(name, f.col(name)).alias(name) for name in EVENTS.names))


def audited(landed: DataFrame) -> DataFrame:
    """The audit messages among events, with what they hold as `found`."""
    return landed.where(f.col("state") == AUDIT).withColumn("found", _records())


def transitions(read: DataFrame) -> DataFrame:
    """The table `transitions` of audit messages. What is no record of a worker's gives no row."""
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
    columns = {
        "worker_run": f.col("found.run"),
        "number": f.col("found.first") + f.col("at"),
        "subscription": f.col("found.subscription"),
        "at_ts": f.timestamp_millis(f.col("found.at") + f.col("row.after")),
        "msg_topic": _listed("row.topic"),
        "id": f.col("row.id"),
        "identity": f.coalesce("row.identity", "row.id"),
        "target_topic": f.when(f.col("row.target") >= 0, _listed("row.target")),
        "age_ms": f.col("row.age"),
        "audit_topic": f.col("msg_topic"),
        "audit_id": f.col("id"),
    } | {name: f.col(f"row.{name}") for name in ("hop", "event", "rule", "target_id", "reason", "tenant")}
    return rows.select(*(columns.get(name, f.col(name)).alias(name) for name in TRANSITIONS.names))


def unreadable() -> Column:
    """Whether an audit message holds no records, or others than its properties count."""
    found, counted = f.col("found"), _property(COUNT_PROPERTY).try_cast("int")
    return found["format"].isNull() | (found["format"] != FORMAT) | ~f.size(found["id"]).eqNullSafe(counted)


def _records() -> Column:
    return f.from_json(f.col("payload").cast("string"), _RECORDS)


def _listed(index: str) -> Column:
    return f.get(f.col("found.topics"), f.col(index))


def _property(name: str) -> Column:
    return f.col("properties").getItem(name)


def _tenant() -> Column:
    by = f.col("fair_by")
    value = f.when(by == KEY, f.col("key")).otherwise(f.try_element_at("properties", by))
    return f.when(f.col("state") != AUDIT, f.coalesce(f.nullif(value, f.lit("")), f.lit(NOBODY)))


def _attempts() -> Column:
    """A map of the counters that are there."""
    counted = [(name, _property(key).try_cast("int")) for name, key in _ATTEMPTS.items()]
    every = f.create_map(*(part for name, value in counted for part in (f.lit(name), value)))
    return f.map_filter(every, lambda _, value: value.isNotNull())


def _ranges(text: Column) -> Column:
    """`17,40-52` -> [(17, 17), (40, 52)]"""

    def both(part: Column) -> Column:
        ends = f.split(part, "-")
        first = f.get(ends, f.lit(0)).try_cast("bigint")
        return f.struct(first.alias("first"), f.coalesce(f.get(ends, f.lit(1)).try_cast("bigint"), first).alias("last"))

    return f.transform(f.split(text, ","), both).cast(RANGES)
