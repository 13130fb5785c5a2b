"""Did anything get lost or doubled? Runs the transforms on the landing's tables and makes the verdict from their
counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.pipeline.audit.classify import findings, judged, messages, outcomes, tallied
from kodoctl.pipeline.audit.completeness import (
    contradictions,
    missing_records,
    overview,
    producer_gaps,
    signing_topics,
    strays,
)
from kodoctl.pipeline.audit.partition_history import Key, read_tables
from kodoctl.pipeline.audit.positions import LANES, hops, places
from kodoctl.pipeline.audit.readings import AuditScope, audit_scope
from kodoctl.pipeline.audit.recalled import LETTERS, WEIGHED, resent, with_evidence
from kodoctl.pipeline.audit.report import SAMPLES, LostMessages, SampledFinding, document
from kodoctl.pipeline.audit.signatures import genuine
from kodoctl.pipeline.audit.verdict import (
    AuditEvidence,
    MessageStatus,
    Misaddressed,
    SequenceGap,
    SubscriptionTotals,
    decide_verdict,
)
from kodoctl.pipeline.spark.spark_session import small_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kodoctl.documents.audit_document import AuditDocument
    from kodoctl.pulsar.secret import Secret
    from kodoctl.topology.expand import Expansion

_FATES: Final = tuple(MessageStatus)


class RecalledLetter(NamedTuple):
    """A dead letter that the ledger of recalls knows, as kodoctl.pipeline.audit.recalled.LETTERS."""

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
    """The landing's tables, as kodoctl.pipeline.ingest.tables has them; of the cursors only those of finished runs.
    `landed_at`: when the last batch was landed, ms since the epoch by the clock of who landed it; 0: not known.
    """

    events: DataFrame
    transitions: DataFrame
    coverage: DataFrame
    cursors: DataFrame
    landed_at: int = 0


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Classified positions of an audit, kept for several queries. `verdicts`: result of
    kodoctl.pipeline.audit.classify.judged; `lanes`: kodoctl.pipeline.audit.positions.LANES, the rows of `ground` as a
    table; `keys`: the keys that producers sign with; `resent`: lost messages that were sent again, by ground topic and
    subscription.
    """

    tables: LandedTables
    ground: AuditScope
    lanes: DataFrame
    verdicts: DataFrame
    keys: Secret | None = None
    resent: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def document(self) -> AuditDocument:
        """The audit's JSON document (kodoctl.pipeline.audit.report.document), computed by jobs of Spark."""
        evidence = _evidence(self)
        every = findings(self.verdicts, self.lanes)
        found = [SampledFinding(*row) for row in _sampled(every).collect()]
        lost = any(tally.count(MessageStatus.LOST) for tally in evidence.tallies)
        return document(decide_verdict(evidence), evidence, found, self._lost(every) if lost else ())

    def _lost(self, found: DataFrame) -> list[LostMessages]:
        """Lost messages by the lane that lost them."""
        names = {lane["msg_topic"]: lane["name"] for lane in self.ground.lanes}
        lost = found.where(f"fate = '{MessageStatus.LOST}'").groupBy("topic", "subscription", "msg_topic").count()
        return sorted(
            LostMessages(row["topic"], row["subscription"], names[row["msg_topic"]], row["count"])
            for row in lost.collect()
        )


@contextmanager
def classify_landing(
    spark: SparkSession,
    tables: LandedTables,
    expansion: Expansion,
    *,
    letters: Iterable[RecalledLetter] = (),
    stored_from: Mapping[Key, int] | None = None,
    keys: Secret | None = None,
) -> Iterator[AuditResult]:
    """`stored_from`: the first ledger each partition has now, where that was asked: ranges of different runs continue
    each other for certain while it is not behind them. `keys`: signing keys of the platform; with them only signed
    marks of producers are believed.
    """
    ground = _surveyed(tables, expansion, stored_from or {})
    lanes = small_table(spark, ground.lanes, LANES)
    known_letters = list(letters)
    booked = small_table(spark, known_letters, LETTERS if known_letters else WEIGHED)
    settled = with_evidence(booked, tables.events).persist() if known_letters else booked
    known = outcomes(places(tables.events, tables.transitions, settled, lanes), lanes).persist()
    try:
        again = _resent(settled, ground) if any(letter.lost for letter in known_letters) else {}
        yield AuditResult(tables, ground, lanes, judged(known, hops(tables.events, lanes)), keys, again)
    finally:
        known.unpersist()
        settled.unpersist()


