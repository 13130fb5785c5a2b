"""Facts about each place, computed from messages, audit records and the recall ledger.

A *place* is the position of a stored message in one lane: (lane, ledger, entry, batch index). A *lane* is here one
partition of a topic for one subscription that is responsible for its messages: every subscription of a ground topic for
its ready topics, one for each waiting state and for its dead letters. Rows from messages, from audit records and from
the recall ledger are united and grouped once by place: no join of facts decides the fate of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.audit.end_positions import read_limits, was_read, was_stored
from kodo_pipeline.audit.recalled import recalled_positions, seen_letter
from kodoctl.protocol.audit_records import MAX_TEXT, Event
from kodoctl.protocol.properties import MAX_ID

PLACE: Final = ("lane", "ledger", "entry", "batch")
LANES: Final = """
  lane int, family int, topic string, msg_topic string, msg_partition int, subscription string, state string,
  mark_ledger bigint, mark_entry bigint, aged_ledger bigint, aged_entry bigint,
  acknowledged array<struct<ledger:bigint,first:bigint,last:bigint>>,
  started_ledger bigint, started_entry bigint,
  proven_ranges array<struct<after_ledger:bigint,after_entry:bigint,last_ledger:bigint,last_entry:bigint>>,
  first_ledger bigint, first_entry bigint, last_ledger bigint, last_entry bigint, stored_ledger bigint, stored_entry bigint,
  covered boolean, proved boolean, recorded boolean, horizon bigint, read_at bigint
"""
"""A row for each lane.

- `family`: number of (ground topic, subscription).
- `mark_*`, `acknowledged`: cursor, as in the table of cursors; null: the subscription is not on the partition.
- `aged_*`: last position that was read longer ago than the horizon; null: none.
- `started_*`: last position that cannot be judged, because the subscription, or its complete audit trail, may have
  begun after it; null: none. `proven_ranges`: ranges before it that were acknowledged while an audit trail was
  complete.
