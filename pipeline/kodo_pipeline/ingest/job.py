"""Ingest job: lands all stored messages of a topology's topics batch by batch. A batch is committed only if its rows
agree with the coverage of its splits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_pipeline.evidence.cluster_check import must_be_same_cluster
from kodo_pipeline.evidence.cursors import last_looks, partition_histories, read_cursors
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.ingest import events, small_batch, transitions
from kodo_pipeline.ingest.event_stream import EventStream
from kodo_pipeline.ingest.ingest_checkpoint import IngestCheckpoint, digest_of
from kodo_pipeline.landing.landing_commits import LandingCommit, TableFiles, batches, last_begin
from kodo_pipeline.landing.landing_store import must_be_same_namespace
from kodo_pipeline.landing.payload_policy import payload_policies
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS
from kodo_pipeline.source.options import connection_options, read_options
from kodo_pipeline.source.partition_stats import each_internal_stats
from kodo_pipeline.spark.spark_errors import spark_error, words
from kodo_pipeline.spark.spark_session import check_file_system
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, is_due, maintain
from kodoctl.errors import KodoctlError, LockedError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.cluster_clock import ClusterClock, read_clock
from kodoctl.pulsar.connection.native_border import NATIVE_VARIABLE
from kodoctl.pulsar.connection.secret import text_of_variable
from kodoctl.text.formatting import many
from kodoctl.topology.names import State, partition_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.source.offsets import Offset
    from kodo_pipeline.source.partition_stats import PartitionMetadata
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.expand import Expansion, FamilyTopic

_END: Final = "end"  # in the facts of a batch's commit
_ORDER: Final = (State.READY, State.RETRYING, State.PENDING, State.BLOCKING, State.DEAD, None)


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
    """Lands all messages that are stored now, and returns the batches; calls `report` after each. The first batch may be
    one that a killed run had committed. `topics`: the existing ones, in the order of `present`.

    Raises KodoctlError; committed batches stay. Raises LockedError at once if an ingest, or a job with the same lock
    such as maintenance, runs; without file locks, as in an object store, only when a batch is begun or committed by
    both. If messages of some partitions may have been deleted unread, and the request does not accept holes, all other
    partitions are landed, and then HolesError is raised. But if the last batch was begun and is not complete, its end
    is fixed: then another KodoctlError (K574) is raised, and the other partitions are not landed.
    """
    landing = request.landing
    with landing.alone() as alone:
        landing.check()
        if landing.root.local is None:
            check_file_system(spark, landing.root.uri)
        known = landing.recover()
        must_be_same_namespace(landing, request.expansion, known)
        landing.sweep(alone=alone)
        landing.start(request.run)
        looks, attempt = last_looks(landing), _Attempt(request, topics, spark, report)
        try:
            return attempt.land(looks)
        except KodoctlError as problem:
            if request.accept_holes or all(one.code != "K574" for one in problem.diagnostics):
                raise
            if not (holes := attempt.holes(looks)):
                raise
        rest = replace(request, run=f"{request.run}-rest")
        landing.start(rest.run)
        _Attempt(rest, topics, spark, report).land(looks, holes)
        landing.end(request.run)
        raise HolesError(holes)


class _Attempt(NamedTuple):
    """One attempt of an ingest, under its own run."""

    request: IngestRequest
    topics: list[FamilyTopic]
    spark: SparkSession
    report: Callable[[LandingResult], None]

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
        _land_batches(self.stream(looks, left), IngestCheckpoint(landing.checkpoint), writer)
        facts = {"begun": start, "ended": clock.now(), "batches": [one.batch for one in writer.done]}
        names = [topic.name.full for topic in self.topics]
        landing.commit(LandingCommit(f"{request.run}-end", start, facts={**facts, "complete": True, "topics": names}))
        maintain_if_due(request)
        landing.end(request.run)
        return writer.done

    def holes(self, looks: Mapping[str, PartitionMetadata]) -> dict[str, str]:
        """Reason by full name of each partition whose messages after the last reading may be gone. Empty if the last
        batch is not complete, because the end of that batch is fixed.
        """
        state = IngestCheckpoint(self.request.landing.checkpoint).state()
        return {} if state.pending is not None else self.stream(looks).holes(state.end)

    def stream(self, looks: Mapping[str, PartitionMetadata], left: Collection[str] = ()) -> EventStream:
        """Makes the stream. `looks`: metadata of partitions by name. `left`: names of the partitions to leave out.
        Raises UsageError for a secret that tasks of Spark could not read.
        """
        request = self.request
        given = connection_options(request.connection) | {
            "topics": ",".join(topic.name.full for topic in self.topics),
            "maxBytesPerTrigger": str(request.max_bytes),
            "coverage": request.landing.work(request.run).uri,
            "failOnDataLoss": str(not request.accept_holes).lower(),
        }
        cores = self.spark.sparkContext.defaultParallelism
        options = read_options(given, cores, text_of_variable(NATIVE_VARIABLE))
        roles, policies = events.roles(request.expansion), payload_policies(request.expansion)
        return EventStream(options, roles, request.run, policies, looks, frozenset(left))


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


def _land_batches(stream: EventStream, checkpoint: IngestCheckpoint, writer: _Writer) -> None:
    """Lands everything that is stored now: first the batch that an earlier run began, to the same end, then further
    ones, of about the size of the request each.
    """
    stream.prepareForTriggerAvailableNow()
    number, last, end = checkpoint.state()
    writer.check_end(number, last)
    while True:
        number += 1
        if end is None:
            if (end := stream.latestOffset(last, stream.getDefaultReadLimit())) == last:
                return
            checkpoint.begin(number, end)
        writer.land(number, stream, last, end)
        checkpoint.complete(number)
        last, end = end, None


class _Writer:
    """Writer of the batches of one run: it lands and commits each, and calls `report`. `done`: results in order."""

    def __init__(
        self,
        request: IngestRequest,
        spark: SparkSession,
        report: Callable[[LandingResult], None],
        known: Mapping[int, LandingCommit],
        clock: ClusterClock,
    ) -> None:
        self._request, self._report, self._clock = request, report, clock
        self._spark, self._known = spark, dict(known)
        self._audit = {topic.name.full for topic in request.expansion.topics if topic.state is None}
        self.done: list[LandingResult] = []

    def check_end(self, batch: int, end: Offset) -> None:
        """Raises KodoctlError (K573) if the batch is committed, and was read to another end than the checkpoint has:
        two runs began it at the same time in a store without locks, and the next batch would leave messages out.
        """
        if (known := self._known.get(batch)) and known.facts.get(_END, digest := digest_of(end)) != digest:
            where = f"{self._request.landing.checkpoint.uri}/offsets/{batch}"
            detail = f"two runs began batch {batch}: {where} is not of the run {known.run}, which committed it; land elsewhere"
            raise KodoctlError(error("K573", "the landing cannot be used", detail))

    def land(self, batch: int, stream: EventStream, start: Offset, end: Offset) -> None:
        """Lands the messages of a batch, which are those behind `start` up to `end`, unless an earlier run has committed
        it. This process reads few bytes; Spark reads more, and all if it runs on other machines, because this one may
        not reach the brokers' binary port.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self.check_end(batch, end)
        if (known := self._known.get(batch)) is not None:
            self._finish(_result(known))
            return
        landing, splits = self._request.landing, [one.value for one in stream.partitions(start, end)]
        is_here = (self._spark.sparkContext.master or "").startswith("local")
        if not splits or (is_here and sum(one.size for one in splits) <= small_batch.FEW_BYTES):
            write_events = partial(small_batch.write_splits, stream, splits, landing.table(EVENTS).folder)
        else:
            tasks = 2 * self._spark.sparkContext.defaultParallelism
            write_events = partial(_write_events, landing, stream.frame(self._spark, splits).coalesce(tasks))
        try:
            self._write(batch, digest_of(end), write_events)
        except (PySparkException, Py4JError) as problem:
            text = str(problem)
            raise spark_error(text, error("K576", "the ingest failed", words(text))) from None

    def _write(self, batch: int, end: str, write_events: Callable[[str], tuple[TableFiles, int]]) -> None:
        began = time.monotonic()
        request, landing = self._request, self._request.landing
        name = f"{batch:09d}-{request.run}"
        work = landing.work(request.run)
        stored, size = write_events(name)
        records = list(work.documents().values())
        if (read := sum(record["rows"] for record in records)) != stored.rows:
            detail = f"batch {batch}: {many(read, 'message')} read, {stored.rows:,} landed"
            raise KodoctlError(error("K576", "the ingest failed", detail))
        audited = any(record["rows"] and record["msg_topic"] in self._audit for record in records)
        moved, unreadable = self._transitions(stored, name, few=size <= small_batch.FEW_BYTES) if audited else (None, 0)
        coverage = landing.write_rows(
            COVERAGE, name, [{**one, "ingest_run": request.run, "batch": batch} for one in records]
        )
        tables = {EVENTS.name: stored, COVERAGE.name: coverage} | ({TRANSITIONS.name: moved} if moved else {})
        holes = tuple(sorted(one["split_id"] for one in records if not one["full"]))
        facts = {"bytes": size, "holes": list(holes), "unreadable": unreadable, _END: end}
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
        self.done.append(landed)
        self._report(landed)

    def _transitions(self, events: TableFiles, name: str, *, few: bool) -> tuple[TableFiles, int]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        landing = self._request.landing
        landed = landing.read_files(self._spark, EVENTS, events.files or (), dated=True)
        bad = Observation()
        read = transitions.audit_messages(landed).observe(bad, F.count_if(transitions.unreadable()).alias("unreadable"))
        moved = landing.write_frame(transitions.transitions(read), TRANSITIONS, name, few=few)
        return moved, int(bad.get["unreadable"])


def _result(landed: LandingCommit) -> LandingResult:
    """Returns the result of a batch that an earlier run committed without recording it as complete. Some of its
    messages may have been deleted from the cluster.
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
