"""Completeness by consecutive numbers: finds audit records that workers wrote and that are missing, and messages that
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
from kodoctl.topology.names import PLAIN

PRODUCER_KEY: Final = ("msg_topic", "seq_partition", "seq_run")
RECORD_KEY: Final = ("run", "family")
_SAID: Final = (
    "topic", "subscription", "msg_topic", "id", "identity", "hop", "event", "rule", "target_topic", "target_id",
)  # fmt: skip
_SOME: Final = 3  # runs that are named
_MOST: Final = 2**63 - 1  # stands for all that a sum cannot tell: the numbers of a few forgers
# Any sender writes this header: the partition 99999999999 landed as null.
_IS_NUMBERED: Final = "seq_run IS NOT NULL AND seq_partition IS NOT NULL"
_IS_FIRST: Final = "state = 'ready' AND hop = 0 AND recall IS NULL"


def record_ranges(transitions: DataFrame, lanes: DataFrame) -> DataFrame:
    """Ranges of the numbers of audit records (`transitions`) of each worker run and subscription: (run, family, first,
    last, rows). `rows`: number of records, those stored twice counted twice; only its sum over all ranges of a run is
    exact (kodo_pipeline.audit.sequence_gaps.word_ranges). `family`: number of the subscription, null if the file does
    not have it; then ranges may overlap. Numbers below 1 are left out.
    """
    families = lanes.select("topic", "subscription", "family").distinct()
    runs = transitions.select(F.col("worker_run").alias("run"), "number", "topic", "subscription")
    words = number_words(runs, ["run", "topic", "subscription"], "number")
    return word_ranges(words.join(F.broadcast(families), ["topic", "subscription"], how="left"), RECORD_KEY)


def missing_of(ranges: DataFrame) -> DataFrame:
    """Finds subscriptions with missing or repeated record numbers: (family, missing, repeats, runs). Subscriptions that
    the file does not have are left out.

    `ranges`: result of `record_ranges`, merged or not. `missing`: count of numbers, from 1 to the highest of each run,
    that no record has; `repeats`: number of records less number of distinct numbers; `runs`: the first three worker
    runs with missing numbers, sorted.
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
    """Counts the worker runs that may have missing or repeated numbers: one row (runs). If the count is 0, `missing_of`
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
    """Counts record numbers of worker runs that have two different records, by subscription: (family, contradictions).
    Records differ if a column of `_SAID` does, so that one that was stored twice is no contradiction. Records of
    subscriptions that the file does not have are left out, and records without a number or with one below 1, as in
    `record_ranges`: otherwise an audit of all rows could count one that two incremental audits do not.
    """
    families = lanes.select("topic", "subscription", "family").distinct()
    return (
        transitions.where("number >= 1")
        .select("worker_run", "number", F.xxhash64(*_SAID).alias("said"), "topic", "subscription")
        .join(F.broadcast(families), ["topic", "subscription"], how="inner")
        .groupBy("worker_run", "number")
        .agg(F.max("family").alias("family"), F.min("said").alias("one"), F.max("said").alias("other"))
        .where(F.col("one") != F.col("other"))
        .groupBy("family")
        .agg(F.count("*").alias("contradictions"))
        .select("family", "contradictions")
    )


def producer_ranges(events: DataFrame) -> DataFrame:
    """Ranges of the sequence numbers that each producer run gave its messages: (msg_topic, seq_partition, seq_run,
    first, last, rows), with `rows` as in `record_ranges`. Moved and recalled messages, numbers below 1, and numbers of
    a partition that no topic can have (null) are left out.
    """
    first = events.where(_IS_FIRST).where(_IS_NUMBERED)
    return number_ranges(first.where(F.col("seq_number").isNotNull()), PRODUCER_KEY, "seq_number")


def producer_marks(events: DataFrame, genuine: Column | None = None) -> DataFrame:
    """The marks of producers, as rows of kodo_pipeline.landing.state_tables.MARKS; copies of a mark are rows, too. In a
    mark a producer reports the highest number that it has given, and numbers that it has given up. `genuine`: condition
    on a row of `events`, true if its signature is valid; None: there are no keys, and the column `genuine` is null.
    """
    marks = events.where(_IS_FIRST).where(_IS_NUMBERED).where(F.col("seq_high").isNotNull())
    valid = F.lit(None).cast("boolean") if genuine is None else genuine
    columns = (*PRODUCER_KEY, "seq_high", "seq_void", "seq_end", "ledger", "entry", "batch_index")
    return marks.select(*columns, valid.alias("genuine"))


def incomplete_producers(ranges: DataFrame, marks: DataFrame) -> DataFrame:
    """Counts the producer runs for which `gaps_of` may return a row: one row (runs). If the count is 0, `gaps_of`
    returns none for these ranges and marks. This query is cheaper than `gaps_of`.
    """
    seen = ranges.selectExpr(*PRODUCER_KEY, "last - first + 1 AS numbers", "`rows`", "last")
    marked = marks.selectExpr(*PRODUCER_KEY, "0L AS numbers", "0L AS rows", "seq_high AS last")
    known = "sum(numbers) AS numbers", "sum(`rows`) AS rows", "max(last) AS highest"
    found = seen.unionByName(marked).groupBy(*PRODUCER_KEY).agg(*map(F.expr, known))
    return found.where("highest > numbers OR `rows` > numbers").agg(F.expr("count(*) AS runs"))


def gaps_of(ranges: DataFrame, marks: DataFrame, *, signed: bool, settled: DataFrame | None = None) -> DataFrame:
    """Finds producer runs with missing or repeated sequence numbers: (msg_topic, seq_partition, seq_run, missing,
    overdue, claimed, highest, repeats).

    `ranges`: result of `producer_ranges`, without overlaps within a run; `marks`: result of `producer_marks`.
    `settled`: (msg_topic, partition, seq_run, last), few rows: missing numbers of these runs up to `last` were written
    off and do not count; `partition`: PLAIN on a plain topic; None: none were.

    `missing`: count of numbers, up to the highest that a message or any mark has, that no message has and that no mark
    reports as void; `highest`: the largest of them, null if none is missing; `repeats`: number of messages less number
    of distinct numbers.

    `overdue`: count of missing numbers that the producer has had the time to report as void: numbers up to a mark that
    ends its run, or that a later mark follows. Marks with one highest number do not count as later marks if one of them
    has MAX_RANGES void ranges: the void numbers may go on in another mark, which was not read. `signed`: for void
    numbers and `overdue`, believe only marks with a valid signature, and of equal marks the one stored first, since a
    copy proves no later time; `claimed` is `overdue` by all marks, whatever their signature. Without `signed` the two
    are equal.
    """
    proved = marks
    if signed:
        proved, marks = _distinct(marks.where("genuine")), _distinct(marks)
    own = F.expr("`rows` - (last - first + 1)").alias("repeats")
    seen = ranges.select(*PRODUCER_KEY, "first", "last", own)
    void = (
        proved.withColumn("void", F.explode("seq_void"))
        .where("void.first BETWEEN 1 AND void.last AND void.last <= seq_high")  # no producer writes other ranges
        .select(*PRODUCER_KEY, "void.first", "void.last")
    )
    high = marks.select(*PRODUCER_KEY, F.expr("seq_high + 1").alias("first"), F.col("seq_high").alias("last"))
    marked = void.unionByName(high).withColumn("repeats", F.lit(0).cast("bigint"))
    every = seen.unionByName(marked)
    every = every if settled is None else every.unionByName(_settled_ranges(every, settled))
    missing = F.coalesce(F.col("to") - F.col("from") + 1, F.lit(0))
    until = _until_of(marks).select(*PRODUCER_KEY, "until", F.col("until").alias("claimed_until"))
    if signed:
        until = until.drop("until").join(_until_of(proved), list(PRODUCER_KEY), how="left")
    return (
        holes(every, PRODUCER_KEY)
        .join(F.broadcast(until), list(PRODUCER_KEY), how="left")
        .groupBy(*PRODUCER_KEY)
        .agg(
            F.sum(missing).alias("missing"),
            F.sum(_up_to("until")).alias("overdue"),
            F.sum(_up_to("claimed_until")).alias("claimed"),
            F.max("to").alias("highest"),
            F.sum("repeats").alias("repeats"),
        )
        .where((F.col("missing") > 0) | (F.col("repeats") > 0))
    )


def overview(events: DataFrame) -> DataFrame:
    """Counts rows of `events`: (msg_topic, subscription, messages, newest, unnumbered). First hops (messages on ready
    topics, neither moved by a worker nor sent by a recall) that are addressed to one subscription are counted by topic
    and subscription; all other rows are counted together, with null for both names.

    `newest`: publish time of the newest message, ms since the epoch; `unnumbered`: number of first hops without a
    producer's sequence number. Messages that workers moved for one subscription are among the other rows, because the
    file may not have that subscription any more.
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
            F.count_if(first & ~F.expr(_IS_NUMBERED)).alias("unnumbered"),
        )
        .select("msg_topic", "subscription", "messages", "newest", "unnumbered")
    )


