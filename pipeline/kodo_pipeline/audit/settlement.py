"""Settlement of messages: makes the tables that an audit stores for the next one (kodo_pipeline.landing.state_tables),
and checks whether new rows refer to settled messages. Transforms of Spark DataFrames.

A message is settled, for one subscription, if every known place of it is final (kodo_pipeline.audit.classify.outcomes).
A row refers to one place, or to two: that of its message and that of its target. It is kept as long as the message of
one of these places is open, so that no row of an open message is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.audit.completeness import PRODUCER_KEY, RECORD_KEY
from kodo_pipeline.audit.positions import PLACE, hop_places, split_position
from kodo_pipeline.audit.sequence_gaps import merge_ranges
from kodo_pipeline.evidence.audit_evidence import RANKS, MessageStatus
from kodo_pipeline.landing.state_tables import DEAD_LETTERS, MARKS, NUMBERS, OPEN_EVENTS, OPEN_RECORDS, SETTLED
from kodo_pipeline.spark.spark_session import small_table

if TYPE_CHECKING:
    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.audit.judged_rows import CarriedRows
    from kodo_pipeline.evidence.partition_history import Key
    from kodo_pipeline.landing.tables import Table
    from kodo_pipeline.source.splits import Place

_ENDS: Final = "msg_topic string, msg_partition int, end_ledger bigint, end_entry bigint"
NAMED: Final = ("family", "identity")
SURPRISES: Final = ("a message was read again", "a record has the number of one that was there")


def surprises(of: AuditResult, carried: CarriedRows, ends: Mapping[Key, Place]) -> list[str]:
    """Reasons, from SURPRISES, why the result of this incremental audit may differ from that of an audit of all rows;
    [] if nothing suggests that it differs. Runs a query. `ends`: last position that had been read of each partition
    when the carried rows were judged; partitions that it lacks are not checked for messages that were read again.
    """
    twice = was_read(of.tables.events.select("msg_topic", "msg_partition", "ledger", "entry"), ends)
    checks = [twice.limit(1), _numbered_again(of, carried)]
    found = [one.select(F.lit(number).alias("check")) for number, one in enumerate(checks)]
    return [SURPRISES[row["check"]] for row in reduce(DataFrame.unionByName, found).orderBy("check").collect()]


def was_read(rows: DataFrame, ends: Mapping[Key, Place]) -> DataFrame:
    """Keeps the rows, with the columns msg_topic, msg_partition, ledger and entry, whose position is at or before the
    position in `ends` of their partition. Rows of partitions that `ends` lacks are left out.
    """
    listed = small_table(rows.sparkSession, [(*key, *place) for key, place in ends.items()], _ENDS)
    known = rows.join(F.broadcast(listed), ["msg_topic", "msg_partition"], how="inner")
    here = F.struct("ledger", "entry") <= F.struct("end_ledger", "end_entry")
    return known.where(here).drop("end_ledger", "end_entry")


def _numbered_again(of: AuditResult, carried: CarriedRows) -> DataFrame:
    """Returns a row if a new record has the number of a record that an earlier audit has seen; else no row."""
    length = F.col("last") - F.col("first") + 1
    known = carried.numbers.where("msg_topic IS NULL").select("run", "first", "last", "rows")
    both = known.unionByName(of.rows.fresh.select("run", "first", "last", "rows"))
    numbers = both.agg(F.sum(length).alias("numbers"))
    distinct = merge_ranges(both, ["run"]).agg(F.sum(length).alias("distinct"))
    return numbers.crossJoin(distinct).where("numbers > distinct")


def settled_messages(outcomes: DataFrame) -> DataFrame:
    """Finds out which messages are settled: (family, identity, settled, rank) of every message. Like
    kodo_pipeline.audit.classify.messages, but without the search for next hops, so that `rank` is right only for
    settled messages. `outcomes`: result of kodo_pipeline.audit.classify.outcomes.
    """
    ranks = F.expr("without_next_hop div 100").cast("int")
    twice = (F.col("completions") > 1) & (F.col("worst") <= RANKS[MessageStatus.DONE])
    return (
        outcomes.groupBy(*NAMED)
        .agg(F.bool_and("final").alias("final"), F.max(ranks).alias("worst"), F.sum("completions").alias("completions"))
        .select(
            *NAMED,
            (F.col("final") & (F.col("worst") > RANKS[MessageStatus.MOVING])).alias("settled"),
            F.when(twice, RANKS[MessageStatus.DUPLICATED]).otherwise(F.col("worst")).alias("rank"),
        )
    )


def open_places(of: AuditResult, messages: DataFrame) -> DataFrame:
    """Places of all messages that this audit judged and that are not settled: (lane, ledger, entry, batch, family,
    msg_topic, msg_partition, subscription). `messages`: result of kodo_pipeline.audit.classify.messages.
    """
    lanes = F.broadcast(of.lanes.select("lane", "msg_topic", "msg_partition", "subscription"))
    open_ones = messages.where(~F.col("settled")).select(*NAMED)
    found = of.outcomes.join(open_ones, list(NAMED), how="left_semi").select(*PLACE, "family")
    return found.join(lanes, "lane", how="inner")


def state_frames(of: AuditResult, messages: DataFrame, places: DataFrame) -> dict[Table, DataFrame]:
    """Rows for each table of the state, except LETTERS_SEEN. SETTLED and DEAD_LETTERS get only what this audit settled,
    to be added to their rows (if no message was reopened); the other tables get all of their rows anew.
    `messages`: result of kodo_pipeline.audit.classify.messages; `places`: result of `open_places`.
    """
    at = ("msg_topic", "msg_partition", "ledger", "entry", "batch")
    families = places.groupBy(*at).agg(F.array_sort(F.collect_set("family")).alias("families"))
    events = (
        of.rows.events.drop("families").withColumnRenamed("batch_index", "batch").join(families, list(at), how="inner")
    )
    return {
        OPEN_EVENTS: events.withColumnRenamed("batch", "batch_index").select(*OPEN_EVENTS.names),
        OPEN_RECORDS: open_records(of.rows.transitions, places, families),
        SETTLED: _settled_names(of, messages, places),
        DEAD_LETTERS: _dead_letters(of, messages),
        NUMBERS: _numbers(of),
        MARKS: of.rows.marks.select(*MARKS.names),
    }


def open_records(transitions: DataFrame, places: DataFrame, families: DataFrame) -> DataFrame:
    """Rows of OPEN_RECORDS: records of a subscription about one of its `places` (`own` is true), and records of any
    subscription that name one of `places` as the target (`refers` has its `families`; [] in other rows). `families`:
    (msg_topic, msg_partition, ledger, entry, batch, families), a row for each of these places, with the numbers of the
    subscriptions for which its message is open. If `transitions` has a column `own` already, False stays False.
    """
    own = places.select(
        "msg_topic", F.col("msg_partition").alias("part"), "subscription", "ledger", "entry", "batch",
        F.lit(True).alias("is_open"),
    )  # fmt: skip
    targets = {"msg_topic": "target_topic", "msg_partition": "target_part", "ledger": "target_ledger", "entry": "target_entry",
               "batch": "target_batch"}  # fmt: skip
    kept = F.coalesce(F.col("own"), F.lit(True)) if "own" in transitions.columns else F.lit(True)
    return (
        split_position(split_position(transitions.withColumn("kept", kept), "id", ""), "target_id", "target_")
        .join(own, ["msg_topic", "part", "subscription", "ledger", "entry", "batch"], how="left")
        .join(families.withColumnsRenamed(targets), list(targets.values()), how="left")
        .withColumn("own", F.col("kept") & F.coalesce("is_open", F.lit(False)))
        .withColumn("refers", F.coalesce("families", F.array().cast("array<int>")))
        .where(F.col("own") | (F.size("refers") > 0))
        .select(*OPEN_RECORDS.names)
    )


def _settled_names(of: AuditResult, messages: DataFrame, places: DataFrame) -> DataFrame:
    names = messages.where("settled").select("family", F.lit(False).alias("hop"), F.col("identity").alias("hash"))
    moved = hop_places(of.rows.events, of.lanes).join(places.select(*PLACE), list(PLACE), how="left_anti")
    moved = moved.select("family", F.lit(True).alias("hop"), F.col("next").alias("hash")).distinct()
    return names.unionByName(moved).select(*SETTLED.names)


def _dead_letters(of: AuditResult, messages: DataFrame) -> DataFrame:
    lanes = F.broadcast(of.lanes.select("lane", "msg_topic", "msg_partition"))
    dead = of.verdicts.where(F.col("rank") == RANKS[MessageStatus.DEAD]).join(lanes, "lane", how="inner")
    found = dead.join(messages.where("settled").select(*NAMED), list(NAMED), how="left_semi")
    return found.withColumnRenamed("identity", "hash").select(*DEAD_LETTERS.names)


def _numbers(of: AuditResult) -> DataFrame:
    text, number = F.lit(None).cast("string"), F.lit(None).cast("int")
    records = merge_ranges(of.rows.records, RECORD_KEY).withColumns({"msg_topic": text, "partition": number})
    producers = merge_ranges(of.rows.numbers, PRODUCER_KEY).withColumn("family", number)
    producers = producers.withColumnsRenamed({"seq_partition": "partition", "seq_run": "run"})
    return records.select(*NUMBERS.names).unionByName(producers.select(*NUMBERS.names))