- `first_*`, `last_*`: the range that was read; `first_*` null: from the creation of the partition.
- `stored_*`: last position that was stored when the cursors were last read; null: they never were.
- `covered`: every entry of the range was read.
- `recorded`: workers acknowledge only messages that they have recorded; `proved`: and all of those records were read.
- `horizon`: in ms; `read_at`: time at which the cursor was read, ms since the epoch.
"""
WEIGHTS: Final = {  # of a place's records the heaviest counts: a crash may leave several
    Event.STORED: 1, Event.MOVED: 2, Event.DEAD: 3, Event.SKIPPED: 4, Event.DISCARDED: 5, Event.REPEATED: 6, Event.DONE: 7,
    Event.TRANSFERRED: 8,
}  # fmt: skip
_ONWARD: Final = (Event.MOVED.value, Event.DEAD.value)
_DOES: Final = (Event.DONE.value, Event.DISCARDED.value, Event.TRANSFERRED.value)
_STORED, _ADDRESSED, _REFERENCED, _TARGET_UNREAD, _DISCARDED, _SENT, _RECALL_UNCONFIRMED, _TARGET_MISSING = (
    1 << bit for bit in range(8)
)
_RECORDED: Final = 8  # bits from here on: a record of that weight
_CARRIED, _RECALLED = 1 << 16, 1 << 17
_NO_PARTITION: Final = -2  # of what names no place; -1 is a topic without partitions
_COLUMNS: Final = {
    "facts": "int",
    "published": "bigint",
    "identity": "bigint",
    "next": "bigint",
    "completion": "bigint",
}


def places(
    events: DataFrame,
    transitions: DataFrame,
    letters: DataFrame | None,
    lanes: DataFrame,
    booked: DataFrame | None = None,
) -> DataFrame:
    """Unites all facts about a place in one row: (lane, ledger, entry, batch, stored, addressed, published, identity,
    identity_conflict, next, weight, completions, referenced, target_unread, target_missing, sent, recall_unconfirmed,
    discarded, carried, recalled). `events`: landed messages; `transitions`: audit records; `lanes`: rows of LANES;
    `letters`: result of kodo_pipeline.audit.recalled.with_evidence; `booked`: all entries of the recall ledger; both
    None if it has none. If `events` has the column `families`, or `transitions` has `own` and `refers`
    (kodo_pipeline.landing.state_tables), a row counts only for the lanes that a value there allows; null allows all.

    - `stored`, `addressed`: the message was read here; it is for this subscription.
    - `identity`: hash of the message's name over all hops, or of the place if no row has a name; `next`: hash of the
      next place in its chain of hops, and `published`: ms since the epoch, both null if no message was read here.
    - `identity_conflict`: the message here, its records, and records with this place as the next hop name more than one
      identity; null if they name none.
    - `weight`: of the heaviest record, see WEIGHTS; 0: no record.
    - `completions`: number of records that it was done, discarded or transferred; 2: two or more.
    - `referenced`: a record, or the receipt of a recall, names this place as the next hop.
    - `target_unread`: its own record names a next hop that reading has not passed, or of which the position is unknown;
      `target_missing`: although a message was stored there when the cursors were last read.
    - `sent`, `recall_unconfirmed`, `discarded`: of kodo_pipeline.audit.recalled.recalled_positions.
    - `carried`: a row that an earlier audit has seen is about this place; `recalled`: the recall ledger names it, or
      its message has a recall id.
    """
    known = [
        _stored_places(events, lanes),
        _recorded_places(transitions, lanes),
        _referenced_places(transitions, lanes),
    ]
    known += [] if letters is None else [_settled_places(letters, lanes)]
    known += [] if booked is None else [_ledger_places(booked, lanes)]
    facts = _group_by_place(known)
    heavy = sorted(set(WEIGHTS.values()), reverse=True)
    return facts.select(
        *PLACE,
        _has(_STORED).alias("stored"),
        _has(_ADDRESSED).alias("addressed"),
        "published",
        F.coalesce("identity", F.xxhash64(*PLACE)).alias("identity"),
        (F.col("another") != F.col("identity")).alias("identity_conflict"),
        "next",
        F.coalesce(*(F.when(_has(_of_weight(one)), one) for one in heavy), F.lit(0)).alias("weight"),
        F.when(F.col("first_completion").isNull(), 0)
        .when(F.col("first_completion") == F.col("last_completion"), 1)
        .otherwise(2)
        .alias("completions"),
        _has(_REFERENCED).alias("referenced"),
        _has(_TARGET_UNREAD).alias("target_unread"),
        _has(_TARGET_MISSING).alias("target_missing"),
        _has(_SENT).alias("sent"),
        _has(_RECALL_UNCONFIRMED).alias("recall_unconfirmed"),
        _has(_DISCARDED).alias("discarded"),
        _has(_CARRIED).alias("carried"),
        _has(_RECALLED).alias("recalled"),
    )


def _group_by_place(known: Sequence[DataFrame]) -> DataFrame:
    """Groups all rows by place. Facts are bits of one number, because rows of millions of places are shuffled here."""
    return (
        reduce(DataFrame.unionByName, known)
        .repartition(
            *PLACE
        )  # a place has few rows, which are seldom together: what is grouped before them stays as long
        .groupBy(*PLACE)
        .agg(
            F.bit_or("facts").alias("facts"),
            F.max("published").alias("published"),
            F.max("identity").alias("identity"),
            F.min("identity").alias("another"),
            F.max("next").alias("next"),
            F.min("completion").alias("first_completion"),
            F.max("completion").alias("last_completion"),
        )
    )


def hops(events: DataFrame, lanes: DataFrame) -> DataFrame:
    """Next hops that are stored, one row each: (family, next), where `next` is a hash as in `places`. A message whose
    `next` is in this table was moved, even if the record of the move is missing.
    """
    return hop_places(events, lanes).select("family", "next").distinct()


def hop_places(events: DataFrame, lanes: DataFrame) -> DataFrame:
    """Places of stored messages that were moved there: (lane, ledger, entry, batch, family, next). `next`: hash of this
    hop, equal to the `next` in `places` of the place that the message came from.
    """
    reader = F.col("subscription").alias("reader")
    readers = lanes.select("lane", "family", "msg_topic", "msg_partition", reader)
    return (
        events.where(F.col("hop") > 0)
        .withColumn("families", _column_or_null(events, "families"))
        .join(F.broadcast(readers), ["msg_topic", "msg_partition"], how="inner")
        .where(_is_addressed() & _concerns("families"))
        .withColumnRenamed("batch_index", "batch")
        .select(*PLACE, "family", _hop(F.col("hop")).alias("next"))
    )


def _hop(number: Column) -> Column:
    """The hash of a hop in a message's chain. A recall begins a new one, whose hops keep its id."""
    return F.xxhash64("mid", "recall", number)


