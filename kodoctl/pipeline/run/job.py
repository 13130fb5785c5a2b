"""Run job: ingest, rollup, audit and report of one topology, one after another in one Spark session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kodoctl.errors import KodoctlError, StoppedError, error
from kodoctl.pipeline.audit.audit_inputs import load_and_classify, with_ledger_note
from kodoctl.pipeline.audit.incremental_audit import AuditOptions, run_audit
from kodoctl.pipeline.ingest import job as ingest_job
from kodoctl.pipeline.ingest.landing_commits import holds_messages, read_at
from kodoctl.pipeline.report.job import gather_facts
from kodoctl.pipeline.rollup import job as rollup_job
from kodoctl.pipeline.spark.spark_session import set_light
from kodoctl.pulsar.admin_http import HttpAdmin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kodoctl.documents.audit_document import AuditDocument
    from kodoctl.pipeline.ingest.job import LandingResult
    from kodoctl.pipeline.ingest.landing_store import Landing
    from kodoctl.pipeline.report.document import Facts
    from kodoctl.pipeline.spark.spark_session import SparkSettings
    from kodoctl.pulsar.admin import Admin
    from kodoctl.pulsar.connection import Connection
    from kodoctl.pulsar.secret import Secret
    from kodoctl.topology.expand import Expansion, FamilyTopic

STAGES = ("ingest", "rollup", "audit", "report")


class RunProgress(Protocol):
    """What is notified while a run goes on."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def topics(self, expansion: Expansion, topics: list[FamilyTopic], absent: list[FamilyTopic]) -> None:
        """What is going to be read. Raises ClusterError where there is none."""

    def batch(self, landed: LandingResult) -> None:
        """A batch counts."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run of one topology. `ledger`: of recalls; `keys`: that producers sign with; `max_bytes`, `accept_holes` and
    `maintain_every`: see kodoctl.pipeline.ingest.job.IngestRequest. `is_report_wanted`: with all that a page shows.
    """

    run: str
    expansion: Expansion
    connection: Connection
    landing: Landing
    ledger: str
    keys: Secret | None
    max_bytes: int
    accept_holes: bool = False
    maintain_every: int = 0
    is_report_wanted: bool = True


@dataclass(frozen=True, slots=True)
class RunResult:
    """`facts`: of the page; None where none is wanted. `landed`: batches; `seconds`: of each stage. `read_at`: start time
    of the ingest, ms since the epoch.
    """

    audit: AuditDocument
    facts: Facts | None
    landed: list[LandingResult]
    seconds: dict[str, float]
    read_at: int


@dataclass(slots=True)
class _Stages:
    """Stages of a run and their times. `is_stopped`: the run is to end before the next stage, or batch."""

    progress: RunProgress
    is_stopped: Callable[[], bool]
    seconds: dict[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raises StoppedError when it is to end."""
        if self.is_stopped():
            raise StoppedError(error("K815", "the run was stopped", "what is complete stays; the next run goes on"))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self.check()
        self.progress.stage(name)
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began


def run_topology(
    spark: SparkSession,
    settings: SparkSettings,
    request: RunRequest,
    progress: RunProgress,
    is_stopped: Callable[[], bool] = lambda: False,
) -> RunResult:
    """All stages. Raises KodoctlError; StoppedError between two batches or stages when `is_stopped` says so. What a stage
    has completed stays.
    """
    stages = _Stages(progress, is_stopped)
    expansion, landing = request.expansion, request.landing
    with stages.of("ingest"):
        set_light(spark, settings, light=landing.is_small())
        landed = _ingest(spark, request, stages)
    set_light(spark, settings, light=landing.is_small())
    with stages.of("rollup"):
        if holds_messages(landing.commits()):
            rollup_job.count(spark, landing, expansion, request.run)
    with closing(HttpAdmin(request.connection)) as admin:
        audit, facts = _judge(spark, request, admin, stages)
    at = read_at(landing.commits())
    return RunResult({"run": request.run, "read_at": at, **audit}, facts, landed, stages.seconds, at)


def _judge(
    spark: SparkSession, request: RunRequest, admin: Admin, stages: _Stages
) -> tuple[AuditDocument, Facts | None]:
    """The audit, and what a page is made of. A page needs the fate of each message; without one, what is new and what is
    open is judged.
    """
    expansion, landing = request.expansion, request.landing
    stages.check()
    stages.progress.stage("audit")
    began = time.monotonic()
    if not request.is_report_wanted:
        options = AuditOptions(request.run)
        found = run_audit(spark, landing, expansion, admin, request.ledger, request.keys, options)
        stages.seconds["audit"] = time.monotonic() - began
        return found, None
    with load_and_classify(spark, landing, expansion, admin, request.ledger, request.keys) as judged:
        audit = with_ledger_note(judged.document(), request.ledger)
        stages.seconds["audit"] = time.monotonic() - began
        with stages.of("report"):
            return audit, gather_facts(spark, landing, expansion, judged, audit)


def _ingest(spark: SparkSession, request: RunRequest, stages: _Stages) -> list[LandingResult]:
    """Behind a batch that counts it may be stopped: Spark ends the stream, and the next run takes the batch as it is."""
    wanted = ingest_job.IngestRequest(
        request.expansion,
        request.connection,
        request.landing,
        request.run,
        request.max_bytes,
        request.accept_holes,
        request.maintain_every,
    )
    topics, absent = ingest_job.present(wanted)
    stages.progress.topics(request.expansion, topics, absent)

    def batch(landed: LandingResult) -> None:
        stages.progress.batch(landed)
        stages.check()

    try:
        return ingest_job.ingest(wanted, topics, spark, batch)
    except KodoctlError:
        stages.check()
        raise
