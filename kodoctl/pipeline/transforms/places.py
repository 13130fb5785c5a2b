"""Everything known of one place: a stored message, as one subscription has to do with it.

A *place* is (lane, ledger, entry, batch index). A *lane* is one partition of a topic for one subscription that answers for
its messages: every subscription of a ground for its ready topics, one for each waiting state and for its dead letters.
Rows from messages, from workers' records and from the ledger of recalls are put under each other and grouped once by the
place; no join of facts decides anything.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls them

from kodoctl.topology.audit import MAX_TEXT, Event

PLACE: Final = ("lane", "ledger", "entry", "batch")
LANES: Final = """
  lane int, family int, topic string, msg_topic string, msg_partition int, subscription string, state string,
  mark_ledger bigint, mark_entry bigint,
  acknowledged array<struct<ledger:bigint,first:bigint,last:bigint>>,
  started_ledger bigint, started_entry bigint,
  first_ledger bigint, first_entry bigint, last_ledger bigint, last_entry bigint,
  covered boolean, proved boolean, recorded boolean, horizon bigint, read_at bigint
"""
"""A row for each lane. `family`: number of (ground topic, subscription). `mark_*` and `acknowledged`: as in the
table of cursors; null: the subscription is not on the partition. `started_*`: acknowledged when the cursor was first
seen, where the subscription may have begun behind that; else null. `first_*` (null: its creation) and `last_*`: what was
read. `covered`: all of that was seen. `recorded`: its worker acknowledges only what it has recorded; `proved`: and those
records were all read. `horizon` in ms; `read_at`: when the cursor was read, ms since the epoch.
"""
WEIGHTS: Final = {  # of a place's records the heaviest counts: a crash may leave several
    Event.MOVED: 1, Event.DEAD: 2, Event.SKIPPED: 3, Event.DISCARDED: 4, Event.REPEATED: 5, Event.DONE: 6,
    Event.TRANSFERRED: 7,
}  # fmt: skip
_ONWARD: Final = (Event.MOVED.value, Event.DEAD.value)
_DOES: Final = (Event.DONE.value, Event.DISCARDED.value, Event.TRANSFERRED.value)
_KINDS: Final = {
    "stored": "boolean", "meant": "boolean", "published": "bigint", "identity": "bigint", "here": "bigint", "next": "bigint",
    "hop": "int", "weight": "int", "deed": "bigint", "named": "boolean", "astray": "boolean", "settled": "string",
}  # fmt: skip


def places(events: DataFrame, transitions: DataFrame, letters: DataFrame, lanes: DataFrame) -> DataFrame:
    """One row a place: (PLACE, stored, meant, published, identity, here, next, hop, weight, deeds, named, astray, settled).

    `letters`: (msg_topic, msg_partition, ledger, entry, batch_index, settled) of the ledger of recalls. `identity`, `here`
    and `next` are hashes: of what names the message over all hops, of its place in its own chain of hops, and of the next
    one. `deeds`: how often it was done, 2 = more than once. `named`: a record says that the next hop is here. `astray`: its
    own record names a next hop that cannot have been read.
    """
    return (
        _stored(events, lanes)
        .unionByName(_recorded(transitions, lanes))
        .unionByName(_named(transitions, lanes))
        .unionByName(_settled(letters, lanes))
        .groupBy(*PLACE)
        .agg(
            F.max("stored").alias("stored"),
            F.max("meant").alias("meant"),
            F.max("published").alias("published"),
            F.max("identity").alias("identity"),
            F.max("here").alias("here"),
            F.max("next").alias("next"),
            F.max("hop").alias("hop"),
            F.max("weight").alias("weight"),
            F.min("deed").alias("first_deed"),
            F.max("deed").alias("last_deed"),
            F.max("named").alias("named"),
            F.max("astray").alias("astray"),
            F.max(F.when(F.col("settled") == "sent", 2).when(F.col("settled") == "discarded", 1)).alias("settled"),
        )
        .select(
            *PLACE,
            F.coalesce("stored", F.lit(False)).alias("stored"),
            "meant",
            "published",
            "identity",
            "here",
            "next",
            "hop",
            "weight",
            F.when(F.col("first_deed").isNull(), 0)
            .when(F.col("first_deed") == F.col("last_deed"), 1)
            .otherwise(2)
            .alias("deeds"),
            F.coalesce("named", F.lit(False)).alias("named"),
            F.coalesce("astray", F.lit(False)).alias("astray"),
            "settled",
        )
    )


def identified(identity: str, mid: str) -> Column:
    """What names a message over all its hops, as a worker's records have it."""
    return F.xxhash64(F.substring(F.coalesce(identity, mid), 1, MAX_TEXT))