def strays(events: DataFrame, lanes: DataFrame) -> DataFrame:
    """Counts first hops (see `overview`) that are addressed to a subscription which the topic, by the file, does not
    have: (msg_topic, subscription, messages). The file's subscriptions are those of `lanes`.
    """
    readers = lanes.select("msg_topic", "subscription").distinct()
    return (
        overview(events)
        .where("subscription IS NOT NULL")
        .join(F.broadcast(readers), ["msg_topic", "subscription"], how="left_anti")
        .select("msg_topic", "subscription", "messages")
    )


def signing_topics(events: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Topics, of `topics` (full names), on which a producer's mark with a signature landed: (msg_topic). The signature
    is not verified.
    """
    marks = events.where(_IS_FIRST).where(F.col("msg_topic").isin(*topics) & F.col("seq_high").isNotNull())
    return marks.where(F.col("properties")[SIGNATURE].isNotNull()).select("msg_topic").distinct()


def _settled_ranges(ranges: DataFrame, settled: DataFrame) -> DataFrame:
    """The range from 1 to the last written-off number, for each run in `ranges` that has one in `settled`."""
    runs = ranges.select(*PRODUCER_KEY).distinct()
    found = runs.join(F.broadcast(settled), ["msg_topic", "seq_run"], how="inner")
    found = found.where(f"partition IN (seq_partition, {PLAIN})")
    return found.selectExpr(*PRODUCER_KEY, "1L AS first", "last", "0L AS repeats")


def _distinct(marks: DataFrame) -> DataFrame:
    """Keeps of equal marks the one that was stored first, because whoever can read a mark can store it again."""
    same = Window.partitionBy(*PRODUCER_KEY, "seq_high", "seq_void", "seq_end").orderBy(
        "ledger", "entry", "batch_index"
    )
    return marks.withColumn("nth", F.row_number().over(same)).where(F.col("nth") == 1).drop("nth")


def _up_to(until: str) -> Column:
    """How many numbers of the hole between `from` and `to` are not above the column `until`; 0 if that is null."""
    numbers = F.least("to", F.coalesce(until, F.lit(0))) - F.col("from") + 1
    return F.when(F.col("from").isNull(), 0).otherwise(F.greatest(F.lit(0), numbers))


def _until_of(marks: DataFrame) -> DataFrame:
    """Returns (PRODUCER_KEY, until): the highest number that the marks of a run decide. Messages in flight at a mark
    may be given up by the next one. Given-up numbers that exceed one mark are spread over several with one `seq_high`,
    and the last of them may be missing: only a single mark is complete.
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
