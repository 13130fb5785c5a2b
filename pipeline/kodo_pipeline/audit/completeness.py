"""Completeness by sequence numbers: audit records that workers wrote and that are missing, and messages that
producers sent and that are not stored. Transforms of Spark DataFrames; each function names the columns of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kodo_pipeline.audit.sequence_gaps import holes, number_ranges, number_words, word_ranges
from kodoctl.protocol.properties import SIGNATURE
from kodoctl.protocol.sequence_numbers import MAX_RANGES, NOBODY

PRODUCER_KEY: Final = ("msg_topic", "seq_partition", "seq_run")
RECORD_KEY: Final = ("run", "family")
_SAID: Final = (
    "topic", "subscription", "msg_topic", "id", "identity", "hop", "event", "rule", "target_topic", "target_id",
)  # fmt: skip
_SOME: Final = 3  # runs that are named
_MOST: Final = 2**63 - 1  # stands for all that a sum cannot tell: the numbers of a few forgers
_IS_FIRST: Final = "state = 'ready' AND hop = 0 AND recall IS NULL"


def missing_records(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """`missing_of` all records."""
    return missing_of(record_ranges(transitions, lanes))


def record_ranges(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """(run, family, first, last, rows): numbers of records of each worker run, in ranges. `family` null: of a
    subscription that the file does not have.
    """
    families = lanes.select("topic", "subscription", "family").distinct()
    runs = transitions.select(F.col("worker_run").alias("run"), "number", "topic", "subscription")
    words = number_words(runs, ["run", "topic", "subscription"], "number")
    return word_ranges(words.join(F.broadcast(families), ["topic", "subscription"], how="left"), RECORD_KEY)


def missing_of(ranges: DataFrame) -> DataFrame:
    """(family, missing, repeats, runs) of subscriptions some of whose runs have holes, or numbers that came
    repeatedly. `runs`: some that have holes. `ranges`: as `record_ranges` makes them.
    """
    missing = F.coalesce(F.col("to") - F.col("from") + 1, F.lit(0))
    holed = F.when(F.col("missing") > 0, F.col("run"))
    return (
        holes(ranges, ["run"])
        .groupBy("run")
        .agg(
            F.sum(missing).alias("missing"),
            F.sum("rows").alias("rows"),
            F.max("last").alias("highest"),
            F.max("family").alias("family"),
        )
        .where(F.col("family").isNotNull())
        .groupBy("family")
        .agg(
            F.coalesce(F.try_sum("missing"), F.lit(_MOST)).alias("missing"),
            F.sum(F.col("rows") - (F.col("highest") - F.col("missing"))).alias("repeats"),
            F.slice(F.array_sort(F.collect_set(holed)), 1, _SOME).alias("runs"),
        )
        .where((F.col("missing") > 0) | (F.col("repeats") > 0))
        .select("family", "missing", "repeats", "runs")
    )


def incomplete_runs(ranges: DataFrame) -> DataFrame:
    """(runs): the number of worker runs that may have holes or repeated numbers, in one row. If it is 0, `missing_of`
    returns no rows for these ranges. This query is much cheaper than `missing_of`.
    """
    known = "sum(last - first + 1) AS numbers", "sum(`rows`) AS rows", "max(last) AS highest"
    # Ranges of several subscriptions, or of unknown ones, may overlap.
    of_one = "count(family) = count(*) AND min(family) = max(family) AS of_one"
    found = ranges.groupBy("run").agg(*map(F.expr, (*known, of_one)))
    return found.where("highest > numbers OR `rows` > numbers OR NOT coalesce(of_one, false)").agg(
        F.expr("count(*) AS runs")
    )


def contradictions(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """(family, contradictions): numbers of a run with two different records. A record that
    was stored twice is none.
    """
    families = lanes.select("topic", "subscription", "family").distinct()
    return (
        transitions.select("worker_run", "number", F.xxhash64(*_SAID).alias("said"), "topic", "subscription")
        .join(F.broadcast(families), ["topic", "subscription"], how="inner")
        .groupBy("worker_run", "number")
        .agg(F.max("family").alias("family"), F.min("said").alias("one"), F.max("said").alias("other"))
        .where(F.col("one") != F.col("other"))
        .groupBy("family")
        .agg(F.count("*").alias("contradictions"))
        .select("family", "contradictions")
    )


def producer_gaps(events: DataFrame, genuine: Column | None = None) -> DataFrame:
    """`gaps_of` all messages."""
    return gaps_of(producer_ranges(events), producer_marks(events, genuine), signed=genuine is not None)


def producer_ranges(events: DataFrame) -> DataFrame:
    """(msg_topic, seq_partition, seq_run, first, last, rows): numbers of each producer run, in ranges."""
    first = events.where(_IS_FIRST).where(F.col("seq_run").isNotNull())
    return number_ranges(first.where(F.col("seq_number").isNotNull()), PRODUCER_KEY, "seq_number")


def producer_marks(events: DataFrame, genuine: Column | None = None) -> DataFrame:
    """Rows of kodo_pipeline.landing.state_tables.MARKS. `genuine`: condition on a row of `events`, true if its
    signature is valid; None: without keys.
    """
    marks = events.where(_IS_FIRST).where(F.col("seq_run").isNotNull() & F.col("seq_high").isNotNull())
    valid = F.lit(None).cast("boolean") if genuine is None else genuine
    columns = (*PRODUCER_KEY, "seq_high", "seq_void", "seq_end", "ledger", "entry", "batch_index")
    return marks.select(*columns, valid.alias("genuine"))


def incomplete_producers(ranges: DataFrame, marks: DataFrame) -> DataFrame:
    """(runs): number of producer runs of which `gaps_of` these ranges and marks may say something."""
    seen = ranges.selectExpr(*PRODUCER_KEY, "last - first + 1 AS numbers", "`rows`", "last")
    marked = marks.selectExpr(*PRODUCER_KEY, "0L AS numbers", "0L AS rows", "seq_high AS last")
    known = "sum(numbers) AS numbers", "sum(`rows`) AS rows", "max(last) AS highest"
    found = seen.unionByName(marked).groupBy(*PRODUCER_KEY).agg(*map(F.expr, known))
    return found.where("highest > numbers OR `rows` > numbers").agg(F.expr("count(*) AS runs"))


def gaps_of(ranges: DataFrame, marks: DataFrame, *, signed: bool) -> DataFrame:
    """(msg_topic, seq_partition, seq_run, missing, overdue, claimed, repeats): of each producer run with missing or
    repeated numbers. `ranges`: as `producer_ranges` makes them, none of which overlaps another of its run; `marks`: as
    `producer_marks`.

    `overdue`: missing numbers that the producer would have given up by now if it had not stored them: up to its last
    mark if its run has ended, else up to the mark before that. Several marks of one moment count only if a later mark
    shows that all of them were read. `signed`: a mark without a valid signature only shows that numbers may be missing:
    `claimed` is `overdue` with all marks believed, as they are without `signed`. A mark that is stored again proves no
    later moment.
    """
    proved = marks
    if signed:
        proved, marks = _distinct(marks.where("genuine")), _distinct(marks)
    own = F.expr("`rows` - (last - first + 1)").alias("repeats")
    seen = ranges.select(*PRODUCER_KEY, "first", "last", own)
    void = (
        proved.select(*PRODUCER_KEY, F.explode("seq_void").alias("void"))
        .select(*PRODUCER_KEY, "void.first", "void.last")
        .where("first BETWEEN 1 AND last")
    )  # others no producer writes
    high = marks.select(*PRODUCER_KEY, F.expr("seq_high + 1").alias("first"), F.col("seq_high").alias("last"))
    marked = void.unionByName(high).withColumn("repeats", F.lit(0).cast("bigint"))
    missing = F.coalesce(F.col("to") - F.col("from") + 1, F.lit(0))
    until = _until_of(marks).select(*PRODUCER_KEY, "until", F.col("until").alias("claimed_until"))
    if signed:
        until = until.drop("until").join(_until_of(proved), list(PRODUCER_KEY), how="left")
    return (
        holes(seen.unionByName(marked), PRODUCER_KEY)
        .join(F.broadcast(until), list(PRODUCER_KEY), how="left")
        .groupBy(*PRODUCER_KEY)
        .agg(
            F.sum(missing).alias("missing"),
            F.sum(_up_to("until")).alias("overdue"),
            F.sum(_up_to("claimed_until")).alias("claimed"),
            F.sum("repeats").alias("repeats"),
        )
        .where((F.col("missing") > 0) | (F.col("repeats") > 0))
    )


def overview(events: DataFrame) -> DataFrame:
    """(msg_topic, subscription, messages, newest, unnumbered): messages by the subscription that a first hop is meant
    for, null of all others; publish time of the newest one in ms since the epoch; first hops without a number. What
    workers moved for one subscription is their business, which may be gone from the file since.
    """
    first = F.expr(_IS_FIRST)
    is_meant = first & (F.col("for_subscription") != NOBODY)
    return (
        events.groupBy(
            F.when(is_meant, F.col("msg_topic")).alias("msg_topic"),
            F.when(is_meant, F.col("for_subscription")).alias("subscription"),
        )
        .agg(
            F.count("*").alias("messages"),
            F.max(F.unix_millis("publish_ts")).alias("newest"),
            F.count_if(first & F.col("seq_run").isNull()).alias("unnumbered"),
        )
        .select("msg_topic", "subscription", "messages", "newest", "unnumbered")
    )


def strays(events: DataFrame, lanes: DataFrame) -> DataFrame:
    """(msg_topic, subscription, messages): first hops that are meant for a subscription which the topic does
    not have, by the file.
    """
    readers = lanes.select("msg_topic", "subscription").distinct()
    return (
        overview(events)
        .where("subscription IS NOT NULL")
        .join(F.broadcast(readers), ["msg_topic", "subscription"], how="left_anti")
        .select("msg_topic", "subscription", "messages")
    )


def signing_topics(events: DataFrame, topics: Sequence[str]) -> DataFrame:
    """(msg_topic): of these topics those with a producer's mark that carries a signature, whoever made it."""
    marks = events.where(_IS_FIRST).where(F.col("msg_topic").isin(*topics) & F.col("seq_high").isNotNull())
    return marks.where(F.col("properties")[SIGNATURE].isNotNull()).select("msg_topic").distinct()


