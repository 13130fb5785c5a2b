"""Search for settled messages to which a new row refers, and for all of their rows, so that only these are judged
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kodo_pipeline.audit.classify import outcomes
from kodo_pipeline.audit.positions import identity_hash, places
from kodo_pipeline.audit.removed_rows import rows_left
from kodo_pipeline.audit.settlement import NAMED, open_records, settled_messages, was_read
from kodo_pipeline.evidence.audit_evidence import RANKS, MessageStatus
from kodo_pipeline.landing.state_tables import DEAD_LETTERS, OPEN_EVENTS
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS
from kodo_pipeline.spark.spark_session import small_table
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.audit.judged_rows import CarriedRows
    from kodo_pipeline.audit.removed_rows import RemovedRows
    from kodo_pipeline.evidence.partition_history import Key
    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.landing.tables import Table
    from kodo_pipeline.source.splits import Place

MOST: Final = 10_000  # messages; where more are spoken of, all rows are judged
_FEW: Final = 1_000_000  # names that are sent to every task
_AT: Final = ("msg_topic", "msg_partition", "ledger", "entry", "batch")
_PLACES: Final = "family int, msg_topic string, msg_partition int, ledger bigint, entry bigint, batch int"
Message = tuple[int, int]
"""(number of the subscription, hash of the message's identity)."""


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """Landed rows that earlier audits judged, read only to find settled messages that have to be judged again.
    `files`: files of `events` and `transitions`, by table; `removed`: rows that were removed from the landing, None:
    no rows were removed.
    """

    spark: SparkSession
    landing: Landing
    files: Mapping[Table, Sequence[DataFile]]
    removed: RemovedRows | None

    def read(self, table: Table) -> DataFrame:
        """Rows of the table, `events` or `transitions`, in `files` as a frame, without removed rows."""
        return rows_left(self.spark, self.landing, table, self.files[table], self.removed)


@dataclass(frozen=True, slots=True)
class LastAudit:
    """State of the last audit, for the search. `before`: all rows that it and earlier audits judged; `ends`: last
    position that had been read of each partition, without audit topics; `released`: partitions of dead-letter topics
    whose cursor has changed since; `rows`: number of rows that the last audit left open, plus the rows that landed
    since.
    """

    before: RowsBefore
    ends: Mapping[Key, Place]
    released: Collection[Key]
    rows: int


def mentioned_messages(of: AuditResult, carried: CarriedRows, last: LastAudit) -> list[Message] | None:
    """Finds the settled messages to which a new row refers, by position or by identity, and those with a dead letter
    that was acknowledged since. Returns (number of the subscription, hash of the identity) of each, sorted; if these
    are more than MOST (10,000), some may be missing. Runs queries.

    Returns None, which requires an audit of all rows, if new rows refer to more than MOST places at which no open
    message is, or, when rows were removed since the counts of settled messages began, to a removed place.
    """
    lanes = F.broadcast(of.lanes.select("lane", "msg_topic", "msg_partition"))
    unrecorded = of.outcomes.where(~F.col("stored") & ~F.col("carried")).join(lanes, "lane", how="inner")
    about = was_read(unrecorded, last.ends).select("family", *_AT).limit(MOST + 1)
    names = of.outcomes.select("family", F.col("identity").alias("hash")).distinct()
    is_few = last.rows * len(of.ground.families) <= _FEW or of.outcomes.count() <= _FEW
    known = _settled_hashes(carried, names, is_few=is_few)
    rows = about.unionByName(known, allowMissingColumns=True).collect()  # one job: most audits find nothing
    found = {(row["family"], row["hash"]) for row in rows if row["hash"] is not None}
    if at := [(row["family"], *(row[name] for name in _AT)) for row in rows if row["hash"] is None]:
        there, removed = small_table(of.lanes.sparkSession, at, _PLACES), _removed_since(of, carried)
        if len(at) > MOST or (removed is not None and removed.holds_one_of(there)):
            return None
        found |= _messages_at(last, there)
    if last.released:
        found |= {
            (row["family"], row["hash"]) for row in _settled_hashes(carried, _released_hashes(of, last)).collect()
        }
    return sorted(found)


def _removed_since(of: AuditResult, carried: CarriedRows) -> RemovedRows | None:
    """Returns the rows that were removed after the counts of settled messages began. None if no rows were removed, or
    if the counts already include the removal.
    """
    removed = of.tables.removed
    return None if removed is None or removed.record.run == carried.totals.removal else removed


def _messages_at(last: LastAudit, there: DataFrame) -> set[Message]:
    found = (
        _hash_names(last.before.read(EVENTS)).join(F.broadcast(there), list(_AT), how="inner").select(*NAMED).distinct()
    )
    return {(row["family"], row["identity"]) for row in found.collect()}


def _settled_hashes(carried: CarriedRows, names: DataFrame, *, is_few: bool = False) -> DataFrame:
    """Returns (family, hash) of those of `names` that are settled, at most MOST + 1. `is_few`: `names` has few rows.
    Every name that was ever settled is compared, by one number first, for which Spark has a faster table than for two.
    """
    known = carried.settled.where(~F.col("hop")).select("family", "hash")
    if is_few:
        known = known.join(F.broadcast(names.select("hash")), "hash", how="left_semi")
        names = F.broadcast(names)
    return known.join(names, ["family", "hash"], how="left_semi").distinct().limit(MOST + 1)


def _released_hashes(of: AuditResult, last: LastAudit) -> DataFrame:
    """Returns (family, hash) of messages with a dead letter that, by the cursor, is acknowledged now."""
    spark = of.lanes.sparkSession
    at = F.broadcast(small_table(spark, sorted(last.released), "msg_topic string, msg_partition int"))
    letters = last.before.read(EVENTS).join(at, ["msg_topic", "msg_partition"], how="left_semi")
    nothing = last.before.read(TRANSITIONS).limit(0)
    known = outcomes(places(letters, nothing, None, of.lanes), of.lanes)
    gone = known.where(F.expr("without_next_hop div 100") != RANKS[MessageStatus.DEAD])
    return gone.select("family", F.col("identity").alias("hash")).distinct()


def reopen_messages(
    of: AuditResult, carried: CarriedRows, last: LastAudit, found: Sequence[Message], stack: ExitStack
) -> CarriedRows | None:
    """Returns a copy of `carried` in which the messages in `found` are among the open rows, and not among the settled
    ones. Runs queries. Spark caches the rows of the messages until `stack` is closed, whatever is returned.

    Returns None, which requires an audit of all rows, if one of the messages is not among the settled ones, or if the
    landed rows do not show the status with which each was counted, as may be when rows were removed since.
    """
    spark, lanes = of.lanes.sparkSession, of.lanes
    asked = F.broadcast(small_table(spark, found, "family int, identity bigint"))
    readers = F.broadcast(lanes.select("lane", "family", "msg_topic", "msg_partition", "subscription"))
    own = _hash_names(last.before.read(EVENTS)).join(asked, "identity", how="inner")
    own = own.join(readers, ["family", "msg_topic", "msg_partition"], how="inner").persist()
    stack.callback(own.unpersist)
    at = own.select("lane", "family", "subscription", *_AT).distinct()
    families = at.groupBy(*_AT).agg(F.array_sort(F.collect_set("family")).alias("families"))
    events = (
        own.withColumn("families", F.array("family"))
        .withColumnRenamed("batch", "batch_index")
        .select(*OPEN_EVENTS.names)
    )
    records = open_records(last.before.read(TRANSITIONS), at, families).persist()
    stack.callback(records.unpersist)
    hops, others = carried.settled.where("hop"), carried.settled.where(~F.col("hop"))
    names = asked.withColumnRenamed("identity", "hash")
    fates: Counter[tuple[int, int]] = Counter(carried.totals.fates)
    before = fates.total()
    when_settled = _unreleased_lanes(lanes)
    known = outcomes(places(events, records, None, when_settled), when_settled)
    counts = settled_messages(known).groupBy("family", "rank").count().collect()
    # A removed place may have had a worse fate than those that are left: none is worse than that of a dead letter.
    is_certain = _removed_since(of, carried) is None or all(row["rank"] == RANKS[MessageStatus.DEAD] for row in counts)
    for row in counts:
        fates[row["family"], row["rank"]] -= row["count"]
    key = ["family", "hash"]
    there = others.join(names, key, how="left_semi").distinct().count()
    if not (is_certain and before - fates.total() == there == len(found)) or min(fates.values()) < 0:
        return None
    return replace(
        carried,
        open_events=carried.open_events.unionByName(events),
        open_records=carried.open_records.unionByName(records),
        settled=hops.unionByName(others.join(names, key, how="left_anti").select(*hops.columns)),
        dead_letters=carried.dead_letters.join(names, key, how="left_anti").select(*DEAD_LETTERS.names),
        totals=replace(carried.totals, fates=+fates),
    )


def _unreleased_lanes(lanes: DataFrame) -> DataFrame:
    """Returns `lanes` with cursors that acknowledge nothing on dead letter topics: when a message was settled, none of
    its dead letters was acknowledged.
    """
    is_dead = F.col("state") == State.DEAD.value
    nothing = {"mark_ledger": F.lit(-1), "mark_entry": F.lit(-1), "acknowledged": F.array()}
    kinds = dict(lanes.dtypes)
    return lanes.withColumns(
        {name: F.when(is_dead, value.cast(kinds[name])).otherwise(F.col(name)) for name, value in nothing.items()}
    )


def _hash_names(events: DataFrame) -> DataFrame:
    """Returns messages with the column `identity`, the hash of their name."""
    columns = events.select(*OPEN_EVENTS.names[:-1]).withColumnRenamed("batch_index", "batch")
    return columns.withColumn("identity", identity_hash("kodo_id", "mid"))
