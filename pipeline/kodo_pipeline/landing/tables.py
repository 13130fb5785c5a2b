"""Definitions of the landing's tables, column by column: one list for writers, readers and the documentation.

`events` has one row for each message stored on a topic of the topology, audit topics included; `transitions` one for
each audit record; `coverage` one for each range of entries that was read; `cursors` one for each subscription of a
partition, as it was *before* the ends of the run's ranges were fixed. `rollup`, `latencies` and `sent` are counted from
the first two window by window, `failures` day by day. A transition joins the event it is about by (msg_topic, id), and
the event its message went on as by (target_topic, target_id): no other pair of columns is safe against forged
identities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_type(kind: str) -> Any:
    """Arrow's type for a type name of Spark SQL. Raises KeyError for a name that no table of the landing uses."""
    import pyarrow as pa

    number = pa.int64()
    simple = {
        "string": pa.string(), "int": pa.int32(), "bigint": number, "double": pa.float64(), "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"), "binary": pa.binary(),
    }  # fmt: skip
    match kind:
        case "map<string,string>":
            return pa.map_(pa.string(), pa.string())
        case "map<string,int>":
            return pa.map_(pa.string(), pa.int32())
        case "array<string>":
            return pa.list_(pa.string())
        case "array<bigint>":
            return pa.list_(number)
        case "array<int>":
            return pa.list_(pa.int32())
        case "array<struct<first:bigint,last:bigint>>":
            return pa.list_(pa.struct([("first", number), ("last", number)]))
        case "array<struct<ledger:bigint,first:bigint,last:bigint>>":
            return pa.list_(pa.struct([("ledger", number), ("first", number), ("last", number)]))
        case _:
            return simple[kind]


def spark_type(kind: str) -> Any:
    """Spark's type for a type name of Spark SQL. Raises KeyError for a name that no table of the landing uses."""
    from pyspark.sql import types as t

    number = t.LongType()
    simple = {
        "string": t.StringType(), "int": t.IntegerType(), "bigint": number, "double": t.DoubleType(),
        "boolean": t.BooleanType(), "timestamp": t.TimestampType(), "binary": t.BinaryType(),
    }  # fmt: skip
    match kind:
        case "map<string,string>":
            return t.MapType(t.StringType(), t.StringType())
        case "map<string,int>":
            return t.MapType(t.StringType(), t.IntegerType())
        case "array<string>":
            return t.ArrayType(t.StringType())
        case "array<bigint>":
            return t.ArrayType(number)
        case "array<int>":
            return t.ArrayType(t.IntegerType())
        case "array<struct<first:bigint,last:bigint>>":
            return t.ArrayType(t.StructType([t.StructField(name, number) for name in ("first", "last")]))
        case "array<struct<ledger:bigint,first:bigint,last:bigint>>":
            return t.ArrayType(t.StructType([t.StructField(name, number) for name in ("ledger", "first", "last")]))
        case _:
            return simple[kind]


