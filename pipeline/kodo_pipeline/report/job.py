# adapter: runs Spark
"""Report job: computes the verdict of an audit and the counts of windows from the landing's tables, each once. Writes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kodo_pipeline.audit.audit_inputs import load_inputs
from kodo_pipeline.audit.audit_state import landed_rows
from kodo_pipeline.audit.deduplicate import without_duplicates
from kodo_pipeline.audit.incremental_audit import AuditOptions, judged_landing
from kodo_pipeline.evidence.audit_evidence import RANKS, MessageStatus
from kodo_pipeline.landing.landing_commits import newest_batch, times_of
from kodo_pipeline.landing.landing_store import FEW
from kodo_pipeline.landing.tables import COUNTED, CURSORS, EVENTS, TRANSITIONS
from kodo_pipeline.report import report_tables
from kodo_pipeline.report.document import Facts, coarser, fitting
from kodo_pipeline.rollup import summary, transforms
from kodo_pipeline.rollup.failure_counts import failed_records, failures_by_day, without_doubles
from kodo_pipeline.rollup.job import RollupState, time_bounds, topics_table
from kodo_pipeline.rollup.latency_histograms import bucket_of
from kodo_pipeline.spark.concurrent_queries import run_queries
from kodo_pipeline.spark.spark_session import small_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.audit.audit_document import AuditDocument
    from kodo_pipeline.audit.incremental_audit import JudgedLanding
    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.audit.judged_rows import LandedTables
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.rollup.time_bounds import TimeBounds
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.topology.expand import Expansion


class RollupTables(NamedTuple):
    """Counted tables, as those of `kodoctl pipeline rollup`, but several rows may have the same key. `width`: width of
    a window in ms; `bounds`: time span of the charts; `failures`: rows in which each failure is counted once.
    """

    rollup: DataFrame
    latencies: DataFrame
    sent: DataFrame
    failures: DataFrame
    width: int
    bounds: TimeBounds


def gather(
    spark: SparkSession, landing: Landing, expansion: Expansion, admin: Admin, ledger: str, keys: Secret | None
) -> Facts:
    """Audits a landing, and computes everything that a report shows. Writes nothing. `ledger`: address of the recall
    ledger; `keys`: keys with which producers sign, None: none are known.
    """
    inputs = load_inputs(spark, landing, expansion, admin, ledger, keys)
    with judged_landing(spark, landing, inputs, AuditOptions("", is_read_only=True)) as judged:
        return gather_facts(spark, landing, expansion, judged)


def gather_facts(spark: SparkSession, landing: Landing, expansion: Expansion, judged: JudgedLanding) -> Facts:
    """Computes everything that a report shows, from an audit that has been made. Writes nothing."""
    found, audit = judged.result, judged.document
    with counts(spark, landing, judged.tables) as known:
        failures, totals, groups, waiting = run_queries(
            partial(report_tables.failures, known.failures),
            partial(summary.totals, known.rollup, known.bounds.windows(known.width)),
            partial(report_tables.groups, known.sent),
            partial(_waiting, found, audit, known.bounds.since),
        )
        noisy = {(group["topic"], name) for group in groups for name in group["names"]}
        width = coarser(totals.span[1] + known.width - totals.span[0], known.width)
        late, traffic, sent_by = run_queries(
            partial(summary.histograms, known.latencies, totals.names | noisy),
            partial(report_tables.traffic, known.rollup, known.sent, width, known.bounds),
            partial(report_tables.sent_by, known.sent, sorted(totals.names)),
        )
    possible = late.possible(bucket_of(known.bounds.until - known.bounds.since))
    levels = {topic.name.full: topic.level and topic.level.value for topic in expansion.topics}
    return Facts(
        audit=audit,
        counted=totals.document(known.width, possible),
        waiting=[{**row, "level": levels[row["msg_topic"]]} for row in waiting],
        failures=failures[0],
        failed=failures[1],
        groups=report_tables.with_latencies(groups, possible),
        points=traffic.points,
        past=traffic.past,
        future=traffic.future,
        impossible_ages=late.messages - possible.messages,
        width=width,
        read_at=max((lane["read_at"] for lane in found.ground.lanes), default=0),
        sent=sent_by,
    )


def _waiting(found: AuditResult, audit: AuditDocument, since: int) -> list[dict[str, Any]]:
    """Rows of `report_tables.waiting`. The query runs only if a message has a status as bad as waiting, or worse."""
    fates = (RANKS[MessageStatus(fate)] for one in audit["subscriptions"] for fate in one["messages"])
    if max(fates, default=0) < RANKS[MessageStatus.DEAD]:
        return []
    return report_tables.waiting(found.verdicts, found.lanes, since, found.rows.dead_letters)


@contextmanager
def counts(spark: SparkSession, landing: Landing, audited: LandedTables | None = None) -> Iterator[RollupTables]:
    """Context with the counts for a report: those of the last `rollup`, if it includes everything that landed and its
    windows are narrow enough for a chart (at most as wide as `fitting` says). Otherwise they are computed from
    `audited` (None: from the landing) and not stored. If an older kodoctl made the last `rollup`, the counts that it
    lacks are computed.
    """
    snapshot = landing.snapshot(EVENTS, TRANSITIONS, CURSORS, *COUNTED)
    bounds = time_bounds(landing, snapshot)
    width = fitting(bounds.span(*(times_of(snapshot.commits, EVENTS) or (0, 0))))
    state = RollupState.of(snapshot.commits)
    pairs = small_table(spark, state.recorded or (), "topic string, subscription string")
    is_whole = state.window > 0 and newest_batch(snapshot.commits) <= state.batch
    if is_counted := is_whole and state.window <= width:
        width = state.window
        rollup, late, sent, failures = (landing.read(spark, table, snapshot=snapshot) for table in COUNTED)
        if state.recorded is not None:
            yield RollupTables(rollup, late, sent, without_doubles(failures, pairs), width, bounds)
            return
    events, records = (
        (audited.events, audited.transitions)
        if audited
        else (landing.read(spark, table, snapshot=snapshot) for table in (EVENTS, TRANSITIONS))
    )
    topics = topics_table(spark, state.topics) if is_whole else None
    few = sum(landed_rows(snapshot.commits).values()) <= FEW
    with without_duplicates(records, few=few) as transitions:
        made = transforms.detailed_counts(events, transitions, window=f"{width} milliseconds", topics=topics).persist()
        if not is_counted:
            rollup, late = made.drop("bucket", "sent"), transforms.late(made)
        recorded = records.select("topic", "subscription").unionByName(pairs).distinct()
        failures = without_doubles(failures_by_day(events, failed_records(transitions), events), recorded)
        try:
            yield RollupTables(rollup, late, transforms.sent_among(made), failures, width, bounds)
        finally:
            made.unpersist()