def _is_addressed() -> Column:
    return F.coalesce(F.col("for_subscription") == F.col("reader"), F.lit(True))


def _of_weight(weight: int) -> int:
    return 1 << (_RECORDED + weight - 1)


def _has(bit: int) -> Column:
    return F.col("facts").bitwiseAND(F.lit(bit)) != 0


def _facts(*given: tuple[Column, int]) -> Column:
    """The bits whose conditions are true, in one number; a null condition is not true."""
    return reduce(Column.bitwiseOR, (F.when(condition, bit).otherwise(0) for condition, bit in given))


def identity_of(kodo_id: str, mid: str) -> Column:
    """Column with the identity of a message over all its hops, as audit records contain it: its property `kodo-id`, or
    the position of its first hop if the property is missing, empty or longer than MAX_ID; cut at MAX_TEXT characters.
    `kodo_id`, `mid`: names of the columns with the property and the position.
    """
    given = F.when(F.length(kodo_id).between(1, MAX_ID), F.col(kodo_id))
    return F.substring(F.coalesce(given, F.col(mid)), 1, MAX_TEXT)


def identity_hash(kodo_id: str, mid: str) -> Column:
    """Column with the hash of `identity_of`."""
    return F.xxhash64(identity_of(kodo_id, mid))


def _row(**columns: Column) -> list[Column]:
    """The columns of a row that is put together with others of its place; those not given are null."""
    return [
        *(F.col(name) for name in PLACE),
        *(columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _COLUMNS.items()),
    ]


def _stored_places(events: DataFrame, lanes: DataFrame) -> DataFrame:
    reader = F.col("subscription").alias("reader")
    readers = F.broadcast(lanes.select("lane", "family", "msg_topic", "msg_partition", reader))
    return (
        events.select(
            "msg_topic", "msg_partition", "ledger", "entry", F.col("batch_index").alias("batch"),
            "mid", "kodo_id", "hop", "recall", "for_subscription", "publish_ts", _column_or_null(events, "families"),
        )
        .join(readers, ["msg_topic", "msg_partition"], how="inner")
        .where(_concerns("families"))
        .select(
            *_row(
                facts=_facts(
                    (F.lit(True), _STORED),
                    (_is_addressed(), _ADDRESSED),
                    (F.col("families").isNotNull(), _CARRIED),
                    (F.col("recall").isNotNull(), _RECALLED),
                ),
                published=F.unix_millis("publish_ts"),
                identity=identity_hash("kodo_id", "mid"),
                next=_hop(F.try_add("hop", F.lit(1))),  # whoever sends a message writes its number of hops
            )
        )
    )  # fmt: skip


