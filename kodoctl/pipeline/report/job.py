"""Report job: the verdict of the audit and the counts of windows, from the tables of the landing, each made once.
Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from kodoctl.pipeline.audit.audit_inputs import load_and_classify, with_ledger_note
from kodoctl.pipeline.audit.deduplicate import without_duplicates
from kodoctl.pipeline.ingest.landing_commits import newest_batch, times_of
from kodoctl.pipeline.ingest.tables import CURSORS, EVENTS, TRANSITIONS
from kodoctl.pipeline.report import report_tables
from kodoctl.pipeline.report.document import Facts, coarser, fitting
from kodoctl.pipeline.rollup.histogram import bucket
from kodoctl.pipeline.rollup.job import RollupState, counted, time_bounds
from kodoctl.pipeline.rollup.summary import summary
from kodoctl.pipeline.rollup.transforms import latencies, rollup
from kodoctl.pipeline.spark.concurrent_queries import run_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodoctl.documents.audit_document import AuditDocument
    from kodoctl.pipeline.audit.job import AuditResult
    from kodoctl.pipeline.ingest.landing_store import Landing
    from kodoctl.pipeline.rollup.time_bounds import TimeBounds
    from kodoctl.pulsar.admin import Admin
    from kodoctl.pulsar.secret import Secret
    from kodoctl.topology.expand import Expansion


class RollupTables(NamedTuple):
    """Tables as kodoctl.pipeline.rollup.transforms makes them, in windows of `width` ms, and the time that is drawn."""

    rollup: DataFrame
    latencies: DataFrame
    width: int
    bounds: TimeBounds

    def possible(self) -> tuple[DataFrame, DataFrame]:
        """The latencies of ages that a message can have, and all others."""
        oldest = bucket(F.lit(self.bounds.until - self.bounds.since))
        is_possible = F.coalesce(F.col("bucket") <= oldest, F.lit(True))
        return self.latencies.where(is_possible), self.latencies.where(~is_possible)


def gather(
    spark: SparkSession, landing: Landing, expansion: Expansion, admin: Admin, ledger: str, keys: Secret | None
) -> Facts:
    """Everything a report is made of. Writes nothing. `keys`: see kodoctl.pipeline.audit.job.classify_landing."""
    with load_and_classify(spark, landing, expansion, admin, ledger, keys) as found:
        return gather_facts(spark, landing, expansion, found, with_ledger_note(found.document(), ledger))


def gather_facts(
    spark: SparkSession, landing: Landing, expansion: Expansion, found: AuditResult, audit: AuditDocument
) -> Facts:
    """The same of an audit that was made already. `audit`: its document."""
    with counts(spark, landing) as known:
        levels = {topic.name.full: topic.level and topic.level.value for topic in expansion.topics}
        possible, impossible = known.possible()
        waiting, (failures, failed), document, impossible_ages = run_queries(
            partial(report_tables.waiting, found.verdicts, found.lanes, known.bounds.since),
            partial(report_tables.failures, found.tables.events, found.tables.transitions),
            partial(summary, known.rollup, possible, known.width, known.bounds),
            partial(report_tables.messages, impossible),
        )
        width = coarser(document["until"] - document["since"], known.width)
        sent = report_tables.sent(found.tables.events, width).persist()
        tenants = [(one["topic"], one["tenant"]) for one in document["tenants"]]
        try:
            groups, traffic, sent_by = run_queries(
                partial(report_tables.groups, sent, possible),
                partial(report_tables.traffic, known.rollup, sent, width, known.bounds),
                partial(report_tables.sent_by, sent, tenants),
            )
            return Facts(
                audit=audit,
                counted=document,
                waiting=[{**row, "level": levels[row["msg_topic"]]} for row in waiting],
                failures=failures,
                failed=failed,
                groups=groups,
                points=traffic.points,
                past=traffic.past,
                future=traffic.future,
                impossible_ages=impossible_ages,
                width=width,
                read_at=max((lane["read_at"] for lane in found.ground.lanes), default=0),
                sent=sent_by,
            )
        finally:
            sent.unpersist()


@contextmanager
def counts(spark: SparkSession, landing: Landing) -> Iterator[RollupTables]:
    """Counts of the last `rollup`, if they include all that landed and their windows are narrow enough; else counts
    made now, and not kept.
    """
    snapshot = landing.snapshot(EVENTS, TRANSITIONS, CURSORS)
    bounds = time_bounds(landing, snapshot)
    width = fitting(bounds.span(*(times_of(snapshot.commits, EVENTS) or (0, 0))))
    state = RollupState.of(snapshot.commits)
    if state.window and state.window <= width and newest_batch(snapshot.commits) <= state.batch:
        known = counted(spark, landing)
        yield RollupTables(known.rollup, known.latencies, known.window, bounds)
        return
    events, window = landing.read(spark, EVENTS, snapshot=snapshot), f"{width} milliseconds"
    with without_duplicates(landing.read(spark, TRANSITIONS, snapshot=snapshot)) as transitions:
        made = rollup(events, transitions, window=window).persist()
        late = latencies(events, transitions, window=window).persist()
        try:
            yield RollupTables(made, late, width, bounds)
        finally:
            made.unpersist()
            late.unpersist()
