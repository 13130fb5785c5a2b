"""Classification for the audit: the fate of every message for every subscription. Transforms of Spark DataFrames:
first each position of a message gets its fate, then the message gets the worst fate of its positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodoctl.pipeline.audit.positions import PLACE, WEIGHTS
from kodoctl.pipeline.audit.removed_rows import with_removed
from kodoctl.pipeline.audit.verdict import RANKS, Cause, MessageStatus
from kodoctl.protocol.audit_records import Event

if TYPE_CHECKING:
    from kodoctl.pipeline.audit.removed_rows import RemovedRows

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
    """(PLACE, family, identity, next, completions, published, without_next_hop, with_next_hop, stored, carried, final) of
    every place. `*_next_hop` are its outcome if no next hop was stored, and if one was, as `rank * _CAUSES + cause`.
    `final`: no later row that a broker or a worker writes in the course of things changes that. `judged` reads the
    result twice: persist it.
    """
    asked = with_removed(places, lanes, removed)
    known = asked.join(F.broadcast(lanes.select(*_LANE)), "lane", how="inner").withColumn(
        "acknowledged_unrecorded", _acknowledged_unrecorded()
    )
    columns = (*PLACE, "family", "identity", "next", "completions", "published")
    decided = known.select(
        *columns,
        _judgement(followed=False).alias("without_next_hop"),
        _judgement(followed=True).alias("with_next_hop"),
        "stored",
        "carried",
        _ended().alias("ended"),
        _named_letter().alias("named_letter"),
    )
    return decided.select(*columns, "without_next_hop", "with_next_hop", "stored", "carried", _final().alias("final"))


def _final() -> Column:
    """True if the place's record tells its fate, or if it is that of a dead letter which nobody has released."""
    without = F.col("without_next_hop")
    certain = (without == F.col("with_next_hop")) & (without <= RANKS[MessageStatus.DONE] * _CAUSES)
    return (F.col("ended") & certain) | (F.col("named_letter") & (without == RANKS[MessageStatus.DEAD] * _CAUSES))


def _ended() -> Column:
    """True if it has a record, and its acknowledgement was read, before which all records are: it is not received again.
    What a recall is about has not ended.
    """
    recorded = (F.col("weight") > 0) & (F.col("state") != "dead") & F.coalesce(_acknowledged(), F.lit(False))
    return F.col("stored") & ~F.col("recalled") & recorded


def _named_letter() -> Column:
    """True of a dead letter that a record names, and no recall. Of one with two names nobody could tell its cursor."""
    one_name = ~F.coalesce("identity_conflict", F.lit(False))
    return F.col("stored") & ~F.col("recalled") & (F.col("state") == "dead") & F.col("referenced") & one_name


def judged(outcomes: DataFrame, hops: DataFrame) -> DataFrame:
    """(PLACE, family, identity, rank, cause, completions, published) of every place that was read; `rank` is of
    kodoctl.pipeline.audit.verdict.RANKS, `cause` of CAUSES, null where there is none. `hops`:
    kodoctl.pipeline.audit.positions.hops.
    """
    doubtful = F.col("without_next_hop") != F.col("with_next_hop")
    decided = outcomes.where(~doubtful).withColumn("outcome", F.col("without_next_hop"))
    asked = (
        outcomes.where(doubtful)
        .join(hops.withColumn("found", F.lit(True)), ["family", "next"], how="left")
        .withColumn("outcome", F.when(F.col("found"), F.col("with_next_hop")).otherwise(F.col("without_next_hop")))
    )
    columns = (*PLACE, "family", "identity", "completions", "published", "outcome")
    return (
        asked.select(*columns)
        .unionByName(decided.select(*columns))
        .where(F.col("outcome") != _AWAY)
        .select(
            *PLACE,
            "family",
            "identity",
            F.expr(f"outcome div {_CAUSES}").cast("int").alias("rank"),
            F.nullif(F.col("outcome") % _CAUSES, F.lit(0)).alias("cause"),
            "completions",
            "published",
        )
    )


def messages(judged: DataFrame) -> DataFrame:
    """(family, identity, rank): of a message's places the worst one counts. Done at several places, or several times
    at one, is done twice.
    """
    twice = (F.col("completions") > 1) & (F.col("worst") <= RANKS[MessageStatus.DONE])
    return (
        judged.groupBy("family", "identity")
        .agg(F.max("rank").alias("worst"), F.sum("completions").alias("completions"))
        .select(
            "family", "identity", F.when(twice, RANKS[MessageStatus.DUPLICATED]).otherwise(F.col("worst")).alias("rank")
        )
    )


def tallied(messages: DataFrame) -> DataFrame:
    """Number of messages by status: columns `family`, `rank`, `messages`."""
    return messages.groupBy("family", "rank").agg(F.count("*").alias("messages")).select("family", "rank", "messages")


