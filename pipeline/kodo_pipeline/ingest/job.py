"""Ingest job: lands all stored messages of a topology's topics batch by batch. A batch is committed only if its rows
agree with the coverage of its splits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_pipeline.evidence.cluster_check import must_be_same_cluster
from kodo_pipeline.evidence.cursors import last_looks, partition_histories, read_cursors
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.ingest import events, transitions
from kodo_pipeline.ingest.event_source import EventSource
from kodo_pipeline.ingest.small_batch import FEW_BYTES, plan_small, write_splits
from kodo_pipeline.ingest.stream_checkpoint import StreamCheckpoint
from kodo_pipeline.landing.landing_commits import LandingCommit, TableFiles, batches, last_begin
from kodo_pipeline.landing.landing_store import must_be_same_namespace
from kodo_pipeline.landing.payload_policy import payload_policies, policies_to_text
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS
from kodo_pipeline.source.options import connection_options
from kodo_pipeline.source.partition_stats import each_internal_stats, to_text
from kodo_pipeline.spark.spark_errors import spark_error, words
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, is_due, maintain
from kodoctl.errors import KodoctlError, LockedError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.cluster_clock import ClusterClock, read_clock
from kodoctl.text.formatting import many
from kodoctl.topology.names import State, partition_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.ingest.event_source import EventStream
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.source.partition_stats import PartitionMetadata
    from kodo_pipeline.source.splits import Split
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.expand import Expansion, FamilyTopic

_ORDER: Final = (State.READY, State.RETRYING, State.PENDING, State.BLOCKING, State.DEAD, None)
_STARTS: Final = 10
_SLOW_START: Final = "Python worker failed to connect back"
"""Text in Spark's error if the Python process that plans our stream has not started within 10 s, which happens on a
busy machine because Spark's own modules take half a second of the processor. No setting changes the limit
(PythonWorkerFactory reads none); another try helps.
"""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """Request of an ingest. `run`: id of the ingest; `max_bytes`: approximate maximum of bytes per batch, as brokers
    store them; `accept_holes`: continue if messages have been deleted unread, and record that they are missing;
    `maintain_every`: number of batches after which the landing is maintained, 0: never.
    """

    expansion: Expansion
    connection: Connection
    landing: Landing
    run: str
    max_bytes: int
    accept_holes: bool = False
    maintain_every: int = 0


class HolesError(KodoctlError):
    """An ingest left partitions unread, because messages in them may have been deleted unread. All other partitions
    were landed. `holes`: the reason by full name of the partition.
    """

    def __init__(self, holes: Mapping[str, str]) -> None:
        found = [error("K574", "stored messages could not be read", f"{part}: {why}") for part, why in holes.items()]
        super().__init__(*found, error("K574", "stored messages could not be read", _WAY_ON))


_WAY_ON: Final = (
    "all other partitions were read, and are judged. `kodoctl pipeline ingest --accept-holes` reads what these still have, and "
    "writes down what is missing; `kodoctl pipeline write-off` settles the doubt that stays"
)


@dataclass(frozen=True, slots=True)
class LandingResult:
    """Result of a batch. `events`, `transitions`: numbers of rows; `size`: bytes of payloads; `seconds`: duration, 0
    for a batch that a killed run had committed before; `splits`: number of splits; `holes`: ids of the splits that were
    not read in full; `unreadable`: number of messages on audit topics whose records are missing or not all readable.
    """

    batch: int
    events: int
    transitions: int
    size: int
    seconds: float
    splits: int
    holes: tuple[str, ...] = ()
    unreadable: int = 0


def present(request: IngestRequest) -> tuple[list[FamilyTopic], list[FamilyTopic]]:
    """Asks the cluster, and sorts the topics of a topology into (existing topics, absent topics), each in the order in
    which an ingest fixes the position up to which it reads them. By this order, a message that moves to another topic
    meanwhile is still read in that topic.
    """
    ordered = sorted(request.expansion.topics, key=lambda topic: _ORDER.index(topic.state))
    with closing(HttpAdmin(request.connection)) as admin:
        known = list(zip(ordered, each_internal_stats(admin, [topic.name for topic in ordered]), strict=True))
    return [one for one, stats in known if stats], [one for one, stats in known if not stats]


def ingest(
    request: IngestRequest, topics: list[FamilyTopic], spark: SparkSession, report: Callable[[LandingResult], None]
) -> list[LandingResult]:
    """Lands all messages that are stored now, and returns the batches; calls `report` after each, in another thread
    while Spark reads a stream. The first batch may be one that a killed run had committed.

    Raises LockedError while another ingest runs, and KodoctlError; committed batches stay. If messages of some
    partitions may have been deleted unread, and the request does not accept holes, all other partitions are landed, and
    then HolesError is raised. `topics`: the existing ones, in the order of `present`.
    """
    landing = request.landing
    with landing.alone() as alone:
        landing.check()
        known = landing.recover()
        must_be_same_namespace(landing, request.expansion, known)
        landing.sweep(alone=alone)
        landing.start(request.run)
        looks, attempt = last_looks(landing), _Attempt(request, topics, spark, report, alone)
        try:
            return attempt.land(looks)
        except KodoctlError as problem:
            if request.accept_holes or all(one.code != "K574" for one in problem.diagnostics):
                raise
            if not (holes := attempt.holes(looks)):
                raise
        rest = replace(request, run=f"{request.run}-rest")
        landing.start(rest.run)
        _Attempt(rest, topics, spark, report, alone).land(looks, holes)
        landing.end(request.run)
        raise HolesError(holes)


class _Attempt(NamedTuple):
    """One attempt of an ingest, under its own run."""

    request: IngestRequest
    topics: list[FamilyTopic]
    spark: SparkSession
    report: Callable[[LandingResult], None]
    alone: bool

    def land(
        self, looks: Mapping[str, PartitionMetadata], left: Mapping[str, str] = MappingProxyType({})
    ) -> list[LandingResult]:
        """Lands everything that is stored now, except in the partitions `left` (the reason by full name). Commits the
        end of the run, maintains the landing if that is due, and returns the batches.
        """
        request, landing = self.request, self.request.landing
        known = landing.commits()
        start, clock = _begin(request, last_begin(known), self.topics, left)
        writer = _Writer(request, self.spark, self.report, batches(known), clock)
        _read_all(self, looks, writer, left)
        facts = {"begun": start, "ended": clock.now(), "batches": [one.batch for one in writer.done]}
        names = [topic.name.full for topic in self.topics]
        landing.commit(LandingCommit(f"{request.run}-end", start, facts={**facts, "complete": True, "topics": names}))
        maintain_if_due(request)
        landing.end(request.run, sweep=writer.starts > 0)
        return writer.done

    def holes(self, looks: Mapping[str, PartitionMetadata]) -> dict[str, str]:
        """Reason by full name of each partition whose messages after the last reading may be gone. Empty if the last
        batch is not complete, because the end of that batch is fixed.
        """
        last = StreamCheckpoint(self.request.landing.checkpoint).last()
        return {} if last is None else EventSource.stream(self.options(looks)).holes(last.offset)

    def options(self, looks: Mapping[str, PartitionMetadata], left: Collection[str] = ()) -> dict[str, str]:
        """Returns the options of the stream. `looks`: metadata of partitions by name. `left`: names of the partitions
        to leave out.
        """
        request = self.request
        return connection_options(request.connection) | {
            "topics": ",".join(topic.name.full for topic in self.topics),
            "maxBytesPerTrigger": str(request.max_bytes),
            "cores": str(self.spark.sparkContext.defaultParallelism),
            "coverage": request.landing.work(request.run).uri,
            "failOnDataLoss": str(not request.accept_holes).lower(),
            "roles": events.to_text(events.roles(request.expansion)),
            "run": request.run,
            "looks": to_text(looks),
            "payloads": policies_to_text(payload_policies(request.expansion)),
            "left": json.dumps(sorted(left)),
        }


def maintain_if_due(request: IngestRequest) -> None:
    """Maintains the landing (merges small files, expires payloads) if enough batches or commits have been made since
    the last maintenance (kodo_pipeline.upkeep.landing_maintenance.is_due). Stops without an error if another process
    maintains it at the same time, which is possible in an object store.
    """
    landing = request.landing
    if is_due(landing.commits(), request.maintain_every):
        with suppress(LockedError):  # in a store, somebody else maintains it
            maintain(MaintenanceRequest(landing, request.run, policies=payload_policies(request.expansion)))


def _begin(
    request: IngestRequest, last: int, topics: list[FamilyTopic], left: Mapping[str, str]
) -> tuple[int, ClusterClock]:
    """Reads and commits the cursors, before any end is fixed: each message that they show as acknowledged must be among
    the messages that are read later. The cursors of partitions `left` are left out, because nothing of these is read.

    Returns (start time of the run, the cluster's clock). The start, in ms by that clock, is always after `last`, the
    start of the run before, however clocks were set; `lag` in the commit says by how many ms it was moved. Raises
    KodoctlError (K589) on another cluster, or if all partitions were created again since the run before.
    """
    with closing(HttpAdmin(request.connection)) as admin:
        clock = read_clock(admin)
        now = clock.now()
        start = max(now, last + 1)
        rows = read_cursors(admin, request.expansion, request.run, start)
    must_be_same_cluster(request.landing, partition_histories(rows))
    rows = [row for row in rows if partition_name(row["msg_topic"], row["msg_partition"]) not in left]
    looked = request.landing.write_rows(CURSORS, request.run, rows)
    known = ReadingClock(clock.ahead, start - now).to_facts()
    facts = {"begun": start, "topics": [topic.name.full for topic in topics]} | known
    facts |= {"left": dict(left)} if left else {}
    request.landing.commit(LandingCommit(request.run, start, tables={CURSORS.name: looked}, facts=facts))
    return start, clock


def _read_all(
    attempt: _Attempt, looks: Mapping[str, PartitionMetadata], writer: _Writer, left: Collection[str]
) -> None:
    """Lands everything that is stored now: few bytes in this process, else by a stream of Spark's. The stream also
    serves if another ingest may write the checkpoint, or if Spark runs on other machines, since this one may not reach
    the brokers.
    """
    request, spark, options = attempt.request, attempt.spark, attempt.options(looks, left)
    is_here = (spark.sparkContext.master or "").startswith("local")
    if not (attempt.alone and is_here and _read_small(request, options, spark, writer)):
        _stream(request, options, spark, writer)


def _read_small(request: IngestRequest, options: Mapping[str, str], spark: SparkSession, writer: _Writer) -> bool:
    """Lands the messages after the last complete batch in this process, if they are few bytes. Returns False, after
    doing nothing, if they are not, or if there is no such batch.
    """
    checkpoint = StreamCheckpoint(request.landing.checkpoint)
    if (last := checkpoint.last()) is None:
        return False
    stream = EventSource.stream(options)
    if (planned := plan_small(stream, last.offset, request.max_bytes)) is None:
        return False
    end, splits = planned
    if end != last.offset:
        batch = last.following(end, int(time.time() * 1000))
        checkpoint.begin(batch)
        writer.read(spark, stream, splits, batch.number)
        checkpoint.complete(batch)
    return True


def _stream(request: IngestRequest, options: dict[str, str], spark: SparkSession, writer: _Writer) -> None:
    from pyspark.errors import PySparkException

    spark.dataSource.register(EventSource)
    read = spark.readStream.format(EventSource.name()).options(**options).load()
    stream = read.writeStream.foreachBatch(writer.write).trigger(availableNow=True)
    stream = stream.option("checkpointLocation", request.landing.checkpoint.uri)
    for start in range(1, _STARTS + 1):
        query = stream.start()
        try:
            query.awaitTermination()
        except PySparkException as problem:
            if _SLOW_START not in str(problem) or start == _STARTS:
                text = str(problem)
                raise spark_error(text, error("K576", "the ingest failed", words(text))) from None
            writer.again()
        else:
            return
        finally:
            if query.isActive:
                query.stop()


class _Writer:
    """Writer of the batches of one run: it lands and commits each, and calls `report`."""

    def __init__(
        self,
        request: IngestRequest,
        spark: SparkSession,
        report: Callable[[LandingResult], None],
        known: Mapping[int, LandingCommit],
        clock: ClusterClock,
    ) -> None:
        self._request, self._report, self._clock = request, report, clock
        self._known = dict(known)
        self._audit = {topic.name.full for topic in request.expansion.topics if topic.state is None}
        self.cores = spark.sparkContext.defaultParallelism
        self.starts = 0
        self._done: dict[int, LandingResult] = {}

    @property
    def done(self) -> list[LandingResult]:
        """Results of the batches in order; of a batch that came several times, the last one."""
        return [self._done[batch] for batch in sorted(self._done)]

    def again(self) -> None:
        """Prepares a restart of the stream: reads the commits again, and removes the coverage records of the batch that
        was not finished.
        """
        self.starts += 1
        self._known = batches(self._request.landing.recover())
        self._request.landing.work(self._request.run).remove()

    def write(self, messages: DataFrame, batch: int) -> None:
        """Lands a batch of Spark's stream. After a restart Spark repeats it with the same range; it is not landed again
        if it was committed.
        """
        events = messages.coalesce(2 * self.cores)
        self._write(messages.sparkSession, batch, partial(_write_events, self._request.landing, events))

    def read(self, spark: SparkSession, stream: EventStream, splits: Sequence[Split], batch: int) -> None:
        """Lands a batch whose splits this process reads."""
        folder = self._request.landing.table(EVENTS).folder
        self._write(spark, batch, partial(write_splits, stream, splits, folder))

    def _write(self, spark: SparkSession, batch: int, write_events: Callable[[str], tuple[TableFiles, int]]) -> None:
        began = time.monotonic()
        request, landing = self._request, self._request.landing
        if (known := self._known.get(batch)) is not None:
            self._finish(_result(known))
            return
        name = f"{batch:09d}-{request.run}" + (f"-{self.starts}" if self.starts else "")
        work = landing.work(request.run)
        stored, size = write_events(name)
        records = list(work.documents().values())
        if (read := sum(record["rows"] for record in records)) != stored.rows:
            detail = f"batch {batch}: {many(read, 'message')} read, {stored.rows:,} landed"
            raise KodoctlError(error("K576", "the ingest failed", detail))
        audited = any(record["rows"] and record["msg_topic"] in self._audit for record in records)
        moved, unreadable = self._transitions(spark, stored, name, few=size <= FEW_BYTES) if audited else (None, 0)
        coverage = landing.write_rows(
            COVERAGE, name, [{**one, "ingest_run": request.run, "batch": batch} for one in records]
        )
        tables = {EVENTS.name: stored, COVERAGE.name: coverage} | ({TRANSITIONS.name: moved} if moved else {})
        holes = tuple(sorted(one["split_id"] for one in records if not one["full"]))
        facts = {"bytes": size, "holes": list(holes), "unreadable": unreadable}
        commit = LandingCommit(request.run, self._clock.now(), batch, tables, facts)
        self._known[batch] = landing.commit(commit)
        work.remove()
        maintain_if_due(request)
        landed = LandingResult(
            batch,
            stored.rows,
            moved.rows if moved else 0,
            size,
            time.monotonic() - began,
            len(records),
            holes,
            unreadable,
        )
        self._finish(landed)

    def _finish(self, landed: LandingResult) -> None:
        self._done[landed.batch] = landed
        self._report(landed)

    def _transitions(self, spark: SparkSession, events: TableFiles, name: str, *, few: bool) -> tuple[TableFiles, int]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        landing = self._request.landing
        landed = landing.read_files(spark, EVENTS, events.files or (), dated=True)
        bad = Observation()
        read = transitions.audit_messages(landed).observe(bad, F.count_if(transitions.unreadable()).alias("unreadable"))
        moved = landing.write_frame(transitions.transitions(read), TRANSITIONS, name, few=few)
        return moved, int(bad.get["unreadable"])


def _result(landed: LandingCommit) -> LandingResult:
    """Returns the result of a batch that is committed but unknown to Spark. Some of its messages may have been deleted
    from the cluster.
    """
    rows = {name: one.rows for name, one in landed.tables.items()}
    return LandingResult(
        landed.batch or 0,
        rows[EVENTS.name],
        rows.get(TRANSITIONS.name, 0),
        landed.facts["bytes"],
        0.0,
        rows[COVERAGE.name],
        tuple(landed.facts["holes"]),
        landed.facts["unreadable"],
    )


def _write_events(landing: Landing, made: DataFrame, name: str) -> tuple[TableFiles, int]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    stored = landing.write_frame(made.observe(seen, F.sum("size").alias("bytes")), EVENTS, name)
    return stored, int(seen.get["bytes"] or 0)