_DAYS: Final = 50
"""Days for which one writer makes partitions. Senders choose the publish times of messages: rows of further days go
into the partition without a date, lest a sender cause a file for each row. The statistics of the files have their times
as well.
"""
DATE: Final = "date"  # partition column of tables with a `moment`
AUDIT: Final = "audit"  # stands in `state` for topics of audit records
RANGES: Final = "array<struct<first:bigint,last:bigint>>"
PLACES: Final = "array<struct<ledger:bigint,first:bigint,last:bigint>>"
GAPS: Final = "array<string>"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `kind`: type in Spark SQL; `about`: meaning and unit; `null`: True if the column may be
    null, which the schemas do not enforce.
    """

    name: str
    kind: str
    about: str
    null: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Definition of a table of the landing, or of rows of the Pulsar source. `moment`: the time column, whose day (UTC)
    is the partition column `date`; None: the table has neither; `partitions`: all partition columns, which files do not
    contain, () for a table that is read as a whole; `days`: maximum number of days for which one writer makes
    partitions (`date` is null in rows of further days), 0: no maximum.
    """

    name: str
    about: str
    columns: tuple[Column, ...]
    moment: str | None = None
    partitions: tuple[str, ...] = ()
    days: int = 0

    @property
    def names(self) -> list[str]:
        """Names of the table's columns in their order, without `date`."""
        return [column.name for column in self.columns]

    def arrow(self) -> pa.Schema:
        """The schema for Arrow: all columns, without the derived column `date`. Every column is nullable, as Spark
        reads Parquet.
        """
        import pyarrow as pa

        return pa.schema([pa.field(column.name, arrow_type(column.kind)) for column in self.columns])

    def delta(self) -> pa.Schema:
        """The schema of the Delta table: that of `arrow`, and the column `date` if the table has a time column."""
        import pyarrow as pa

        return self.arrow().append(pa.field(DATE, pa.date32())) if self.moment else self.arrow()

    def spark(self, *, dated: bool = False) -> StructType:
        """The schema for Spark. `dated`: with the column `date`. Every column is nullable, as Spark reads Parquet."""
        from pyspark.sql.types import DateType, StructField, StructType

        fields = [StructField(column.name, spark_type(column.kind)) for column in self.columns]
        return StructType([*fields, StructField(DATE, DateType())] if dated else fields)


MESSAGES: Final = Table(
    "messages",
    "What `spark.read.format('pulsar')` gives: one row for each stored message.",
    (
        Column("topic", "string", "full name of the topic, without its partition: persistent://TENANT/NAMESPACE/TOPIC"),
        Column("partition", "int", "number of the partition; -1 for a topic without partitions"),
        Column("ledger", "bigint", "ledger the message is stored in"),
        Column("entry", "bigint", "entry of the ledger; a producer's batch is one entry"),
        Column("batch_index", "int", "place in the batch, from 0; -1 for a message alone in its entry"),
        Column("key", "string", "the message's key", null=True),
        Column("publish_ts", "timestamp", "when its producer published it, in ms; 9999-12-30 for all that is later"),
        Column("event_ts", "timestamp", "event time its producer gave, in ms; null beyond 9999-12-30", null=True),
        Column("properties", "map<string,string>", "all properties; empty where they are no text"),
        Column(
            "broken",
            "string",
            "what of it cannot be read: what is no UTF-8 text is lost, an encrypted payload is as it was stored; all of an "
            "entry that the client library gives no message of, whose publish_ts is that of a message beside it",
            null=True,
        ),
        Column(
            "size",
            "bigint",
            "bytes of the payload, 0 for a tombstone; null where payloads are not asked for",
            null=True,
        ),
        Column(
            "payload", "binary", "the payload; null for a tombstone, or where payloads are not asked for", null=True
        ),
        Column("split_id", "string", "the split that read it: its row in `coverage` says whether that was all"),
    ),
)

