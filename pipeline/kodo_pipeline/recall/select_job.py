"""Choice of dead letters by Spark for a recall plan: read once, from their topic or from a landing. Chosen letters are
planned by the same code as without Spark (kodoctl.recall.plan.selection).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.tables import EVENTS
from kodo_pipeline.recall.unacknowledged import join_rows, unacknowledged_ranges
from kodo_pipeline.source.options import connection_options
from kodo_pipeline.source.partition_stats import internal_stats
from kodo_pipeline.source.splits import stored_partition
from kodo_pipeline.spark.spark_errors import spark_error, words
from kodoctl.errors import UsageError, error
from kodoctl.protocol import properties as headers
from kodoctl.pulsar.binary.message_reader import cursor_of
from kodoctl.recall.cluster import RecallCluster, check_partitions
from kodoctl.recall.message.stored_message import DeadLetter, Position, tenant_of
from kodoctl.recall.recall_planner import no_holder
from kodoctl.topology.names import TopicName, partition_name, partition_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kodo_pipeline.landing.landing_store import Landing
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest

_HELD: Final = "partition int, ledger bigint, stride bigint, first bigint, last bigint"


@dataclass
class DeadLetterSelector:
    """Selector of dead letters by Spark (implements kodoctl.recall.recall_planner.Fill). `open_spark`: makes a context
    with the session, which is entered after all checks that need no Spark. `landing`: reads the letters from it, None:
    from the topic; the cluster says in both cases which are acknowledged. `unseen`: after a call, the number of
    unacknowledged entries of which no message was read, as a rule because they have not landed yet.
    """

    session: Session
    open_spark: Callable[[], AbstractContextManager[SparkSession]]
    landing: Landing | None = None
    unseen: int = field(default=0, init=False)

    def __call__(self, asked: SelectionRequest, selection: LetterSelection) -> None:
        """Passes to `selection`, in order of position, the dead letters that the condition chooses, if they can be sent
        on unchanged, and all letters that have a recall id in their headers or, without `asked.again`, are settled by
        the ledger. Sets `selection.read` to the number of all letters that were read, without those of entries that are
        acknowledged as a whole. Starts Spark. Raises KodoctlError, such as UsageError (K820) for a fact that Spark does
        not have.
        """
        from pyspark.errors import PySparkException

        from kodo_pipeline.recall.dead_letter_rows import check_facts

        check_facts(asked.condition)
        keeping = _keeping(self.session, asked.family)
        with self.open_spark() as spark:
            try:
                self._fill(spark, asked, selection, keeping)
            except PySparkException as problem:
                text = str(problem)
                raise spark_error(text, error("K821", "Spark could not choose the letters", words(text))) from None

    def _fill(
        self, spark: SparkSession, asked: SelectionRequest, selection: LetterSelection, keeping: _HeldRanges
    ) -> None:
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        from kodo_pipeline.recall import dead_letter_rows

        kept = spark.createDataFrame(keeping.rows, _HELD)
        settled = [] if asked.again else [(name,) for name, one in asked.known.items() if one.settled]
        booked = spark.createDataFrame(settled, "recall_id string")
        whole = asked.edit is not None
        messages = self._messages(spark, asked.family)
        if self.landing is not None:
            dead_letter_rows.check_payloads(messages, asked.condition, whole=whole)
        slips = dead_letter_rows.slips(messages, kept, booked, asked.condition, asked.family, whole=whole)
        slips = slips.persist(StorageLevel.DISK_ONLY)  # read once: a second look would see other letters
        try:
            entries = F.countDistinct("partition", "ledger", "entry")
            selection.read, seen = slips.agg(F.count("*"), entries).collect()[0]
            self.unseen = keeping.entries - seen
            telling = slips.where("chosen OR settled OR mark IS NOT NULL")
            for row in telling.orderBy("partition", "ledger", "entry", "batch_index").toLocalIterator():
                selection.consider(slip_of(row, asked.family), chosen=row["chosen"])
        finally:
            slips.unpersist()

    def _messages(self, spark: SparkSession, family: RecallSource) -> DataFrame:
        from kodo_pipeline.recall.dead_letter_rows import stored_in
        from kodo_pipeline.source.data_source import PulsarSource

        if self.landing is not None:
            return stored_in(self.landing.read(spark, EVENTS), family.source_topic)
        spark.dataSource.register(PulsarSource)
        cores = str(spark.sparkContext.defaultParallelism)
        options = connection_options(self.session.connection) | {"topic": family.source_topic, "cores": cores}
        return spark.read.format("pulsar").options(**options).load()


@dataclass(frozen=True, slots=True)
class _HeldRanges:
    """Entries that the holder has not acknowledged: rows of kodo_pipeline.recall.unacknowledged.join_rows, and the
    number of entries.
    """

    rows: list[tuple[int, int, int, int, int]]
    entries: int


def _keeping(session: Session, family: RecallSource) -> _HeldRanges:
    check_partitions(RecallCluster(session), {family.source_topic: family.source_partitions})
    stats = internal_stats(session.admin, TopicName.parse(family.source_topic)) or {}
    made: list[tuple[int, int, int, int, int]] = []
    entries = 0
    for number in partition_numbers(family.source_partitions):
        part, data = partition_name(family.source_topic, number), stats.get(number)
        if data is None:
            raise UsageError(error("K560", "topic not found on the cluster", part))
        cursor = (data.get("cursors") or {}).get(family.holder)
        if cursor is None:
            raise no_holder(part, family.holder)
        runs = list(unacknowledged_ranges(stored_partition(data).pieces, cursor_of(cursor)))
        entries += sum(run.entries for run in runs)
        made.extend(join_rows(number, runs))
    return _HeldRanges(made, entries)


@dataclass(frozen=True)
class CandidateRow(DeadLetter):
    """A message (a dead letter, or a lost message) whose `payload` is the beginning of its payload, all of it, or None.
    Facts about the whole payload come from its row: `fingerprint`: digest; `length`: size in bytes; `is_text`: the
    whole payload is text. `ordering_key`, `broken` and, of a dead letter, `event_time` are not known, and have their
    defaults.
    """

    fingerprint: str = ""
    length: int = 0
    is_text: bool = False

    @property
    def size(self) -> int:
        """Size of the whole payload in bytes."""
        return self.length

    @cached_property
    def digest(self) -> str:
        """Digest of the whole payload."""
        return self.fingerprint

    @cached_property
    def text(self) -> str | None:
        """The present part of the payload as text; None if there is no payload, or the whole payload is not text."""
        return (self.payload or b"").decode(errors="ignore") if self.is_text else None


def slip_of(row: Row, family: RecallSource) -> CandidateRow:
    """Makes a CandidateRow of a row of kodo_pipeline.recall.dead_letter_rows.slips. If the letter was not chosen, it
    has no payload, digest and size, and no properties except a recall id, so its tenant may not be the right one.
    """
    properties = row["properties"] or ({headers.RECALL: row["mark"]} if row["mark"] is not None else {})
    place = Position(row["partition"], row["ledger"], row["entry"], row["batch_index"])
    return candidate_of(row, family, place, properties)


def candidate_of(row: Row, family: RecallSource, place: Position, properties: dict[str, str]) -> CandidateRow:
    """Makes a CandidateRow of a message of `family` at `place`. `row`: has the columns of
    kodo_pipeline.recall.dead_letter_rows.facts_of_chosen, of which `properties` is not read, `key` and `published` (ms,
    the publish time); `properties`: those of the message, which the caller has decided.
    """
    key = row["key"] or ""
    return CandidateRow(
        family.source_topic,
        place,
        None if row["payload"] is None else bytes(row["payload"]),
        properties,
        key,
        publish_time=row["published"],
        tenant=tenant_of(family.fair_by, properties, key),
        fingerprint=row["digest"] or "",
        length=row["size"] or 0,
        is_text=bool(row["is_text"]),
    )
