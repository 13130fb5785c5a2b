# adapter: runs Spark
"""Audit job: classifies the messages in the landing's tables, and makes the verdict from their counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pyspark.sql import Window
from pyspark.sql import functions as F

from kodo_pipeline.audit.audit_state import SettledTotals
from kodo_pipeline.audit.classify import (
    FINDINGS,
    delayed_by_sender,
    findings,
    messages,
    outcomes,
    place_outcomes,
    status_counts,
    written_off,
)
from kodo_pipeline.audit.completeness import (
    contradictions,
    gaps_of,
    incomplete_producers,
    incomplete_runs,
    missing_of,
    overview,
    signing_topics,
)
from kodo_pipeline.audit.judged_rows import JudgedRows, judged_rows
from kodo_pipeline.audit.positions import LANES, hops, places
from kodo_pipeline.audit.recalled import resent, with_evidence
from kodo_pipeline.audit.report import MOST_SAMPLES, SAMPLES, document
from kodo_pipeline.audit.unbooked_recalls import sent_again
from kodo_pipeline.audit.verdict import SKEW, decide_verdict
from kodo_pipeline.audit.write_offs import NO_BOOKINGS, Bookings
from kodo_pipeline.evidence.audit_evidence import (
    OPEN_FATES,
    RANKS,
    AuditEvidence,
    MessageStatus,
    Misaddressed,
    SequenceGap,
    SubscriptionTotals,
    UndatedMessages,
)
from kodo_pipeline.evidence.partition_history import Key, read_tables
from kodo_pipeline.evidence.readings import AuditScope, audit_scope
from kodo_pipeline.spark.concurrent_queries import collect_all, run_queries
from kodo_pipeline.spark.spark_session import small_table
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kodo_pipeline.audit.audit_document import AuditDocument, AuditFinding, LostLaneRow
    from kodo_pipeline.audit.audit_inputs import AuditInputs
    from kodo_pipeline.audit.judged_rows import CarriedRows, LandedTables, RecalledLetter
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.topology.expand import Expansion


_FATES: Final = tuple(MessageStatus)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Classified places of an audit. Spark caches `outcomes` until the block of `classify_landing` ends.

    `tables`, `ground`, `keys`, `bookings`: as given to `classify_landing`, so that `tables` has only new rows if
    earlier audits judged the others; `rows`: the judged rows; `lanes`: the rows of `ground` as a table
    (kodo_pipeline.audit.positions.LANES); `outcomes`, `verdicts`: results of `outcomes` and `place_outcomes` of
    kodo_pipeline.audit.classify, `verdicts` as `bookings` change it; `settled`: counts with which the audit begins, of
    earlier audits or of removed rows; `resent`: number of messages, lost or not proved done, that were sent again, by
    (ground topic, subscription).
    """

    tables: LandedTables
    ground: AuditScope
    lanes: DataFrame
    verdicts: DataFrame
    outcomes: DataFrame
    rows: JudgedRows
    settled: SettledTotals
    keys: Secret | None = None
    resent: Mapping[tuple[str, str], int] = field(default_factory=dict)
    bookings: Bookings = NO_BOOKINGS

    @property
    def messages(self) -> DataFrame:
        """The messages as a table, as `kodo_pipeline.audit.classify.messages` makes it. Persist the table if you
        evaluate it more than once.
        """
        return messages(self.verdicts)

    def document(self) -> AuditDocument:
        """Runs the queries of an audit, and returns its JSON document (kodo_pipeline.audit.report.document). Makes it
        anew at each call.
        """
        return self.counted()[0]

    def counted(self) -> tuple[AuditDocument, SettledTotals]:
        """Runs the queries of an audit. Returns (JSON document, counts over all rows so far, from which the next audit
        continues; their `fates` are those of settled messages).
        """
        (fates, settled), numbers = run_queries(partial(_fates, self), partial(_numbers, self))
        ranks = {rank for (_, rank), count in fates.items() if count}
        (evidence, totals), sampled, lost = run_queries(
            partial(_evidence, self, fates, numbers),
            partial(self._sampled_findings, ranks),
            partial(self._lost_messages, ranks),
        )
        verdict = decide_verdict(self.bookings.write_offs.applied(evidence))
        return document(verdict, evidence, sampled, lost), replace(totals, fates=settled)

    def evidence(self) -> AuditEvidence:
        """Runs the queries for the counts from which the verdict is made. Write-offs of messages and of producers'
        numbers are applied, all others are not.
        """
        (fates, _), numbers = run_queries(partial(_fates, self), partial(_numbers, self))
        return _evidence(self, fates, numbers)[0]

    def places(self, topic: str | None, subscription: str | None, most: int) -> list[tuple[str, str, str]]:
        """Places that are lost, unknown or unproved: (full name of the topic, subscription,
        `ledger:entry:partition:batch index`), sorted as texts, the first `most` of them. `topic`: ground topic, None:
        all; `subscription`: None: all. Runs a query.
        """
        from pyspark.sql import functions as F

        found = findings(self.verdicts, self.lanes).where(F.col("fate") != MessageStatus.OVERDUE.value)
        for column, name in (("topic", topic), ("subscription", subscription)):
            found = found if name is None else found.where(F.col(column) == name)
        columns = ("msg_topic", "subscription", "id")
        return [tuple(row) for row in found.select(*columns).distinct().orderBy(*columns).limit(most).collect()]

    def _sampled_findings(self, ranks: Collection[int]) -> list[AuditFinding]:
        """Samples of the findings. `ranks`: ranks of all messages; if none is as bad as a finding, no query runs."""
        if max(ranks, default=0) < RANKS[FINDINGS[0]]:
            return []
        return [
            cast("AuditFinding", row.asDict()) for row in sample_findings(findings(self.verdicts, self.lanes)).collect()
        ]

    def _lost_messages(self, ranks: Collection[int]) -> list[LostLaneRow]:
        """Number of lost messages by lane, sorted. `ranks`: as in `_sampled_findings`."""
        if RANKS[MessageStatus.LOST] not in ranks:
            return []
        names = {lane["msg_topic"]: lane["name"] for lane in self.ground.lanes}
        lost = (
            findings(self.verdicts, self.lanes)
            .where(f"fate = '{MessageStatus.LOST}'")
            .groupBy("topic", "subscription", "msg_topic")
            .count()
        )
        rows = sorted(
            (row["topic"], row["subscription"], names[row["msg_topic"]], row["count"]) for row in lost.collect()
        )
        return [{"topic": one[0], "subscription": one[1], "lane": one[2], "messages": one[3]} for one in rows]


