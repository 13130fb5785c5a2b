"""Choice of dead letters by a condition, as transforms of Spark DataFrames.

The condition is evaluated in Python, as everywhere, in Arrow batches with the columns that it reads. In Spark SQL it
would be a second implementation to be kept equal; benchmarks/pipeline says how much time that would save.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from kodo_pipeline.recall.unacknowledged import STRIDE
from kodo_pipeline.spark.spark_columns import POSITION
from kodoctl.errors import UsageError, error
from kodoctl.protocol import properties as headers
from kodoctl.recall.filter.fields import sources_of
from kodoctl.recall.message.stored_message import DIGEST, DeadLetter, Position, tenant_of
from kodoctl.recall.plan.recall_plan import RECALL_ID

if TYPE_CHECKING:
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.plan.destinations import RecallSource

HEAD: Final = 1_024  # bytes of a payload that a sample may need: 160 characters and more
_RAW: Final = (
    "topic", "partition", "ledger", "entry", "batch_index", "key", "publish_ts", "event_ts", "properties", "payload",
)  # fmt: skip
_COLUMNS: Final = {
    "topic": ("topic",),
    "position": ("partition", "ledger", "entry", "batch_index"),
    "key": ("key",),
    "publish_time": ("publish_ts",),
    "event_time": ("event_ts",),
    "payload": ("payload",),
}
"""Columns that have each attribute of a letter. No column has its ordering key."""
_UNREAD: Final[dict[str, Any]] = {
    "topic": "", "partition": 0, "ledger": 0, "entry": 0, "batch_index": -1, "key": None, "publish_ts": None, "event_ts": None,
    "properties": {}, "payload": None,
}  # fmt: skip
FROM_EVENTS: Final = {"topic": "msg_topic", "partition": "msg_partition"}
"""Columns of the Pulsar source that the landing's table `events` has under another name -> that name."""


def stored_in(events: DataFrame, topic: str) -> DataFrame:
    """Landed messages of one topic (full name), with the columns that the Pulsar source gives (the table MESSAGES of
    kodo_pipeline.landing.tables) without `split_id`, and with `payload_state` and `payload_digest` of the table
    `events`.
    """
    names = (*_RAW, "broken", "size", "payload_state", "payload_digest")
    return events.where(F.col("msg_topic") == topic).select(
        *(F.col(FROM_EVENTS.get(name, name)).alias(name) for name in names)
    )


def check_facts(condition: Condition) -> None:
    """Raises UsageError (K820) if the condition reads a fact that no column has, such as the ordering key."""
    if missing := sorted(sources_of(condition.root, None).attributes - _COLUMNS.keys()):
        detail = f"{missing[0]}: Spark's tables do not hold it; `kodoctl recall plan` reads it from the topic"
        raise UsageError(error("K820", "a fact that Spark does not have", detail))


def slips(
    messages: DataFrame,
    unacknowledged: DataFrame,
    booked: DataFrame,
    condition: Condition,
    family: RecallSource,
    *,
    whole: bool,
) -> DataFrame:
    """Makes a row for each dead letter in `messages`, except those of entries that the holder (the subscription that
    retains dead letters) has acknowledged as a whole: position; `chosen` (by the condition, and readable: `readable`);
    `settled` (its recall id is in `booked`); `key`; `mark` (recall id in its headers, of an earlier recall); and
    `published` (ms). Chosen ones also have the columns of `facts_of_chosen`, which are null for all others.

    `messages`: rows of the Pulsar source, or of `stored_in`, of the topic of `family`; `unacknowledged`: rows of
    kodo_pipeline.recall.unacknowledged.join_rows; `booked`: a row for each recall id that is settled by the recall
    ledger; `whole`: with the whole payload. Raises UsageError as `is_chosen` does.
    """
    at = ("partition", "ledger", "entry", "batch_index")
    marked = messages.select("*", F.floor(F.col("entry") / STRIDE).alias("stride"))
    here = F.col("entry").between(F.col("held.first"), F.col("held.last"))
    same = [F.col(f"letter.{name}") == F.col(f"held.{name}") for name in ("partition", "ledger", "stride")]
    kept = marked.alias("letter").join(F.broadcast(unacknowledged).alias("held"), on=[*same, here], how="left_semi")
    own = F.concat_ws("|", F.lit(family.source_topic), F.expr(POSITION), F.unix_millis("publish_ts"), F.lit(""))
    evaluated = kept.withColumn("chosen", is_chosen(condition, family.fair_by))
    named = evaluated.withColumn("recall_id", F.substring(F.sha2(own, 256), 1, RECALL_ID))
    known = named.join(F.broadcast(booked.withColumn("settled", F.lit(True))), on="recall_id", how="left")
    of_chosen = facts_of_chosen(messages, whole=whole)
    return known.select(
        *at, "chosen", F.coalesce("settled", F.lit(False)).alias("settled"), "key",
        F.col("properties").getItem(headers.RECALL).alias("mark"), F.unix_millis("publish_ts").alias("published"),
        *(F.when(F.col("chosen"), column).alias(name) for name, column in of_chosen.items()),
    )  # fmt: skip