def _recorded_places(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """Rows of audit records, at the position of the message that a record is about."""
    own = lanes.select("lane", "msg_topic", F.col("msg_partition").alias("part"), "subscription")
    event = F.col("event")
    target_unread = event.isin(*_ONWARD) & ~was_read("target_ledger", "target_entry")
    carried = transitions.withColumn("own", _column_or_null(transitions, "own", "boolean"))
    records = _with_place(carried.where(F.coalesce("own", F.lit(True))), "id")
    return (
        split_position(records, "target_id", "target_")
        .join(F.broadcast(own), ["msg_topic", "part", "subscription"], how="inner")
        .join(
            F.broadcast(read_limits(lanes, "target_topic", "target_part")),
            ["target_topic", "target_part", "subscription"],
            how="left",
        )
        .select(
            *_row(
                facts=_facts(
                    *((event == name.value, _of_weight(weight)) for name, weight in WEIGHTS.items()),
                    (target_unread, _TARGET_UNREAD),
                    (target_unread & was_stored("target_ledger", "target_entry"), _TARGET_MISSING),
                    (F.col("own").isNotNull(), _CARRIED),
                ),
                # By its place it calls, too, what it did not believe (signing keys): that says nothing of another message.
                identity=F.when(F.col("identity") != F.col("id"), F.xxhash64("identity")),
                completion=F.when(event.isin(*_DOES), F.xxhash64("worker_run", "number")),
            )
        )
    )


def _referenced_places(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """Positions that records name as the target of a message. A transferred message counts for every subscription
    that reads the target.
    """
    topic, part = F.col("msg_topic").alias("target_topic"), F.col("msg_partition").alias("part")
    to = lanes.select("lane", "family", topic, part, F.col("subscription").alias("reader"))
    onward, handed = F.col("event").isin(*_ONWARD), F.col("event") == Event.TRANSFERRED.value
    is_about = (onward & (F.col("subscription") == F.col("reader"))) | handed
    # A ledger of -1: the broker had it already, and does not say where.
    records = transitions.withColumn("refers", _column_or_null(transitions, "refers")).where(onward | handed)
    return (
        _with_place(records, "target_id")
        .where("ledger >= 0")
        .join(F.broadcast(to), ["target_topic", "part"], how="inner")
        .where(is_about & _concerns("refers"))
        .select(
            *_row(
                facts=_facts((F.lit(True), _REFERENCED), (F.col("refers").isNotNull(), _CARRIED)),
                identity=F.when(onward, F.xxhash64("identity")),
            )
        )
    )


def _settled_places(letters: DataFrame, lanes: DataFrame) -> DataFrame:
    """Rows of entries of the recall ledger: at the places of the letters and, for letters that were sent, at the places
    where the copies are stored. They have no identity, because workers with signing keys may not have accepted it.
    """
    letters = recalled_positions(letters, lanes)
    bits_of = {"sent": _SENT, "recall_unconfirmed": _RECALL_UNCONFIRMED, "discarded": _DISCARDED, "seen": _CARRIED}
    bits = [(F.col(name), bit) for name, bit in bits_of.items()]
    own = letters.select(*_row(facts=_facts((F.lit(True), _RECALLED), *bits)))
    there = letters.where(F.col("to_lane").isNotNull()).select(
        "seen", *(F.col(f"to_{name}").alias(name) for name in PLACE)
    )
    copies = _facts((F.lit(True), _REFERENCED | _RECALLED), (F.col("seen"), _CARRIED))
    return own.unionByName(there.select(*_row(facts=copies)))


def _ledger_places(letters: DataFrame, lanes: DataFrame) -> DataFrame:
    """Rows of all places that entries of the recall ledger name, for letters and for their copies, whether or not a
    message was read there.
    """
    seen = seen_letter(letters).alias("seen")
    own = letters.select("msg_topic", "msg_partition", "ledger", "entry", F.col("batch_index").alias("batch"), seen)
    receipt = F.split(F.nullif(F.col("receipt"), F.lit("")), ":")
    there = [F.get(receipt, at).try_cast("bigint").alias(name) for at, name in enumerate(("ledger", "entry"))]
    topic, part = F.col("lane_topic").alias("msg_topic"), F.col("lane_part").alias("msg_partition")
    copies = letters.select(topic, part, *there, F.lit(-1).alias("batch"), seen).where("ledger IS NOT NULL")
    readers = F.broadcast(lanes.select("lane", "msg_topic", "msg_partition"))
    named = own.unionByName(copies).join(readers, ["msg_topic", "msg_partition"], how="inner")
    return named.select(*_row(facts=_facts((F.lit(True), _RECALLED), (F.col("seen"), _CARRIED))))


def _column_or_null(rows: DataFrame, column: str, kind: str = "array<int>") -> Column:
    """The column of this name if `rows` have it, as rows of an earlier audit do; else null."""
    return F.col(column) if column in rows.columns else F.lit(None).cast(kind).alias(column)


def _concerns(families: str) -> Column:
    """True if a row is about the subscription of the lane that it was joined with."""
    return F.col(families).isNull() | F.array_contains(families, F.col("family"))


def _with_place(records: DataFrame, place: str) -> DataFrame:
    """Adds the columns of `split_position`, with `_NO_PARTITION` instead of null in `part`: Spark would first filter
    nulls out before a join, and would split each position twice for that.
    """
    return split_position(records, place, "").withColumn("part", F.coalesce("part", F.lit(_NO_PARTITION)))


def split_position(records: DataFrame, place: str, prefix: str) -> DataFrame:
    """Adds columns with the parts of a position: ledger, entry, part and batch, each name after `prefix`; replaces
    columns of these names. `place`: column with the text `ledger:entry:partition:batch index`. Each column is null on
    its own if the text lacks this part or the part is no number.
    """
    # an empty text becomes null first: to cast what is no number Spark throws and catches, ten times the cost of one
    parts = F.split(F.nullif(F.col(place), F.lit("")), ":")
    numbers = {
        f"{prefix}{name}": F.try_element_at(parts, F.lit(at + 1)).try_cast(kind)
        for at, (name, kind) in enumerate(
            (("ledger", "bigint"), ("entry", "bigint"), ("part", "int"), ("batch", "int"))
        )
    }
    return records.withColumns(numbers)