EVENTS: Final = Table(
    "events",
    "One row for each message stored on a topic of the topology, messages of audit records included.",
    (
        Column("mid", "string", "`id` of the message's first hop (kodo-origin-id), else its own: the same on all hops"),
        Column("id", "string", "ledger:entry:partition:batch index where this row is stored; unique with msg_topic"),
        Column("kodo_id", "string", "identity that its producer or outbox gave (kodo-id)", null=True),
        Column("msg_topic", "string", "full name of the topic it is stored on, without partition"),
        Column("msg_partition", "int", "number of the partition"),
        Column("ledger", "bigint", "ledger it is stored in"),
        Column("entry", "bigint", "entry of the ledger"),
        Column("batch_index", "int", "place in its producer's batch; -1: alone"),
        Column("topic", "string", "ground topic, by its name in the topology file"),
        Column("level", "string", "S3 … D1; null on dead letter and audit topics", null=True),
        Column("state", "string", "ready, retrying, pending, blocking, dead; audit for messages of audit records"),
        Column("subscription", "string", "whose state topic it is; null on ready topics", null=True),
        Column(
            "tenant",
            "string",
            "value of `fair_by`; (none) without, (unknown) where it cannot be read; null on audit topics",
            null=True,
        ),
        Column("hop", "int", "moves so far (kodo-hop); 0 on the first topic"),
        Column(
            "attempts",
            "map<string,int>",
            "attempts by state so far: retrying, pending, blocking, backup; only those counted",
        ),
        Column("reason", "string", "why it was moved last (kodo-reason)", null=True),
        Column(
            "cause",
            "string",
            "reason and redacted error text (kodo-error) with # for what differs between two messages; null without both, "
            "and in what an older kodoctl landed",
            null=True,
        ),
        Column("died_in", "string", "level a dead letter died in (kodo-level)", null=True),
        Column("parent", "string", "`mid` of the message whose handler transferred this one (kodo-parent)", null=True),
        Column(
            "recall",
            "string",
            "id of the entry of the ledger that sent it: of a recall (kodo-recall), or of waiting apply (kodo-release)",
            null=True,
        ),
        Column(
            "for_subscription",
            "string",
            "the one subscription it is meant for (kodo-for); `(mark)` is nobody",
            null=True,
        ),
        Column("seq_run", "string", "producer's run (kodo-seq); null without a readable number", null=True),
        Column("seq_partition", "int", "partition the run counts", null=True),
        Column(
            "seq_number", "bigint", "the message's number in its run and partition, from 1; null on marks", null=True
        ),
        Column("seq_high", "bigint", "on a mark: the highest number given so far", null=True),
        Column("seq_void", RANGES, "on a mark: numbers given up, both ends included", null=True),
        Column("seq_end", "boolean", "on a mark: the run is over", null=True),
        Column("key", "string", "the message's key", null=True),
        Column("publish_ts", "timestamp", "when this hop was published; 9999-12-30 for all that is later"),
        Column("event_ts", "timestamp", "event time its producer gave; null beyond 9999-12-30", null=True),
        Column(
            "origin_publish_ts", "timestamp", "when its first hop was published (kodo-origin-time), else publish_ts"
        ),
        Column("size", "bigint", "bytes of the payload, 0 for a tombstone"),
        Column("properties", "map<string,string>", "all properties, kodo- ones included"),
        Column(
            "broken",
            "string",
            "what of it cannot be read: what is no UTF-8 text is lost, an encrypted payload is as it was stored; all of an "
            "entry that the client library gives no message of, whose publish_ts is that of a message beside it",
            null=True,
        ),
        Column("payload", "binary", "null for a tombstone, and where `payload_state` says why", null=True),
        Column(
            "payload_state",
            "string",
            "why the payload here is not the one that is stored: not_landed (`keep: never`), no_json (nothing to mask in), masked, "
            "expired, erased; null: it is",
            null=True,
        ),
        Column(
            "payload_digest", "string", "SHA-256 of the stored one, 32 digits of it; null where it is here", null=True
        ),
        Column("ingest_run", "string", "run that landed it"),
        Column("split_id", "string", "split that read it; joins `coverage`"),
    ),
    moment="publish_ts",
    partitions=(DATE, "topic"),
    days=_DAYS,
)

TRANSITIONS: Final = Table(
    "transitions",
    "One row for each audit record: a message that a worker acknowledged in one lane, for one subscription.",
    (
        Column("worker_run", "string", "one life of one worker"),
        Column("number", "bigint", "number of the record in its run, from 1 without a hole; twice means stored twice"),
        Column("topic", "string", "ground topic, by its name in the topology file"),
        Column("subscription", "string", "whose record it is"),
        Column("at_ts", "timestamp", "when the worker decided, by its clock"),
        Column("msg_topic", "string", "topic the message was received from"),
        Column("id", "string", "ledger:entry:partition:batch index where it was received; with msg_topic an event's"),
        Column("identity", "string", "the message's identity on all hops: kodo-id, else mid; cut at 200 characters"),
        Column("hop", "int", "moves before this one"),
        Column("event", "string", "stored, done, repeated, discarded, skipped, transferred, moved, dead"),
        Column("rule", "string", "what decided"),
        Column("target_topic", "string", "moved, dead, transferred: topic it goes on at", null=True),
        Column("target_id", "string", "ledger:entry:partition:batch index of it there", null=True),
        Column("reason", "string", "in the worker's words; cut at 200 characters", null=True),
        Column("error", "string", "redacted text of the error, where error_text has `audit: true`", null=True),
        Column("cause", "string", "of reason and error, as in `events`", null=True),
        Column("tenant", "string", "value of `fair_by`; cut at 200 characters"),
        Column("age_ms", "bigint", "ms since the message was first stored"),
        Column("audit_topic", "string", "topic the record is stored on"),
        Column("audit_id", "string", "ledger:entry:partition:batch index of the message that holds the record"),
        Column("publish_ts", "timestamp", "when that message was published"),
        Column("ingest_run", "string", "run that landed it"),
        Column("split_id", "string", "split that read it; joins `coverage`"),
    ),
    moment="at_ts",
    partitions=(DATE, "topic"),
    days=_DAYS,
)