def audit(
    spark: SparkSession,
    tables: LandedTables,
    expansion: Expansion,
    *,
    letters: Iterable[RecalledLetter] = (),
    stored_from: Mapping[Key, int] | None = None,
    keys: Secret | None = None,
) -> AuditDocument:
    """The report; parameters as those of `classify_landing`."""
    with classify_landing(spark, tables, expansion, letters=letters, stored_from=stored_from, keys=keys) as found:
        return found.document()


def _surveyed(tables: LandedTables, expansion: Expansion, stored_from: Mapping[Key, int]) -> AuditScope:
    """Coverage and cursors are a row for each range and subscription: small, so they are collected."""
    coverage = tables.coverage.select(
        "msg_topic", "msg_partition", "split_id", "first", "last", "entries_planned", "entries_seen", "full", "state",
        "ingest_run",
    )  # fmt: skip
    cursors = tables.cursors.select(
        "msg_topic", "msg_partition", "subscription", "mark_ledger", "mark_entry", "acknowledged", "ttl_ms", "first_ledger",
        "created_ts", "rewrites", "audit", "taken_ts", "ingest_run",
    )  # fmt: skip
    return audit_scope(expansion, read_tables(_rows(coverage), _rows(cursors), stored_from))


def _resent(letters: DataFrame, ground: AuditScope) -> dict[tuple[str, str], int]:
    topics = {lane["msg_topic"]: lane["topic"] for lane in ground.lanes}
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in resent(letters).collect():
        found[topics[row["msg_topic"]], row["subscription"]] += row["messages"]
    return found


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.collect()]


def _evidence(of: AuditResult) -> AuditEvidence:
    tables, ground, lanes = of.tables, of.ground, of.lanes
    fates: dict[int, dict[MessageStatus, int]] = defaultdict(dict)
    for row in tallied(messages(of.verdicts)).collect():
        fates[row["family"]][_FATES[row["rank"]]] = row["messages"]
    missing = {row["family"]: row for row in missing_records(tables.transitions, lanes).collect()}
    doubled = any(row["repeats"] for row in missing.values())
    forged = contradictions(tables.transitions, lanes).collect() if doubled else []
    contradicted = {row["family"]: row["contradictions"] for row in forged}
    gaps = producer_gaps(tables.events, genuine(of.keys) if of.keys else None).collect()
    unverified = _unverified(tables.events, gaps) if of.keys is None else frozenset()
    newest, unnumbered = overview(tables.events).collect()[0]
    read_at = max((lane["read_at"] for lane in ground.lanes), default=0)
    tallies = [
        SubscriptionTotals(
            family.topic,
            family.subscription,
            family.mode,
            fates[family.number],
            missing[family.number]["missing"] if family.number in missing else 0,
            contradicted.get(family.number, 0),
            tuple(missing[family.number]["runs"]) if family.number in missing else (),
            of.resent.get((family.topic, family.subscription), 0),
        )
        for family in ground.families
    ]
    return AuditEvidence(
        parts=ground.parts,
        tallies=tuple(tallies),
        gaps=tuple(_gap(row, ground, unverified) for row in gaps if row["missing"]),
        skew=max(0, (newest or 0) - max(read_at, tables.landed_at)) if read_at else 0,
        unnumbered=unnumbered,
        numbered_twice=sum(row["repeats"] for row in gaps),
        strays=tuple(Misaddressed(*row) for row in strays(tables.events, lanes).collect()),
    )


def _unverified(events: DataFrame, gaps: Iterable[Row]) -> frozenset[str]:
    """Topics whose producers sign their marks, among those whose marks would prove a loss: without keys a forged mark
    cannot be recognized. Read only in that case, because properties are large.
    """
    topics = sorted({row["msg_topic"] for row in gaps if row["told"]})
    return frozenset(row["msg_topic"] for row in signing_topics(events, topics).collect()) if topics else frozenset()


def _gap(row: Row, ground: AuditScope, unverified: Container[str]) -> SequenceGap:
    topic, partition = row["msg_topic"], row["seq_partition"]
    told = 0 if topic in unverified else row["told"]
    firm = any(
        part.full and part.from_creation for part in ground.parts if (part.topic, part.partition) == (topic, partition)
    )
    return SequenceGap(topic, partition, row["seq_run"], row["missing"], told, firm, row["claimed"] - told)


def _sampled(found: DataFrame) -> DataFrame:
    """Some of each fate, the first ones by topic and place."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = ("fate", "cause", "topic", "subscription", "msg_topic", "id")
    order = Window.partitionBy("fate").orderBy("msg_topic", "id")
    return (
        found.select(*columns, F.row_number().over(order).alias("nth"))
        .where(F.col("nth") <= SAMPLES)
        .select("fate", F.coalesce("cause", F.lit("")).alias("cause"), *columns[2:])
        .orderBy("fate", "msg_topic", "id")
    )