@contextmanager
def classify_landing(
    spark: SparkSession,
    tables: LandedTables,
    ground: AuditScope,
    *,
    letters: Iterable[RecalledLetter] = (),
    keys: Secret | None = None,
    carried: CarriedRows | None = None,
    bookings: Bookings = NO_BOOKINGS,
) -> Iterator[AuditResult]:
    """Context with the classified rows of a landing, which Spark caches until the block ends.

    `tables`: all landed rows, or, with `carried`, only those that landed after the last audit; `ground`: result of
    kodo_pipeline.audit.last_audit.landed_scope; `letters`: entries of the recall ledger; `keys`: keys with which
    producers sign: only marks with a valid signature prove then that a message was lost, or excuse a missing number;
    None: none are known, and every mark does, but on a topic whose marks are signed no missing sequence number proves a
    loss; `carried`: rows and counts of earlier audits, None: all rows are judged; `bookings`: facts that no landed row
    has.
    """
    lanes = small_table(spark, ground.lanes, LANES)
    known_letters = list(letters)
    rows = judged_rows(spark, tables, lanes, known_letters, keys, carried)
    settled = None if rows.booked is None else with_evidence(rows.booked, rows.events).persist()
    known = places(rows.events, rows.transitions, settled, lanes, rows.booked)
    known = outcomes(known, lanes, tables.removed).persist()
    found = hops(rows.events, lanes)
    if carried is not None:
        found = _asked_hops(found, carried, known).persist()  # few; what is settled is read once
    removed = None if tables.removed is None else tables.removed.record
    totals = carried.totals if carried is not None else SettledTotals.of_removed(removed)
    try:
        again: dict[tuple[str, str], int] = {}
        if rows.booked is not None and any(letter.lost for letter in known_letters):
            again = _resent(rows.booked, rows.everything, ground)
        verdicts = place_outcomes(known, found)
        if bookings.unbooked is not None:
            verdicts = sent_again(verdicts, lanes, bookings.unbooked)
        if bookings.delayed:
            verdicts = delayed_by_sender(verdicts, lanes, bookings.delayed)
        if settled_places := list(bookings.write_offs.places):
            named = small_table(spark, settled_places, "msg_topic string, subscription string, id string")
            verdicts = written_off(verdicts, lanes, named)
        yield AuditResult(tables, ground, lanes, verdicts, known, rows, totals, keys, again, bookings)
    finally:
        if carried is not None:
            found.unpersist()
        known.unpersist()
        if settled is not None:
            settled.unpersist()