def findings(judged: DataFrame, lanes: DataFrame) -> DataFrame:
    """(fate, cause, topic, subscription, msg_topic, id, identity) of the places with a fate of FINDINGS. `id`:
    `ledger:entry:partition:batch index`; `identity` is a hash.
    """
    named = lanes.select("lane", "topic", "subscription", "msg_topic", "msg_partition")
    return (
        judged.where(F.col("rank") >= RANKS[FINDINGS[0]])
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
    place, limit = F.col("ledger"), F.col(ledger)
    return (place < limit) | ((place == limit) & (F.col("entry") <= F.col(entry)))


def _before(ledger: str, entry: str) -> Column:
    place, limit = F.col("ledger"), F.col(ledger)
    return (place < limit) | ((place == limit) & (F.col("entry") < F.col(entry)))


def _acknowledged() -> Column:
    """Null where the subscription is not on the partition."""
    ledger, entry = F.col("ledger"), F.col("entry")
    inside = F.exists("acknowledged", lambda one: (one["ledger"] == ledger) & entry.between(one["first"], one["last"]))
    return _at_most("mark_ledger", "mark_entry") | F.coalesce(inside, F.lit(False))


def _proven() -> Column:
    """True if it was acknowledged while an audit trail was complete that has ended since."""
    at = F.struct("ledger", "entry")

    def has(one: Column) -> Column:
        return (at > F.struct(one["after_ledger"], one["after_entry"])) & (
            at <= F.struct(one["last_ledger"], one["last_entry"])
        )

    return F.coalesce(F.exists("proven_ranges", has), F.lit(False))


def _acknowledged_unrecorded() -> Column:
    """True if the message was stored for the subscription and acknowledged by it, and has no record."""
    mine = F.col("stored") & F.col("addressed") & (F.col("state") != "dead") & (F.col("weight") == 0)
    mine = mine & ~(F.col("sent") | F.col("discarded"))
    return F.coalesce(F.when(mine, F.col("mark_ledger").isNotNull() & _acknowledged()), F.lit(False))


def _overdue() -> Column:
    """By its publish time, which is its producer's clock, or by when it was read."""
    old = F.col("read_at") - F.col("published") > F.col("horizon")
    return old | F.coalesce(_at_most("aged_ledger", "aged_entry"), F.lit(False))


def _is(fate: MessageStatus, cause: Cause | None = None) -> Column:
    return F.lit(RANKS[fate] * _CAUSES + (CAUSES[cause] if cause else 0))


def _judgement(*, followed: bool) -> Column:
    absent = F.col("mark_ledger").isNull()
    return (
        F.when(F.col("removed"), _of_removed(absent, followed=followed))
        .when(~F.col("stored"), _of_unread())
        .when(F.col("state") == "dead", _of_dead(absent))
        .when(~F.col("addressed"), _is(MessageStatus.NOT_FOR_ME))
        .when(F.col("weight") > 0, _of_recorded(absent, followed=followed))
        .when(F.col("sent"), _is(MessageStatus.MOVING))
        .when(F.col("discarded"), _is(MessageStatus.DISCARDED))
        .when(
            F.col("recall_unconfirmed") & F.coalesce(_acknowledged(), F.lit(True)),
            _is(MessageStatus.UNPROVED, Cause.UNCONFIRMED_RECALL),
        )
        .when(absent, _is(MessageStatus.UNPROVED, Cause.NO_CURSOR))
        .when(F.col("acknowledged_unrecorded"), _of_gone(followed=followed))
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


def _of_removed(absent: Column, *, followed: bool) -> Column:
    """Outcome of a place whose message was settled and removed. See kodoctl.pipeline.audit.removed_rows."""
    return (
        F.when(F.col("weight") > 0, _of_recorded(absent, followed=followed))
        .when(F.col("referenced") & ~F.col("stored"), _is(MessageStatus.UNPROVED, Cause.UNCOVERED))
        .otherwise(_AWAY)
    )


def _of_dead(absent: Column) -> Column:
    return (
        F.when(F.col("sent"), _is(MessageStatus.MOVING))
        .when(F.col("discarded"), _is(MessageStatus.DISCARDED))
        # Cursors know whole entries: a letter that others of its batch hold up may have been let go long before.
        .when(
            F.col("recall_unconfirmed") & (absent | _acknowledged() | (F.col("batch") >= 0)),
            _is(MessageStatus.UNPROVED, Cause.UNCONFIRMED_RECALL),
        )
        .when(F.col("recall_unconfirmed"), _is(MessageStatus.MOVING))
        .when(absent, _is(MessageStatus.UNPROVED, Cause.NO_CURSOR))
        .when(_acknowledged(), _is(MessageStatus.LOST, Cause.RELEASED))
        .otherwise(_is(MessageStatus.DEAD))
    )


def _of_recorded(absent: Column, *, followed: bool) -> Column:
    weight = F.col("weight")
    return (
        F.when(F.col("identity_conflict"), _is(MessageStatus.UNPROVED, Cause.IDENTITY_MISMATCH))
        .when(weight >= WEIGHTS[Event.REPEATED], _is(MessageStatus.DONE))
        .when(weight == WEIGHTS[Event.DISCARDED], _is(MessageStatus.DISCARDED))
        .when(weight == WEIGHTS[Event.SKIPPED], _is(MessageStatus.NOT_FOR_ME))
        .when(F.lit(followed) | ~F.col("target_unread") | F.col("sent"), _is(MessageStatus.MOVING))
        # What is acknowledged was stored elsewhere before the cursors were read: a next hop behind the end is none.
        .when(absent, _is(MessageStatus.UNPROVED, Cause.NO_CURSOR))
        .when(_acknowledged() | F.col("target_missing"), _is(MessageStatus.UNPROVED, Cause.NOWHERE))
        .otherwise(_is(MessageStatus.MOVING))
    )


def _of_gone(*, followed: bool) -> Column:
    if followed:
        return F.when(F.col("recorded"), _is(MessageStatus.UNPROVED, Cause.UNRECORDED)).otherwise(
            _is(MessageStatus.MOVING)
        )
    started = F.coalesce(_at_most("started_ledger", "started_entry"), F.lit(False))
    return (
        F.when(started & ~_proven(), _is(MessageStatus.UNPROVED, Cause.BEFORE))
        .when(F.col("proved"), _is(MessageStatus.LOST, Cause.GONE))
        .when(F.col("recorded"), _is(MessageStatus.UNPROVED, Cause.UNCOVERED))
        .otherwise(_is(MessageStatus.UNPROVED, Cause.NO_RECORDS))
    )
