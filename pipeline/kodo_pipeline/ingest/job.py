"""ingest: everything the topology's topics hold, landed batch by batch, each batch proved full before it counts."""

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
from kodo_pipeline.source.splits import part_name
from kodo_pipeline.spark.spark_errors import spark_error, words
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, is_due, maintain
from kodoctl.errors import KodoctlError, LockedError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.cluster_clock import ClusterClock, read_clock
from kodoctl.text.formatting import many
from kodoctl.topology.names import State

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
"""Spark's words when the process that plans our stream was not up within 10 s: half a second of the processor for
Spark's own modules, on a busy machine. No setting changes that (PythonWorkerFactory waits so long whatever it is
told); to try again does.
"""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """`max_bytes` of a batch, as stored; `accept_holes`: go on where messages are gone, and
    write down that they are.
    """

    expansion: Expansion
    connection: Connection
    landing: Landing
    run: str
    max_bytes: int
    accept_holes: bool = False
    maintain_every: int = 0


class HolesError(KodoctlError):
    """Partitions were left where they are, because messages behind them may be gone unread; `landed`: batches of all others."""

    def __init__(self, landed: list[LandingResult], holes: Mapping[str, str]) -> None:
        self.landed = landed
        found = [error("K574", "stored messages could not be read", f"{part}: {why}") for part, why in holes.items()]
        super().__init__(*found, error("K574", "stored messages could not be read", _WAY_ON))


_WAY_ON: Final = (
    "all other partitions were read, and are judged. `kodoctl pipeline ingest --accept-holes` reads what these still have, and "
    "writes down what is missing; `kodoctl pipeline write-off` settles the doubt that stays"
)


@dataclass(frozen=True, slots=True)
class LandingResult:
    """A batch, or all of a run: rows of each table, bytes of payloads, seconds; `holes`: ranges that are not full;
    `unreadable`: messages on audit topics that hold no records.
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
    """Returns (existing topics, absent topics) of the topology, in the order in which their ends are fixed. A message
    that moves between two topics while the ends are fixed is then still read in the later topic.
    """
    ordered = sorted(request.expansion.topics, key=lambda topic: _ORDER.index(topic.state))
    with closing(HttpAdmin(request.connection)) as admin:
        known = list(zip(ordered, each_internal_stats(admin, [topic.name for topic in ordered]), strict=True))
    return [one for one, stats in known if stats], [one for one, stats in known if not stats]


def ingest(
    request: IngestRequest, topics: list[FamilyTopic], spark: SparkSession, report: Callable[[LandingResult], None]
) -> list[LandingResult]:
    """Lands all messages that are stored now; `report` is called after each batch. Raises KodoctlError; what is
    complete by then stays. Where messages of some partitions may be gone unread, all others are landed, and then
    HolesError is raised.
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
        landed = _Attempt(rest, topics, spark, report, alone).land(looks, holes)
        landing.end(request.run)
        raise HolesError(landed, holes)


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
        """All that is stored now, but for the partitions that are `left`, with the reason."""
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
        """Partitions behind whose last reading messages may be gone, with the reason; none where a batch is not complete:
        its end is fixed.
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
    """Maintenance between two batches, or at the end of a run, where enough has landed since the last one."""
    landing = request.landing
    if is_due(landing.commits(), request.maintain_every):
        with suppress(LockedError):  # in a store, somebody else maintains it
            maintain(MaintenanceRequest(landing, request.run, policies=payload_policies(request.expansion)))


def _begin(
    request: IngestRequest, last: int, topics: list[FamilyTopic], left: Mapping[str, str]
) -> tuple[int, ClusterClock]:
    """Cursors first: what they say is acknowledged must be found in what is cut later. Nobody looked at the partitions that
    are `left`: behind their cursors nothing is read. Start time of the run, by the
    cluster's clock, and that clock. Runs are in the order of their times, however clocks were set since the `last` one
    began: `lag` says how far the cluster's clock is behind that.
    """
    with closing(HttpAdmin(request.connection)) as admin:
        clock = read_clock(admin)
        now = clock.now()
        start = max(now, last + 1)
        rows = read_cursors(admin, request.expansion, request.run, start)
    must_be_same_cluster(request.landing, partition_histories(rows))
    rows = [row for row in rows if part_name(row["msg_topic"], row["msg_partition"]) not in left]
    looked = request.landing.write_rows(CURSORS, request.run, rows)
    known = ReadingClock(clock.ahead, start - now).to_facts()
    facts = {"begun": start, "topics": [topic.name.full for topic in topics]} | known
    facts |= {"left": dict(left)} if left else {}
    request.landing.commit(LandingCommit(request.run, start, tables={CURSORS.name: looked}, facts=facts))
    return start, clock


def _read_all(
    attempt: _Attempt, looks: Mapping[str, PartitionMetadata], writer: _Writer, left: Collection[str]
) -> None:
    """All that is stored now. By Spark where much is, or another ingest may write the checkpoint at the same time; where
    Spark runs on other machines, this one may have no way to the brokers.
    """
    request, spark, options = attempt.request, attempt.spark, attempt.options(looks, left)
    is_here = (spark.sparkContext.master or "").startswith("local")
    if not (attempt.alone and is_here and _read_small(request, options, spark, writer)):
        _stream(request, options, spark, writer)


def _read_small(request: IngestRequest, options: Mapping[str, str], spark: SparkSession, writer: _Writer) -> bool:
    """True if few bytes are stored behind a batch that is complete: they have been landed, without a stream of Spark's."""
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
    """Lands one batch after another."""

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
        """Each batch once, as it was landed last."""
        return [self._done[batch] for batch in sorted(self._done)]

    def again(self) -> None:
        """Restarts the stream after its last finished batch. Files of the unfinished batch are removed, unless that
        batch was committed.
        """
        self.starts += 1
        self._known = batches(self._request.landing.recover())
        self._request.landing.work(self._request.run).remove()

    def write(self, messages: DataFrame, batch: int) -> None:
        """A batch of Spark's stream: once, or again after a restart, with the same range then."""
        events = messages.coalesce(2 * self.cores)
        self._write(messages.sparkSession, batch, partial(_write_events, self._request.landing, events))

    def read(self, spark: SparkSession, stream: EventStream, splits: Sequence[Split], batch: int) -> None:
        """A batch that this process reads."""
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
