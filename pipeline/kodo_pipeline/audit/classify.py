"""Classification: the status (fate) of every message for every subscription, by transforms of Spark DataFrames. First
each place of a message gets a status; then the message gets the worst status of its places
(kodo_pipeline.audit.positions explains places).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.audit.positions import PLACE, WEIGHTS, split_position
from kodo_pipeline.audit.removed_rows import with_removed
from kodo_pipeline.evidence.audit_evidence import RANKS, Cause, MessageStatus
from kodo_pipeline.spark.spark_session import small_table
from kodoctl.protocol.audit_records import Event
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from kodo_pipeline.audit.removed_rows import RemovedRows

CAUSES: Final = {cause: number for number, cause in enumerate(Cause, 1)}
FINDINGS: Final = (MessageStatus.OVERDUE, MessageStatus.UNPROVED, MessageStatus.UNKNOWN, MessageStatus.LOST)
_CAUSES: Final = 100  # rank and cause in one number: a struct is not compared, and costs more than the judgement
_AWAY: Final = -1  # a place outside of what was read: nothing can be said of it
_LANE: Final = (
    "lane", "family", "state", "mark_ledger", "mark_entry", "acknowledged", "aged_ledger", "aged_entry", "started_ledger",
    "started_entry", "proven_ranges",
    "first_ledger", "first_entry", "last_ledger", "last_entry", "covered", "proved", "recorded", "horizon", "read_at",
)  # fmt: skip


def outcomes(places: DataFrame, lanes: DataFrame, removed: RemovedRows | None = None) -> DataFrame:
    """Computes the outcome of every place (a position of a message in a lane): the status and cause that its facts
    give.

    `places`: result of kodo_pipeline.audit.positions.places; `lanes`: rows of LANES there; `removed`: removed rows of
    the landing. Returns (lane, ledger, entry, batch, family, identity, next, completions, published, has_record,
    without_next_hop, with_next_hop, doubtful, stored, carried, final). `has_record`: the place has an audit record;
    `without_next_hop`, `with_next_hop`: the outcome (a number, see `outcome_of`; -1: nothing is known of the place) if
    no message is stored as the next hop, and if one is; `doubtful`: 1 if these differ, else 0 (a number, because Spark
    skips blocks of cached rows by numbers only); `final`: the outcome is proved, and changes only if a later row is
    about the place, or if somebody acknowledges or recalls a dead letter.

    Persist the result: `place_outcomes` reads it twice. Each step is a projection of its own, so that nothing is
    computed twice, and no method that Spark generates is too long for Java to compile.
    """
    return (
        with_removed(places, lanes, removed)
        .join(F.broadcast(lanes.select(*_LANE)), "lane", how="inner")
        .withColumns({"is_acknowledged": _is_acknowledged(), "precedes_trail": _precedes_trail()})
        .withColumn("acknowledged_unrecorded", _acknowledged_unrecorded())
        .withColumn("without_next_hop", _judgement())
        .withColumn("with_next_hop", _next_hop_outcome())
        .select(
            *PLACE,
            "family",
            "identity",
            "next",
            "completions",
            "published",
            (F.col("weight") > 0).alias("has_record"),
            "without_next_hop",
            "with_next_hop",
            F.when(F.col("without_next_hop") != F.col("with_next_hop"), 1).otherwise(0).alias("doubtful"),
            "stored",
            "carried",
            _final().alias("final"),
        )
    )


def _final() -> Column:
    """Condition: the outcome is proved: by a record, if the acknowledgement was read, too, or for a dead letter because
    nobody has acknowledged it.
    """
    without = F.col("without_next_hop")
    certain = (without == F.col("with_next_hop")) & (without <= RANKS[MessageStatus.DONE] * _CAUSES)
    return (_is_ended() & certain) | (_named_letter() & (without == RANKS[MessageStatus.DEAD] * _CAUSES))


def _is_ended() -> Column:
    """Condition: the place has a record of its end, and the cursors show its acknowledgement, so no worker receives the
    message again. False for dead letters and for places that a recall touched.
    """
    recorded = (
        (F.col("weight") > WEIGHTS[Event.STORED])
        & (F.col("state") != "dead")
        & F.coalesce("is_acknowledged", F.lit(False))
    )
    return F.col("stored") & ~F.col("recalled") & recorded


def _named_letter() -> Column:
    """Condition: the place is a stored dead letter that a record names, and that no recall touched. False if records
    name two identities for it.
    """
    one_name = ~F.coalesce("identity_conflict", F.lit(False))
    return F.col("stored") & ~F.col("recalled") & (F.col("state") == "dead") & F.col("referenced") & one_name


def place_outcomes(outcomes: DataFrame, hops: DataFrame) -> DataFrame:
    """Chooses for each place between its two outcomes, by whether its next hop is stored. Returns (lane, ledger, entry,
    batch, family, identity, rank, cause, completions, published, has_record, outcome, final).

    `outcomes`: result of the function `outcomes`; `hops`: result of kodo_pipeline.audit.positions.hops, the next hops
    that are stored, one row each. `rank`: rank of the status in kodo_pipeline.evidence.audit_evidence.RANKS, null if
    nothing is known of the place; `cause`: number of the cause in CAUSES, null if there is none; `outcome`: both as one
    number (`outcome_of`; -1: nothing is known), so that a condition on it skips blocks of cached rows.
    """
    decided = outcomes.where("doubtful = 0").withColumn("outcome", F.col("without_next_hop"))
    asked = (
        outcomes.where("doubtful = 1")
        .join(hops.withColumn("found", F.lit(True)), ["family", "next"], how="left")
        .withColumn("outcome", F.when(F.col("found"), F.col("with_next_hop")).otherwise(F.col("without_next_hop")))
    )
    columns = (*PLACE, "family", "identity", "completions", "published", "has_record", "outcome", "final")
    known = F.nullif(F.col("outcome"), F.lit(_AWAY))
    return (
        asked.select(*columns)
        .unionByName(decided.select(*columns))
        .withColumn("known", known)
        .select(
            *PLACE,
            "family",
            "identity",
            F.expr(f"known div {_CAUSES}").cast("int").alias("rank"),
            F.nullif(F.col("known") % _CAUSES, F.lit(0)).alias("cause"),
            "completions",
            "published",
            "has_record",
            "outcome",
            "final",
        )
    )


def judged_anew(
    judged: DataFrame, places: DataFrame, fate: MessageStatus, cause: Cause | None, least: MessageStatus
) -> DataFrame:
    """Replaces status and cause by `fate` and `cause` (None: no cause) at those of `places` (few distinct rows of lane,
    ledger, entry, batch) whose present status is `least` or worse (RANKS). Returns all rows of `judged`, the result of
    `place_outcomes`; the other rows, and the other columns, are unchanged.
    """
    is_chosen = F.col("is_chosen") & (F.col("outcome") >= outcome_of(least))
    changed = {
        "rank": F.lit(RANKS[fate]),
        "cause": F.lit(None if cause is None else CAUSES[cause]),
        "outcome": F.lit(outcome_of(fate, cause)),
    }
    return (
        judged.join(F.broadcast(places.withColumn("is_chosen", F.lit(True))), list(PLACE), how="left")
        .withColumns({name: F.when(is_chosen, value).otherwise(F.col(name)) for name, value in changed.items()})
        .select(*judged.columns)
    )


def written_off(judged: DataFrame, lanes: DataFrame, places: DataFrame) -> DataFrame:
    """Sets the status WRITTEN_OFF at those of `places` whose status is lost, unknown or unproved. `places`: few rows of
    (msg_topic, subscription, id), where `id` is `ledger:entry:partition:batch index`. Returns all rows of `judged`, the
    result of `place_outcomes`. A message with other places may stay lost.
    """
    named = split_position(places, "id", "").withColumnRenamed("part", "msg_partition")
    here = named.join(
        lanes.select("lane", "msg_topic", "msg_partition", "subscription"),
        ["msg_topic", "msg_partition", "subscription"],
    )
    return judged_anew(judged, here.select(*PLACE).distinct(), MessageStatus.WRITTEN_OFF, None, MessageStatus.UNPROVED)


def delayed_by_sender(judged: DataFrame, lanes: DataFrame, delayed: Collection[tuple[str, int, str]]) -> DataFrame:
    """Sets the status WAITING at overdue places without a record in the ready lanes of `delayed`, which has (full name
    of a topic, partition, subscription) as in kodo_pipeline.audit.write_offs.Bookings. Returns all rows of `judged`,
    the result of `place_outcomes`. An overdue place with a record stays overdue: its message is acknowledged, and stuck
    in an inbox.
    """
    named = small_table(judged.sparkSession, delayed, "msg_topic string, msg_partition int, subscription string")
    here = lanes.where(F.col("state") == State.READY.value).join(named, ["msg_topic", "msg_partition", "subscription"])
    waits = F.col("waits") & (F.col("rank") == RANKS[MessageStatus.OVERDUE]) & ~F.col("has_record")
    return (
        judged.join(F.broadcast(here.select("lane", F.lit(True).alias("waits"))), "lane", how="left")
        .withColumns(
            {
                "rank": F.when(waits, RANKS[MessageStatus.WAITING]).otherwise(F.col("rank")),
                "outcome": F.when(waits, outcome_of(MessageStatus.WAITING)).otherwise(F.col("outcome")),
            }
        )
        .select(*judged.columns)
    )


def messages(judged: DataFrame) -> DataFrame:
    """Combines the places of each message. Returns (family, identity, rank, settled) of every message; `family`: number
    of the subscription.

    `rank`: rank of the worst status of its places, null if nothing is known of any; a message with two or more records
    that it was done, discarded or transferred, at one place or at several, is DUPLICATED, unless a place has a worse
    status than DONE. `settled`: all of its places are final and it did not only move, so that the next audit need not
    judge it (kodo_pipeline.audit.settlement).
    """
    twice = (F.col("completions") > 1) & (F.col("worst") <= RANKS[MessageStatus.DONE])
    return (
        judged.groupBy("family", "identity")
        .agg(
            F.max("rank").alias("worst"),
            F.sum(F.when(F.col("rank").isNotNull(), F.col("completions"))).alias("completions"),
            F.bool_and("final").alias("final"),
        )
        .select(
            "family",
            "identity",
            F.when(twice, RANKS[MessageStatus.DUPLICATED]).otherwise(F.col("worst")).alias("rank"),
            (F.col("final") & F.coalesce(F.col("worst") > RANKS[MessageStatus.MOVING], F.lit(False))).alias("settled"),
        )
    )


def status_counts(messages: DataFrame) -> DataFrame:
    """Counts messages by subscription and status: (family, rank, settled, messages). Messages of which nothing is known
    are left out. `messages`: result of the function `messages`.
    """
    known = messages.where(F.col("rank").isNotNull())
    return known.groupBy("family", "rank", "settled").agg(F.count("*").alias("messages"))


def findings(judged: DataFrame, lanes: DataFrame) -> DataFrame:
    """Lists the places whose status is one of FINDINGS, one row each: (fate, cause, topic, subscription, msg_topic, id,
    identity).

    `judged`: result of `place_outcomes`; `lanes`: rows of kodo_pipeline.audit.positions.LANES. `fate`, `cause`: texts,
    `cause` null if there is none; `topic`: ground topic; `msg_topic`: full name of the topic that has the message;
    `id`: `ledger:entry:partition:batch index`; `identity`: a hash.
    """
    named = lanes.select("lane", "topic", "subscription", "msg_topic", "msg_partition")
    return (
        judged.where(F.col("outcome") >= RANKS[FINDINGS[0]] * _CAUSES)
        .join(F.broadcast(named), "lane", how="inner")
        .select(
            _text({rank: fate.value for fate, rank in RANKS.items()}, "rank").alias("fate"),
            _text({number: cause.value for cause, number in CAUSES.items()}, "cause").alias("cause"),
            "topic",
            "subscription",
            "msg_topic",
            F.concat_ws(":", "ledger", "entry", "msg_partition", "batch").alias("id"),
            "identity",
        )
    )


def _text(names: dict[int, str], column: str) -> Column:
    return F.coalesce(*(F.when(F.col(column) == number, F.lit(name)) for number, name in names.items()))


def _at_most(ledger: str, entry: str) -> Column:
    """True if the position of the row is at or before the given position; null if the given position is null."""
    return F.expr(f"ledger < {ledger} OR (ledger = {ledger} AND entry <= {entry})")


def _before(ledger: str, entry: str) -> Column:
    return F.expr(f"ledger < {ledger} OR (ledger = {ledger} AND entry < {entry})")


def _is_acknowledged() -> Column:
    """Condition: the subscription has acknowledged the entry. Null if the subscription is not on the partition."""
    inside = "exists(acknowledged, one -> one.ledger = ledger AND entry BETWEEN one.first AND one.last)"
    return _at_most("mark_ledger", "mark_entry") | F.expr(f"coalesce({inside}, false)")


def _precedes_trail() -> Column:
    """Condition: the place is before the audit start, so that a missing record proves nothing. False for a place that
    was acknowledged during an earlier complete audit trail.
    """
    after, last = "struct(one.after_ledger, one.after_entry)", "struct(one.last_ledger, one.last_entry)"
    inside = f"struct(ledger, entry) > {after} AND struct(ledger, entry) <= {last}"
    started = F.coalesce(_at_most("started_ledger", "started_entry"), F.lit(False))
    return started & ~F.expr(f"coalesce(exists(proven_ranges, one -> {inside}), false)")


def _acknowledged_unrecorded() -> Column:
    """True if the message was stored for the subscription and acknowledged by it, and has no record."""
    mine = F.col("stored") & F.col("addressed") & (F.col("state") != "dead") & (F.col("weight") == 0)
    mine = mine & ~(F.col("sent") | F.col("discarded"))
    return F.coalesce(F.when(mine, F.col("mark_ledger").isNotNull() & F.col("is_acknowledged")), F.lit(False))


def _overdue() -> Column:
    """Condition: the message is older than the audit's horizon, by its publish time (its producer's clock) or by the
    time at which it was read.
    """
    old = F.col("read_at") - F.col("published") > F.col("horizon")
    return old | F.coalesce(_at_most("aged_ledger", "aged_entry"), F.lit(False))


def outcome_of(fate: MessageStatus, cause: Cause | None = None) -> int:
    """A status and its cause as one number; a worse status (RANKS) has a greater number, whatever its cause. The number
    of a status without a cause is never greater than that of the same status with a cause.
    """
    return RANKS[fate] * _CAUSES + (CAUSES[cause] if cause else 0)


def _is(fate: MessageStatus, cause: Cause | None = None) -> Column:
    return F.lit(outcome_of(fate, cause))


def _next_hop_outcome() -> Column:
    """Outcome of a place whose next hop is stored: that of `_judgement`, except for recorded moves and for
    acknowledgements without a record, which the next hop explains.
    """
    judged_by_record = F.col("removed") | (F.col("stored") & (F.col("state") != "dead") & F.col("addressed"))
    moved = judged_by_record & (F.col("weight") > 0) & (F.col("weight") < WEIGHTS[Event.SKIPPED])
    gone = ~F.col("removed") & F.col("acknowledged_unrecorded") & ~F.col("recall_unconfirmed")
    return (
        F.when(moved & ~F.coalesce("identity_conflict", F.lit(False)), _is(MessageStatus.MOVING))
        .when(gone & F.col("recorded"), _is(MessageStatus.UNPROVED, Cause.UNRECORDED))
        .when(gone, _is(MessageStatus.MOVING))
        .otherwise(F.col("without_next_hop"))
    )


def _judgement() -> Column:
    """Outcome of a place whose next hop is not stored."""
    absent = F.col("mark_ledger").isNull()
    return (
        F.when(F.col("removed"), _of_removed(absent))
        .when(~F.col("stored"), _of_unread())
        .when(F.col("state") == "dead", _of_dead(absent))
        .when(~F.col("addressed"), _is(MessageStatus.NOT_FOR_ME))
        .when(F.col("weight") > 0, _of_recorded(absent))
        .when(F.col("sent"), _is(MessageStatus.MOVING))
        .when(F.col("discarded"), _is(MessageStatus.DISCARDED))
        .when(
            F.col("recall_unconfirmed") & F.coalesce(F.col("is_acknowledged"), F.lit(True)),
            _is(MessageStatus.UNPROVED, Cause.UNCONFIRMED_RECALL),
        )
        .when(absent, _is(MessageStatus.UNPROVED, Cause.NO_CURSOR))
        .when(F.col("acknowledged_unrecorded"), _of_gone())
        .when(_overdue(), _is(MessageStatus.OVERDUE))
        .when(F.col("state") == "ready", _is(MessageStatus.OPEN))
        .otherwise(_is(MessageStatus.WAITING))
    )


def _of_unread() -> Column:
    """Outcome of a place that is referenced, or has a record, and whose message was not read. After the last position
    that was read, the message is still to come. A message before the first one was trimmed, and only a record, or a
    recall that arrived, proves that it was not lost there.
    """
    before = F.coalesce(_before("first_ledger", "first_entry"), F.lit(False))
    outside = before | ~F.coalesce(_at_most("last_ledger", "last_entry"), F.lit(False))
    recorded = F.col("weight") > 0
    return (
        F.when(~F.col("referenced") & ~recorded, _AWAY)
        .when(F.col("referenced") & F.col("sent"), _is(MessageStatus.MOVING))
        .when(before & ~recorded, _is(MessageStatus.UNPROVED, Cause.UNCOVERED))
        .when(outside & F.col("referenced"), _is(MessageStatus.MOVING))
        .when(outside, _AWAY)
        .when(~F.col("covered"), _is(MessageStatus.UNPROVED, Cause.UNCOVERED))
        .when(recorded, _is(MessageStatus.UNKNOWN))
        .otherwise(_is(MessageStatus.LOST, Cause.VANISHED))
    )


def _of_removed(absent: Column) -> Column:
    """Outcome of a place whose message was settled and removed. See kodo_pipeline.audit.removed_rows."""
    return (
        F.when(F.col("weight") > 0, _of_recorded(absent))
        .when(F.col("referenced") & ~F.col("stored"), _is(MessageStatus.UNPROVED, Cause.UNCOVERED))
        .otherwise(_AWAY)
    )


def _of_dead(absent: Column) -> Column:
    return (
        F.when(F.col("sent"), _is(MessageStatus.MOVING))
        .when(F.col("discarded"), _is(MessageStatus.DISCARDED))
        # Cursors know whole entries: a letter that others of its batch hold up may have been let go long before.
        .when(
            F.col("recall_unconfirmed") & (absent | F.col("is_acknowledged") | (F.col("batch") >= 0)),
            _is(MessageStatus.UNPROVED, Cause.UNCONFIRMED_RECALL),
        )
        .when(F.col("recall_unconfirmed"), _is(MessageStatus.MOVING))
        .when(absent, _is(MessageStatus.UNPROVED, Cause.NO_CURSOR))
        .when(F.col("is_acknowledged"), _is(MessageStatus.LOST, Cause.RELEASED))
        .otherwise(_is(MessageStatus.DEAD))
    )


def _of_recorded(absent: Column) -> Column:
    weight = F.col("weight")
    return (
        F.when(F.col("identity_conflict"), _is(MessageStatus.UNPROVED, Cause.IDENTITY_MISMATCH))
        .when((weight == WEIGHTS[Event.STORED]) & _overdue(), _is(MessageStatus.OVERDUE))
        .when(weight == WEIGHTS[Event.STORED], _is(MessageStatus.STORED))
        .when(weight >= WEIGHTS[Event.REPEATED], _is(MessageStatus.DONE))
        .when(weight == WEIGHTS[Event.DISCARDED], _is(MessageStatus.DISCARDED))
        .when(weight == WEIGHTS[Event.SKIPPED], _is(MessageStatus.NOT_FOR_ME))
        .when(~F.col("target_unread") | F.col("sent"), _is(MessageStatus.MOVING))
        # What is acknowledged was stored elsewhere before the cursors were read: a next hop behind the end is none.
        .when(absent, _is(MessageStatus.UNPROVED, Cause.NO_CURSOR))
        .when(F.col("is_acknowledged") | F.col("target_missing"), _is(MessageStatus.UNPROVED, Cause.NOWHERE))
        .otherwise(_is(MessageStatus.MOVING))
    )


def _of_gone() -> Column:
    return (
        F.when(F.col("precedes_trail"), _is(MessageStatus.UNPROVED, Cause.BEFORE))
        .when(F.col("proved"), _is(MessageStatus.LOST, Cause.GONE))
        .when(F.col("recorded"), _is(MessageStatus.UNPROVED, Cause.UNCOVERED))
        .otherwise(_is(MessageStatus.UNPROVED, Cause.NO_RECORDS))
    )