def classify_inputs(spark: SparkSession, inputs: AuditInputs) -> AbstractContextManager[AuditResult]:
    """Calls `classify_landing` with the inputs of an audit, and returns its context. All landed rows are judged, even
    if earlier audits judged them.
    """
    return classify_landing(
        spark, inputs.tables, inputs.ground, letters=inputs.letters, keys=inputs.keys, bookings=inputs.bookings
    )


def _asked_hops(found: DataFrame, carried: CarriedRows, known: DataFrame) -> DataFrame:
    """Returns (family, next) of stored hops, those of settled messages included, on which a doubtful outcome depends."""
    doubtful = known.where("doubtful = 1").select("family", "next").distinct()
    before = carried.settled.where("hop").withColumnRenamed("hash", "next").select("family", "next")
    return found.unionByName(before).join(doubtful, ["family", "next"], how="left_semi").distinct()


def audit(
    spark: SparkSession,
    tables: LandedTables,
    expansion: Expansion,
    *,
    letters: Iterable[RecalledLetter] = (),
    stored_from: Mapping[Key, int] | None = None,
    keys: Secret | None = None,
    bookings: Bookings = NO_BOOKINGS,
) -> AuditDocument:
    """Audits all rows, and returns the report; stores nothing. `stored_from`: id of the oldest ledger that each
    partition has now, None: unknown; the other parameters are those of `classify_landing`. `tables` must have
    `coverage` and `cursors`.
    """
    ground = audit_ground(tables, expansion, stored_from or {})
    with classify_landing(spark, tables, ground, letters=letters, keys=keys, bookings=bookings) as found:
        return found.document()


def audit_ground(tables: LandedTables, expansion: Expansion, stored_from: Mapping[Key, int]) -> AuditScope:
    """The subscriptions, partitions and lanes to judge, as `kodo_pipeline.audit.last_audit.landed_scope` returns them,
    but computed from Spark tables, and without the partitions that the last ingest left unread
    (`PartitionCoverage.left`). `tables` must have `coverage` and `cursors`.
    """
    assert tables.coverage is not None
    assert tables.cursors is not None
    coverage = tables.coverage.select(
        "msg_topic", "msg_partition", "split_id", "first", "last", "entries_planned", "entries_seen", "full", "state",
        "ingest_run",
    )  # fmt: skip
    cursors = tables.cursors.select(
        "msg_topic", "msg_partition", "subscription", "mark_ledger", "mark_entry", "acknowledged", "ttl_ms", "first_ledger",
        "created_ts", "rewrites", "audit", "taken_ts", "ingest_run",
    )  # fmt: skip
    return audit_scope(expansion, read_tables(_rows(coverage), _rows(cursors), stored_from))


def _resent(booked: DataFrame, events: DataFrame, ground: AuditScope) -> dict[tuple[str, str], int]:
    """Returns the number of messages sent again, by (ground topic, subscription). The join reads all rows, settled ones
    included, because few letters are joined.
    """
    topics = {lane["msg_topic"]: lane["topic"] for lane in ground.lanes}
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in resent(with_evidence(booked.where("lost"), events)).collect():
        found[topics[row["msg_topic"]], row["subscription"]] += row["messages"]
    return found


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.collect()]


