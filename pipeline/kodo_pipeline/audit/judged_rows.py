"""Rows that an audit judges: all landed rows; or those that landed since the last audit, and those that it left open."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kodo_pipeline.audit.audit_state import letter_hash
from kodo_pipeline.audit.completeness import (
    PRODUCER_KEY,
    RECORD_KEY,
    producer_marks,
    producer_ranges,
    record_ranges,
)
from kodo_pipeline.audit.recalled import BOOKED
from kodo_pipeline.audit.removed_rows import reused_numbers
from kodo_pipeline.audit.sequence_gaps import merge_ranges
from kodo_pipeline.audit.signatures import genuine
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.state_tables import OPEN_EVENTS, OPEN_RECORDS
from kodo_pipeline.spark.spark_session import small_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.audit.audit_state import SettledTotals
    from kodo_pipeline.audit.removed_rows import RemovedRows
    from kodoctl.pulsar.connection.secret import Secret


class RecalledLetter(NamedTuple):
    """Entry of the recall ledger: a dead, waiting or lost message that a recall, or `kodoctl waiting apply`, sent or
    discarded (`settled`), with its place, and with the lane and receipt of the sent message.
    kodo_pipeline.audit.recalled.LETTERS explains the fields.
    """

    msg_topic: str
    msg_partition: int
    ledger: int
    entry: int
    batch_index: int
    published: int
    settled: str
    recall_id: str
    sending: str
    lane_topic: str = ""
    lane_part: int = -1
    receipt: str = ""
    holder: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class LandedTables:
    """Tables of a landing, as defined in kodo_pipeline.landing.tables, without removed rows: all rows, or only those
    that no audit has judged. `cursors` has only rows of finished runs. `landed_at`: time at which the last batch
    landed, ms since the epoch, 0: unknown; `removed`: rows that were removed from the landing, None if no rows were
    removed; `clock`: clock of the last completed ingest. `coverage`, `cursors`: None if the audit's scope is made
    without Spark.
    """

    events: DataFrame
    transitions: DataFrame
    coverage: DataFrame | None = None
    cursors: DataFrame | None = None
    landed_at: int = 0
    removed: RemovedRows | None = None
    clock: ReadingClock = field(default_factory=ReadingClock)


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """Rows that earlier audits judged, with the columns of `kodo_pipeline.landing.state_tables`: rows of messages that
    are still open, and summaries of settled messages. `dead_letters`: the settled dead letters; `letters`: hashes of
    the entries of the recall ledger that the last audit read; `totals`: counts; `everything`: all landed messages as
    rows of `events`, new ones included.
    """

    open_events: DataFrame
    open_records: DataFrame
    settled: DataFrame
    dead_letters: DataFrame
    numbers: DataFrame
    marks: DataFrame
    letters: Container[int]
    totals: SettledTotals
    everything: DataFrame


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Rows that an audit judges, and summaries of all rows.

    `events`, `transitions`: rows to judge. `booked`: a row for each letter of the topology that the recall ledger says
    was sent or discarded; None if there are none. `fresh`: number ranges of the audit records that no audit has judged,
    or of all landed records if all rows are judged. `records`, `numbers`: number ranges of all audit records, and of
    all producers' messages, removed ones included. `marks`: all marks of producers. `everything`: all landed messages
    whose rows were not removed. `reused`: result of kodo_pipeline.audit.removed_rows.reused_numbers; None if no rows
    were removed, or if the audit continues from an earlier one. `dead_letters`: settled dead letters, which are not
    judged again; None: all dead letters are judged.
    """

    events: DataFrame
    transitions: DataFrame
    booked: DataFrame | None
    fresh: DataFrame
    records: DataFrame
    numbers: DataFrame
    marks: DataFrame
    everything: DataFrame
    reused: DataFrame | None = None
    dead_letters: DataFrame | None = None


def judged_rows(
    spark: SparkSession,
    tables: LandedTables,
    lanes: DataFrame,
    letters: Sequence[RecalledLetter],
    keys: Secret | None,
    carried: CarriedRows | None,
) -> JudgedRows:
    """Selects the rows that an audit judges, and computes number ranges over all rows. `carried`: rows and counts of
    earlier audits, to which those of `tables` are added; None: `tables` has all rows, and all are judged. The other
    parameters are those of kodo_pipeline.audit.job.classify_landing; `lanes` is its `ground` as a table.
    """
    seen = carried.letters if carried is not None else ()
    entries = [(*one, letter_hash(one) in seen) for one in letters]
    booked = small_table(spark, entries, BOOKED) if entries else None
    fresh = record_ranges(tables.transitions, lanes)
    numbers = producer_ranges(tables.events)
    marks = producer_marks(tables.events, genuine(keys) if keys else None)
    if carried is None:
        found = JudgedRows(tables.events, tables.transitions, booked, fresh, fresh, numbers, marks, tables.events)
        return found if tables.removed is None else _with_removed(found, tables.removed, lanes)
    events = tables.events.select(*OPEN_EVENTS.names[:-1])
    records = tables.transitions.select(*OPEN_RECORDS.names[:-2])
    before = carried.numbers
    theirs = before.where("msg_topic IS NULL").select(*RECORD_KEY, "first", "last", "rows")
    producers = before.where("msg_topic IS NOT NULL").withColumnsRenamed(
        {"partition": "seq_partition", "run": "seq_run"}
    )
    producers = producers.select(*PRODUCER_KEY, "first", "last", "rows")
    return JudgedRows(
        carried.open_events.unionByName(events, allowMissingColumns=True),
        carried.open_records.unionByName(records, allowMissingColumns=True),
        booked,
        fresh,
        merge_ranges(theirs.unionByName(fresh), RECORD_KEY),
        merge_ranges(producers.unionByName(numbers), PRODUCER_KEY),
        carried.marks.unionByName(marks),
        carried.everything,
        dead_letters=carried.dead_letters,
    )


def _with_removed(rows: JudgedRows, removed: RemovedRows, lanes: DataFrame) -> JudgedRows:
    """Returns `rows` with the numbers of removed rows added to `records` and `numbers`, so that these are not missing."""
    records = removed.records(lanes)
    return replace(
        rows,
        records=merge_ranges(records.unionByName(rows.records), RECORD_KEY),
        numbers=merge_ranges(removed.producers().unionByName(rows.numbers), PRODUCER_KEY),
        reused=reused_numbers(records, rows.fresh),
    )