def _distinct(marks: DataFrame) -> DataFrame:
    """Each mark where it was stored first: whoever can read one can store it again."""
    same = Window.partitionBy(*PRODUCER_KEY, "seq_high", "seq_void", "seq_end").orderBy(
        "ledger", "entry", "batch_index"
    )
    return marks.withColumn("nth", F.row_number().over(same)).where(F.col("nth") == 1).drop("nth")


def _up_to(until: str) -> Column:
    """Numbers of a hole up to there."""
    numbers = F.least("to", F.coalesce(until, F.lit(0))) - F.col("from") + 1
    return F.when(F.col("from").isNull(), 0).otherwise(F.greatest(F.lit(0), numbers))


def _until_of(marks: DataFrame) -> DataFrame:
    """(key, until): the highest number that the marks of a run decide. The next mark may still give up messages that
    are in flight at a mark. Numbers given up that exceed one mark are spread over several with one `seq_high`, and the
    last of them may be missing: only a single mark is complete.
    """
    order = Window.partitionBy(*PRODUCER_KEY).orderBy(F.desc("ledger"), F.desc("entry"), F.desc("batch_index"))
    later = order.rowsBetween(Window.unboundedPreceding, -1)
    most = F.max(F.coalesce(F.size("seq_void"), F.lit(0)))
    alone = most.over(Window.partitionBy(*PRODUCER_KEY, "seq_high")) < MAX_RANGES
    kept = F.coalesce("followed", F.lit(False)) | F.coalesce("seq_end", F.lit(False))
    return (
        marks.withColumn("alone", alone)
        .withColumn("followed", F.max("alone").over(later))
        .groupBy(*PRODUCER_KEY)
        .agg(F.max(F.when(kept, F.col("seq_high"))).alias("until"))
        .select(*PRODUCER_KEY, "until")
    )