def _row(**columns: Column) -> list[Column]:
    """The columns of a tagged row; those not given are null."""
    return [
        F.col("lane"),
        F.col("ledger"),
        F.col("entry"),
        F.col("batch"),
        *(columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _KINDS.items()),
    ]


def _stored(events: DataFrame, lanes: DataFrame) -> DataFrame:
    readers = F.broadcast(lanes.select("lane", "msg_topic", "msg_partition", F.col("subscription").alias("reader")))
    return (
        events.select(
            "msg_topic", "msg_partition", "ledger", "entry", F.col("batch_index").alias("batch"),
            "mid", "kodo_id", "hop", "for_subscription", "publish_ts",
        )
        .join(readers, ["msg_topic", "msg_partition"], how="inner")
        .select(
            *_row(
                stored=F.lit(True),
                meant=F.coalesce(F.col("for_subscription") == F.col("reader"), F.lit(True)),
                published=F.unix_millis("publish_ts"),
                identity=identified("kodo_id", "mid"),
                here=F.xxhash64("mid", "hop"),
                next=F.xxhash64("mid", F.col("hop") + 1),
                hop=F.col("hop"),
            )
        )
    )  # fmt: skip


def _recorded(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """A record counts where it says that the message was. It is `astray` when the next hop it names cannot have been read."""
    own = lanes.select("lane", "msg_topic", F.col("msg_partition").alias("part"), "subscription")
    ends = lanes.select(
        F.col("msg_topic").alias("target_topic"),
        F.col("msg_partition").alias("target_part"),
        "subscription",
        "last_ledger",
        "last_entry",
    )
    event, reached = F.col("event"), F.struct("target_ledger", "target_entry") <= F.struct("last_ledger", "last_entry")
    seen = (F.col("target_ledger") >= 0) & F.col("last_ledger").isNotNull() & reached
    return (
        _split(_split(transitions, "id", ""), "target_id", "target_")
        .join(F.broadcast(own), ["msg_topic", "part", "subscription"], how="inner")
        .join(F.broadcast(ends), ["target_topic", "target_part", "subscription"], how="left")
        .select(
            *_row(
                identity=F.xxhash64("identity"),
                weight=F.coalesce(*(F.when(event == name.value, weight) for name, weight in WEIGHTS.items())),
                deed=F.when(event.isin(*_DOES), F.xxhash64("worker_run", "number")),
                astray=event.isin(*_ONWARD) & ~F.coalesce(seen, F.lit(False)),
            )
        )
    )


def _named(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """Where records say that messages went. A transferred one is everybody's who reads there."""
    to = lanes.select(
        "lane", F.col("msg_topic").alias("target_topic"), F.col("msg_partition").alias("part"), "subscription"
    )
    moved = _split(transitions.where(F.col("event").isin(*_ONWARD)), "target_id", "")
    handed = _split(transitions.where(F.col("event") == Event.TRANSFERRED.value), "target_id", "")
    row = _row(named=F.lit(True), identity=F.xxhash64("identity"))
    other = _row(named=F.lit(True))
    return (
        moved.join(F.broadcast(to), ["target_topic", "part", "subscription"], how="inner")
        .select(*row)
        .unionByName(
            handed.drop("subscription").join(F.broadcast(to), ["target_topic", "part"], how="inner").select(*other)
        )
    )


def _settled(letters: DataFrame, lanes: DataFrame) -> DataFrame:
    dead = lanes.where(F.col("state") == "dead").select("lane", "msg_topic", "msg_partition")
    return (
        letters.withColumnRenamed("batch_index", "batch")
        .join(F.broadcast(dead), ["msg_topic", "msg_partition"], how="inner")
        .select(*_row(settled=F.col("settled")))
    )


def _split(records: DataFrame, place: str, prefix: str) -> DataFrame:
    """`ledger:entry:partition:batch index` as four columns; null where it is none."""
    parts = F.split(place, ":")
    numbers = {
        f"{prefix}{name}": F.try_element_at(parts, F.lit(at + 1)).try_cast(kind)
        for at, (name, kind) in enumerate(
            (("ledger", "bigint"), ("entry", "bigint"), ("part", "int"), ("batch", "int"))
        )
    }
    return records.withColumns(numbers)