def facts_of_chosen(messages: DataFrame, *, whole: bool) -> dict[str, Column]:
    """Columns, by name, that a plan needs of a chosen message: `properties`; `payload` (its first 1,024 bytes (HEAD),
    or all of it with `whole`); `digest` and `size` of the whole payload, even if it landed masked or not at all;
    `is_text`: whether the payload here is text, null if there is none. `messages`: frame that has the message.
    """
    payload = F.col("payload") if whole else F.substring("payload", 1, HEAD)
    body = F.concat(
        F.when(F.col("payload").isNull(), F.lit(b"-")).otherwise(F.lit(b"+")), F.coalesce("payload", F.lit(b""))
    )
    return {
        "properties": F.col("properties"),
        "payload": payload,
        "digest": _or_stored(messages, "payload_digest", F.substring(F.sha2(body, 256), 1, DIGEST)),
        "size": _or_stored(messages, "size", F.length("payload")),
        "is_text": F.is_valid_utf8(F.col("payload").cast("string")),
    }


def readable() -> Column:
    """Column: true for a message that can be sent on unchanged: no part of it is missing, but it may be encrypted."""
    return F.col("broken").isNull() | (F.col("broken") == headers.ENCRYPTED)


def _or_stored(messages: DataFrame, name: str, made: Column) -> Column:
    """Returns the landed column `name` for a payload that did not land unchanged (it was masked or removed), else
    `made`, which is computed from the payload.
    """
    if "payload_state" not in messages.columns:
        return made
    return F.when(F.col("payload_state").isNotNull(), F.col(name)).otherwise(made)


def check_payloads(messages: DataFrame, condition: Condition, *, whole: bool) -> None:
    """Raises UsageError (K587) if payloads are needed and the landing lacks that of one of `messages`, or has it
    masked. They are needed with `whole`, or if the condition asks for them (`asks_payload`); only then a query runs.
    `messages`: rows of `stored_in`.
    """
    if not whole and not asks_payload(condition):
        return
    if missing := messages.where(F.col("payload_state").isNotNull()).groupBy("payload_state").count().collect():
        counts = ", ".join(f"{row['count']:,} {row['payload_state']}" for row in sorted(missing))
        asks = "--edit needs them" if whole else "the condition asks for them"
        detail = f"of this topic's payloads {counts}, and {asks}: leave --landing out, and the topic itself is read"
        raise UsageError(error("K587", "payloads that the landing does not have", detail))


def asks_payload(condition: Condition) -> bool:
    """True if the condition reads the payload, its size, or something in it."""
    return "payload" in sources_of(condition.root, None).attributes


def is_chosen(condition: Condition, fair_by: str | None) -> Column:
    """Column: true for a readable message (see `readable`) that the condition chooses; never null. Raises UsageError
    for a fact that no column has, as `check_facts` does. `fair_by`: property with the tenant, or `key`; None: none.
    """
    check_facts(condition)
    sources = sources_of(condition.root, fair_by)
    names = sorted(sources.properties)
    raw = [column for attribute in sorted(sources.attributes) for column in _COLUMNS[attribute]]
    if not names and not raw:
        return readable() & F.lit(condition.chooses(letter_of_row(_UNREAD, fair_by)))

    def evaluate(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([condition.chooses(letter_of_row(_row(names, raw, row), fair_by)) for row in rows], pa.bool_())

    moments = {"publish_ts": F.unix_millis("publish_ts"), "event_ts": F.unix_millis("event_ts")}
    texts = [F.col("properties").getItem(name) for name in names]
    made: Any = arrow_udf  # its stubs know no functions without an evaluation type
    asked: Column = made(evaluate, "boolean")(*texts, *(moments.get(name, F.col(name)) for name in raw))
    return readable() & asked


def _row(names: Sequence[str], raw: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """A row for `letter_of_row`: values of properties, then of other columns."""
    texts = {name: text for name, text in zip(names, values, strict=False) if text is not None}
    return {**_UNREAD, **dict(zip(raw, values[len(names) :], strict=True)), "properties": texts}


def letter_of_row(row: Mapping[str, Any], fair_by: str | None) -> DeadLetter:
    """Makes a DeadLetter of a row with the columns of the Pulsar source that a condition can read (`_RAW`).
    `publish_ts` and `event_ts` are ms since the epoch, None becomes 0. The letter has no ordering key, and `broken` is
    always "". `fair_by`: as in `is_chosen`.
    """
    properties, key = dict(row["properties"] or ()), row["key"] or ""
    place = Position(row["partition"], row["ledger"], row["entry"], row["batch_index"])
    return DeadLetter(
        row["topic"],
        place,
        row["payload"],
        properties,
        key,
        event_time=row["event_ts"] or 0,
        publish_time=row["publish_ts"] or 0,
        tenant=tenant_of(fair_by, properties, key),
    )