def _evidence(
    of: AuditResult, counts: Mapping[tuple[int, int], int], numbers: _Numbers
) -> tuple[AuditEvidence, SettledTotals]:
    """Returns (evidence for the verdict, counts of all rows so far). `counts`: number of all messages by (number of the
    subscription, rank), from `_fates`.
    """
    ground, rows = of.ground, of.rows
    holed, gaps, totals = numbers
    fates: dict[int, dict[MessageStatus, int]] = defaultdict(dict)
    for (number, rank), count in counts.items():
        fates[number][_FATES[rank]] = count
    gaps.sort(key=lambda row: (row["msg_topic"], row["seq_partition"], row["seq_run"]))  # Spark promises no order
    missing = {row["family"]: row for row in holed}
    unverified = _unverified_topics(rows.everything, gaps) if of.keys is None else frozenset()
    if any(row["repeats"] for row in holed):
        totals = _with_contradictions(of, totals)
    tallies = [
        SubscriptionTotals(
            family.topic,
            family.subscription,
            family.mode,
            fates[family.number],
            missing[family.number]["missing"] if family.number in missing else 0,
            totals.contradictions.get(family.number, 0),
            tuple(missing[family.number]["runs"]) if family.number in missing else (),
            of.resent.get((family.topic, family.subscription), 0),
        )
        for family in ground.families
    ]
    evidence = AuditEvidence(
        parts=ground.parts,
        tallies=tuple(tallies),
        gaps=tuple(_gap(row, ground, unverified) for row in gaps if row["missing"]),
        clock=of.tables.clock,
        undated=_undated_messages(of, totals.newest or 0),
        unnumbered=totals.unnumbered,
        numbered_twice=sum(row["repeats"] for row in gaps),
        strays=_strays(totals.meant, ground),
        removed_before=totals.since,
        sources=ground.sources,
        unbooked="" if of.bookings.unbooked is None else of.bookings.unbooked.text(),
    )
    return evidence, totals


def _undated_messages(of: AuditResult, newest: int) -> tuple[UndatedMessages, ...]:
    """Open messages whose publish time is later than their reading, by topic, with the workers that moved them there.
    `newest`: publish time of the newest message in ms; if that time is possible, no query runs.
    """
    from pyspark.sql import functions as F

    read_at = max((lane["read_at"] for lane in of.ground.lanes), default=0)
    end = max(read_at, of.tables.landed_at) + SKEW
    if not read_at or newest <= end:
        return ()
    ranks = [RANKS[fate] for fate in OPEN_FATES]
    late = of.verdicts.where(F.col("rank").isin(ranks) & (F.col("published") > end))
    named = late.join(F.broadcast(of.lanes.select("lane", "msg_topic", "msg_partition")), "lane", how="inner").select(
        "msg_topic", "family", "identity", F.concat_ws(":", "ledger", "entry", "msg_partition", "batch").alias("id")
    )
    moves = of.rows.transitions.select(
        F.col("target_topic").alias("msg_topic"), F.col("target_id").alias("id"), "worker_run"
    )
    found = (
        named.join(moves, ["msg_topic", "id"], how="left")
        .groupBy("msg_topic")
        .agg(
            F.countDistinct("family", "identity").alias("messages"),
            F.array_sort(F.collect_set("worker_run")).alias("workers"),
        )
        .orderBy("msg_topic")
    )
    return tuple(UndatedMessages(row["msg_topic"], row["messages"], tuple(row["workers"])) for row in found.collect())


def _fates(of: AuditResult) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """Number of messages by (number of the subscription, rank), once of all messages and once of the settled ones. Both
    include earlier audits. Runs a query.
    """
    every, settled = Counter(of.settled.fates), Counter(of.settled.fates)
    for row in status_counts(of.messages).collect():
        for found in (every, settled) if row["settled"] else (every,):
            found[row["family"], row["rank"]] += row["messages"]
    return every, settled


class _Numbers(NamedTuple):
    """Figures about numbers. `missing`: rows of `missing_of` for records; `gaps`: rows of `gaps_of` for producers;
    `totals`: counts of all rows so far, without contradictions that are new.
    """

    missing: list[Row]
    gaps: list[Row]
    totals: SettledTotals


def _numbers(of: AuditResult) -> _Numbers:
    rows = of.rows
    ((records,),), ((producers,),), found = collect_all(
        incomplete_runs(rows.records), incomplete_producers(rows.numbers, rows.marks), overview(of.tables.events)
    )
    missing = missing_of(rows.records).collect() if records else []
    gaps = _gaps(of) if producers else []
    return _Numbers(missing, gaps, _totals(of.settled, found))