COVERAGE: Final = Table(
    "coverage",
    "One row for each range of entries read: planned and seen. What is not `full` was committed only where asked to.",
    (
        Column("split_id", "string", "partition and range"),
        Column("msg_topic", "string", "full name of the topic"),
        Column("msg_partition", "int", "number of the partition"),
        Column("first", "string", "ledger:entry planned first"),
        Column("last", "string", "ledger:entry planned last"),
        Column("entries_planned", "bigint", "entries that the broker said are stored there"),
        Column("entries_seen", "bigint", "entries read, or shown to be such as cannot be read"),
        Column("rows", "bigint", "messages read"),
        Column("first_seen", "string", "ledger:entry read first", null=True),
        Column("last_seen", "string", "ledger:entry read last", null=True),
        Column(
            "gaps",
            GAPS,
            "EXPECTED>READ for each entry read that was not the next one planned, the first 100; of a `hole` its reason",
        ),
        Column("ledgers_before", "array<bigint>", "ledgers of the range when it was planned"),
        Column(
            "ledgers_after",
            "array<bigint>",
            "those of them that still were there after reading; all of them if it is `full`, as nobody asks then",
        ),
        Column(
            "state",
            "string",
            "complete, timeout (nothing more came), overrun (the broker went past the end), or hole: gone before it was planned",
        ),
        Column("full", "boolean", "`state` is complete, and every planned entry was seen in its place"),
        Column("seconds", "double", "how long reading took"),
        Column("ingest_run", "string", "run that read it"),
        Column("batch", "bigint", "batch of the checkpoint"),
    ),
)

CURSORS: Final = Table(
    "cursors",
    "How far each durable subscription of a partition was, taken before the run's topics were cut.",
    (
        Column("msg_topic", "string", "full name of the topic"),
        Column("msg_partition", "int", "number of the partition"),
        Column("topic", "string", "ground topic, by its name in the topology file"),
        Column("subscription", "string", "name of the subscription; empty: what is stored, a row of each partition"),
        Column("mark_ledger", "bigint", "everything up to and with this entry is acknowledged; or: is stored"),
        Column("mark_entry", "bigint", "entry in that ledger; -1: nothing of it"),
        Column("acknowledged", PLACES, "whole entries acknowledged beyond the mark, both ends included"),
        Column("ttl_ms", "bigint", "message TTL in force; null: none", null=True),
        Column("first_ledger", "bigint", "first ledger that still was stored"),
        Column("created_ts", "timestamp", "when the partition was made; null: the broker does not tell", null=True),
        Column(
            "rewrites",
            "bigint",
            "how often the partition's metadata was written, less its ledgers: deleting some adds two or more; null: as above",
            null=True,
        ),
        Column(
            "audit",
            "string",
            "on audit topics: whether workers wait for their records by the file, wait or best_effort; unrecorded: wait, and a "
            "consumer was connected that does not say it of itself; null elsewhere",
            null=True,
        ),
        Column("taken_ts", "timestamp", "when it was asked, by the cluster's clock (`Date` of its admin API)"),
        Column("ingest_run", "string", "run that asked"),
    ),
)
_WINDOW: Final = (
    Column("window_ts", "timestamp", "beginning of the window; windows are aligned to midnight UTC"),
    Column("topic", "string", "ground topic, by its name in the topology file"),
    Column("subscription", "string", "whose lane; null for arrivals on ready topics, which all read", null=True),
    Column("level", "string", "S3 … D1; null on dead letter topics", null=True),
    Column("state", "string", "ready, retrying, pending, blocking, dead; null for a topic nobody declares", null=True),
    Column("tenant", "string", "value of `fair_by`; (none) without, (unknown) where it cannot be read"),
)

