"""Removed rows in an audit: summaries of settled messages whose rows `pipeline maintain --keep` removed, and transforms
that take them into account.

If a message is read again at a removed place, or a record about a removed place is missing, that is no loss. A later
record about the place is believed, as if the message were still there. A record that names the place as the next hop of
another message is not believed, because that hop cannot be checked any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.audit.positions import split_position
from kodo_pipeline.audit.sequence_gaps import merge_ranges
from kodo_pipeline.landing.tables import EVENTS, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.landing.removal_record import RemovalRecord

_LEDGER: Final = ("msg_topic", "msg_partition", "ledger")


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Figures about the rows that removals took out of a landing; if `record.finished` is false, files may still have
    rows of the last removal. `record`: the last removal, and sums over all removals; `places`, `numbers`: the tables
    REMOVED_PLACES and REMOVED_NUMBERS of kodo_pipeline.landing.state_tables.
    """

    record: RemovalRecord
    places: DataFrame
    numbers: DataFrame

    def ranges(self, run: str | None = None) -> DataFrame:
        """Removed entry ranges of each ledger: (msg_topic, msg_partition, ledger, removed), where `removed` is an array
        of (first, last), both included, in any order. `run`: only those of this removal; None: of all removals.
        """
        places = self.places if run is None else self.places.where(F.col("run") == run)
        return places.groupBy(*_LEDGER).agg(F.collect_list(F.struct("first", "last")).alias("removed"))

    def holds_one_of(self, places: DataFrame) -> bool:
        """True if one of `places`, (msg_topic, msg_partition, ledger, entry), is in a range that any removal removed.
        Runs a query.
        """
        found = places.join(F.broadcast(self.ranges()), list(_LEDGER), how="inner")
        return not found.where(_is_inside("entry")).isEmpty()

    def records(self, lanes: DataFrame) -> DataFrame:
        """Number ranges of removed audit records, with the columns of
        kodo_pipeline.audit.completeness.record_ranges; ranges of one run and family that touch or overlap are joined.
        `lanes`: rows of kodo_pipeline.audit.positions.LANES.
        """
        families = F.broadcast(lanes.select("topic", "subscription", "family").distinct())
        theirs = self.numbers.where("msg_topic IS NULL").join(families, ["topic", "subscription"], how="left")
        return merge_ranges(theirs.select("run", "family", "first", "last", "rows"), ["run", "family"])

    def producers(self) -> DataFrame:
        """Number ranges of removed messages, with the columns of kodo_pipeline.audit.completeness.producer_ranges.
        Ranges of different removals may touch or overlap.
        """
        theirs = self.numbers.where("msg_topic IS NOT NULL").withColumnsRenamed(
            {"partition": "seq_partition", "run": "seq_run"}
        )
        return theirs.select("msg_topic", "seq_partition", "seq_run", "first", "last", "rows")

    def events_left(self, events: DataFrame) -> DataFrame:
        """Returns `events` without the rows at places of the last removal, which files still have if it is not
        finished. `events`: rows of batches up to `record.batch`; the removal leaves later ones.
        """
        found = events.join(F.broadcast(self.ranges(self.record.run)), list(_LEDGER), how="left")
        return found.where(~_is_inside("entry")).select(*events.columns)

    def transitions_left(self, transitions: DataFrame) -> DataFrame:
        """Returns `transitions` (audit records) without records about a place of the last removal, and without records
        that have such a place as target. `transitions`: rows of batches up to `record.batch`, as in `events_left`.
        """
        found = split_position(split_position(transitions, "id", ""), "target_id", "target_")
        ranges = self.ranges(self.record.run)
        for topic, prefix in (("msg_topic", ""), ("target_topic", "target_")):
            keys = [topic, f"{prefix}part", f"{prefix}ledger"]
            named = ranges.withColumnsRenamed(dict(zip(_LEDGER, keys, strict=True)))
            found = found.join(F.broadcast(named), keys, how="left").where(~_is_inside(f"{prefix}entry"))
            found = found.drop("removed")
        return found.select(*transitions.columns)


def with_removed(places: DataFrame, lanes: DataFrame, removed: RemovedRows | None) -> DataFrame:
    """Adds the column `removed` to `places` (result of kodo_pipeline.audit.positions.places): true if the rows of a
    settled message were removed there; false everywhere if `removed` is None. `lanes`: rows of LANES there.
    """
    if removed is None:
        return places.withColumn("removed", F.lit(False))
    named = lanes.select("lane", "msg_topic", "msg_partition")
    ranges = removed.ranges().join(F.broadcast(named), ["msg_topic", "msg_partition"], how="inner")
    found = places.join(F.broadcast(ranges.select("lane", "ledger", "removed")), ["lane", "ledger"], how="left")
    return found.select(*places.columns, _is_inside("entry").alias("removed"))


def reused_numbers(removed: DataFrame, fresh: DataFrame) -> DataFrame:
    """Counts numbers of removed records that `fresh` records of the same worker run have again: (family, numbers), by
    the subscription of the removed record; removed records of subscriptions that the file does not have are left out.
    Whether the two records are equal cannot be checked any more. A number that the run has for several subscriptions
    may count more than once. Both parameters have the columns of kodo_pipeline.audit.completeness.record_ranges.
    """
    before = removed.select("run", "family", F.col("first").alias("since"), F.col("last").alias("until"))
    both = before.join(fresh.select("run", "first", "last"), "run", how="inner")
    shared = F.least("last", "until") - F.greatest("first", "since") + 1
    found = both.withColumn("shared", shared).where("shared > 0 AND family IS NOT NULL")
    return found.groupBy("family").agg(F.sum("shared").alias("numbers"))


def _is_inside(entry: str) -> Column:
    """True if the entry is in one of the ranges of `removed`; false where that is null."""
    inside = F.exists("removed", lambda one: F.col(entry).between(one["first"], one["last"]))
    return F.coalesce(inside, F.lit(False))


def rows_left(
    spark: SparkSession, landing: Landing, table: Table, files: Sequence[DataFile], removed: RemovedRows | None
) -> DataFrame:
    """Rows of `files` of the table `events` or `transitions` as a frame, without rows of the last removal, also if it
    is not finished, so that files still have them. `removed`: None if no rows were ever removed.
    """
    if removed is None or removed.record.finished:
        return landing.read_files(spark, table, files)
    judged, fresh = (
        landing.read_files(spark, table, (one for one in files if (one.batch <= removed.record.batch) is old))
        for old in (True, False)
    )
    left = removed.events_left(judged) if table is EVENTS else removed.transitions_left(judged)
    return left.unionByName(fresh)