def _gaps(of: AuditResult) -> list[Row]:
    """Rows of `gaps_of`, without the numbers that were written off. Runs a query."""
    rows, settled = of.rows, list(of.bookings.write_offs.producers)
    columns = "msg_topic string, partition int, seq_run string, last bigint"
    known = small_table(rows.numbers.sparkSession, settled, columns) if settled else None
    return gaps_of(rows.numbers, rows.marks, signed=of.keys is not None, settled=known).collect()


def _totals(before: SettledTotals, found: Sequence[Row]) -> SettledTotals:
    """Returns `before` with the counts of `found`, the rows of `overview`, added."""
    named = Counter(before.meant)
    for row in found:
        if row["subscription"] is not None:
            named[row["msg_topic"], row["subscription"]] += row["messages"]
    newest = max((one for one in (before.newest, *(row["newest"] for row in found)) if one is not None), default=None)
    unnumbered = before.unnumbered + sum(row["unnumbered"] for row in found)
    return replace(before, newest=newest, unnumbered=unnumbered, meant=named)


def _with_contradictions(of: AuditResult, totals: SettledTotals) -> SettledTotals:
    """Returns `totals` with new contradictions added: numbers with two different records, and new records with the
    number of a removed one, which cannot be compared any more. Runs queries.
    """
    forged = Counter(totals.contradictions)
    if of.rows.reused is not None:
        forged.update({row["family"]: row["numbers"] for row in of.rows.reused.collect()})
    for row in contradictions(of.tables.transitions, of.lanes).collect():
        forged[row["family"]] += row["contradictions"]
    return replace(totals, contradictions=forged)


def _strays(named: Mapping[tuple[str, str], int], ground: AuditScope) -> tuple[Misaddressed, ...]:
    """Number of messages that are addressed to a subscription which their topic, by the file, does not have."""
    readers = {(lane["msg_topic"], lane["subscription"]) for lane in ground.lanes}
    return tuple(Misaddressed(*key, count) for key, count in sorted(named.items()) if key not in readers)


def _unverified_topics(events: DataFrame, gaps: Iterable[Row]) -> frozenset[str]:
    """Topics whose producers sign their marks, among the topics of `gaps` whose marks would prove a loss: without keys
    a forged mark cannot be recognized. The query runs only if there are such gaps, because properties are large.
    """
    topics = sorted({row["msg_topic"] for row in gaps if row["overdue"]})
    return frozenset(row["msg_topic"] for row in signing_topics(events, topics).collect()) if topics else frozenset()


def _gap(row: Row, ground: AuditScope, unverified: Container[str]) -> SequenceGap:
    topic, partition = row["msg_topic"], row["seq_partition"]
    if any((part.topic, part.partition) == (topic, PLAIN) for part in ground.parts):
        partition = PLAIN  # a producer counts the only partition of a plain topic as its first
    overdue = 0 if topic in unverified else row["overdue"]
    firm = any(
        part.full and part.from_creation for part in ground.parts if (part.topic, part.partition) == (topic, partition)
    )
    unsigned = row["claimed"] - overdue
    return SequenceGap(topic, partition, row["seq_run"], row["missing"], overdue, firm, unsigned, row["highest"])


def sample_findings(found: DataFrame) -> DataFrame:
    """Chooses findings to name in a report: (fate, cause, topic, subscription, msg_topic, id), sorted as texts by
    status, `msg_topic` and `id`. At most 20 (SAMPLES) of each status and lane (`msg_topic` and subscription), and at
    most 1,000 (MOST_SAMPLES) of each status, distributed over the lanes. `cause` is "" instead of null.
    """
    columns = ("fate", "cause", "topic", "subscription", "msg_topic", "id")
    order = ("msg_topic", "id", "subscription", "cause")  # several subscriptions may have lost one message
    of_lane = Window.partitionBy("fate", "msg_topic", "subscription").orderBy("id", "cause")
    of_fate = Window.partitionBy("fate").orderBy("nth", *order)
    return (
        found.select(*columns, F.row_number().over(of_lane).alias("nth"))
        .where(F.col("nth") <= SAMPLES)
        .withColumn("all", F.row_number().over(of_fate))
        .where(F.col("all") <= MOST_SAMPLES)
        .select("fate", F.coalesce("cause", F.lit("")).alias("cause"), *columns[2:])
        .orderBy("fate", *order)
    )