ROLLUP: Final = Table(
    "rollup",
    "What happened in a window, by topic, subscription, level, state and tenant. Rows add up: over windows, lanes, tenants.",
    (
        *_WINDOW,
        Column(
            "arrivals", "bigint", "messages stored there, by the time they were published; producers' marks left out"
        ),
        Column("done", "bigint", "acknowledged: done, or moved to another topic"),
        Column("failed", "bigint", "runs of the handler after which the message left its lane"),
        Column("rerouted", "bigint", "moved to another lane, for any reason"),
        Column("over_limit", "bigint", "moved to wait for room: a limit, or the handler, said so"),
        Column("retries", "bigint", "arrivals with attempts behind them"),
        Column("dead", "bigint", "moved to the dead letters"),
        Column("discarded", "bigint", "discarded by the handler"),
        Column("repeated", "bigint", "received again after they were done, and not handled"),
    ),
    moment="window_ts",
    partitions=(DATE,),
)

LATENCIES: Final = Table(
    "latencies",
    "Histogram of the time from first being stored to done. Buckets of the same key add up: over windows, lanes, tenants.",
    (
        *_WINDOW,
        Column("bucket", "int", "whole part of the logarithm of ms to the base 1.02; -1: below 1 ms, -2: below 0"),
        Column("messages", "bigint", "so many were done that late"),
    ),
    moment="window_ts",
    partitions=(DATE,),
)
SENT: Final = Table(
    "sent",
    "What producers sent in a window, by topic and tenant: each message once, wherever it went since. Marks are no messages, and "
    "what was recalled is not sent again. Rows add up: over windows, topics, tenants.",
    (*_WINDOW[:2], _WINDOW[-1], Column("messages", "bigint", "so many were sent, by the time they were published")),
    moment="window_ts",
    partitions=(DATE,),
)
FAILURES: Final = Table(
    "failures",
    "What failed on a day, by topic, subscription and cause. Rows that are not `recorded` are what is known of subscriptions without any "
    "audit record; of others each failure is in a row that is. Rows add up: over days, causes.",
    (
        Column("window_ts", "timestamp", "midnight of the day (UTC)"),
        _WINDOW[1],
        Column("subscription", "string", "whose failure"),
        Column("event", "string", "moved or dead, as in `transitions`"),
        Column("rule", "string", "what decided; `retrying` or `dead` where it is not recorded"),
        Column("cause", "string", "of the message it went on as, in `events`; else the record's; empty without any"),
        Column("reason", "string", "the least of those that have the cause; empty without any"),
        Column("recorded", "boolean", "an audit record; else a message stored on a retry or dead letter topic"),
        Column("messages", "bigint", "so many"),
    ),
    moment="window_ts",
    partitions=(DATE,),
)
COMMITS: Final = Table(
    "commits",
    "One row for each new batch, each beginning and end of a run, the last rollup and maintenance, and one (run `history`) for "
    "all that is older: what counts, in the order it was committed.",
    (
        Column(
            "number", "bigint", "number of the commit; version of the application transaction `kodoctl` in each table"
        ),
        Column("run", "string", "run that committed it"),
        Column("at_ts", "timestamp", "when"),
        Column("batch", "bigint", "batch of the checkpoint; null on others", null=True),
        Column("tables", "string", "JSON: rows of each table, and its first and last time in ms"),
        Column("facts", "string", "JSON: further figures"),
        Column("files", "string", "JSON: files that it adds to each table; null on all but the newest", null=True),
    ),
)
TABLES: Final = (EVENTS, TRANSITIONS, COVERAGE, CURSORS)
COUNTED: Final = (ROLLUP, LATENCIES, SENT, FAILURES)  # made from the others, by `pipeline rollup`
