# adapter: runs Spark
"""Run job: for one topology in one Spark session, ingest, then rollup and audit (in parallel if the landing is small),
then the facts of a report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kodo_pipeline.audit.audit_inputs import load_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judged_landing
from kodo_pipeline.ingest import job as ingest_job
from kodo_pipeline.ingest.job import HolesError
from kodo_pipeline.landing.landing_commits import holds_messages, read_at
from kodo_pipeline.report.job import gather_facts
from kodo_pipeline.rollup import job as rollup_job
from kodo_pipeline.spark.concurrent_queries import query_futures
from kodo_pipeline.spark.spark_session import set_light, spark_failures
from kodoctl.errors import KodoctlError, StoppedError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from kodo_pipeline.audit.audit_document import AuditDocument
    from kodo_pipeline.ingest.job import LandingResult
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.report.document import Facts
    from kodo_pipeline.spark.spark_session import SparkSettings
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.topology.expand import Expansion, FamilyTopic

STAGES = ("ingest", "rollup", "audit", "report")


class RunProgress(Protocol):
    """Observer of a run, whose methods are called as the run proceeds, also in threads of the rollup and of Spark."""

    def stage(self, name: str) -> None:
        """Called when a stage begins. `name`: one of STAGES."""

    def topics(self, expansion: Expansion, topics: list[FamilyTopic], absent: list[FamilyTopic]) -> None:
        """Called before the topics of the run are read. Raises ClusterError if the run has no topic to read."""

    def batch(self, landed: LandingResult) -> None:
        """Called after each batch is committed."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Request of a run of one topology. `run`: id of the run; `counted`: a second Landing of the same place, for the
    rollup, which runs in another thread than the audit; `ledger`: address of the recall ledger; `keys`: keys with which
    producers sign, None if none are known here; `max_bytes`, `accept_holes`, `maintain_every`: see
    kodo_pipeline.ingest.job.IngestRequest; `is_report_wanted`: gather the facts of a report; `window`: see
    kodo_pipeline.rollup.job.count.
    """

    run: str
    expansion: Expansion
    connection: Connection
    landing: Landing
    counted: Landing
    ledger: str
    keys: Secret | None
    max_bytes: int
    accept_holes: bool = False
    maintain_every: int = 0
    is_report_wanted: bool = True
    window: int | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run. `facts`: facts of the report, None if none is wanted, or if a step after the audit raised
    `failure`; `landed`: batches; `seconds`: duration of each stage that was completed, in the order of STAGES (in a
    small landing rollup and audit run at the same time); `took`: duration of the run in seconds; `holes`: error that
    names partitions left unread, None if all were read.
    """

    audit: AuditDocument
    facts: Facts | None
    landed: list[LandingResult]
    seconds: dict[str, float]
    took: float = 0.0
    failure: Exception | None = None
    holes: HolesError | None = None


@dataclass(slots=True)
class _Stages:
    """Stages of a run and their seconds. `is_stopped`: True if the run should end before the next stage or batch."""

    progress: RunProgress
    is_stopped: Callable[[], bool]
    seconds: dict[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raises StoppedError if the run should end."""
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
    """Runs all stages: rollup and audit in parallel in a small landing, one after the other in a large one, which each
    needs all of the memory. Raises KodoctlError, and StoppedError between two batches or stages if `is_stopped` returns
    True. The results of completed stages stay. After the audit only a stop is raised: any other error is in
    `RunResult.failure`, so that the verdict is not lost.
    """
    stages, began = _Stages(progress, is_stopped), time.monotonic()
    landing = request.landing
    with stages.of("ingest"):
        set_light(spark, settings, light=landing.is_small())
        landed, holes = _ingest(spark, request, stages)
    is_small = landing.is_small()
    set_light(spark, settings, light=is_small)
    with (
        query_futures(partial(_roll_up, spark, request, stages)) as (rollup,),
        closing(HttpAdmin(request.connection)) as admin,
    ):
        if not is_small:
            wait([rollup])  # else each would have half of the memory
        audit, facts, failure = _judge(spark, request, admin, stages, rollup)
    seconds = {name: stages.seconds[name] for name in STAGES if name in stages.seconds}
    return RunResult(audit, facts, landed, seconds, time.monotonic() - began, failure, holes)


def _roll_up(spark: SparkSession, request: RunRequest, stages: _Stages) -> None:
    landing = request.counted
    with stages.of("rollup"), spark_failures(spark):
        if holds_messages(landing.commits()):
            rollup_job.count(spark, landing, request.expansion, request.run, request.window)


def _judge(
    spark: SparkSession, request: RunRequest, admin: Admin, stages: _Stages, rollup: Future[None]
) -> tuple[AuditDocument, Facts | None, Exception | None]:
    """Audits the landing. Returns (document of the audit, facts of the report or None, error after the audit or None).
    The document has `run`, and `read_at` of the commits that were judged. An error after the audit is returned instead
    of raised, so that the verdict is not lost.
    """
    landing = request.landing
    audit: AuditDocument | None = None
    facts: Facts | None = None
    stages.check()
    stages.progress.stage("audit")
    began = time.monotonic()
    try:
        with spark_failures(spark):
            inputs = load_inputs(spark, landing, request.expansion, admin, request.ledger, request.keys)
            with judged_landing(spark, landing, inputs, AuditOptions(request.run)) as judged:
                audit = {"run": request.run, "read_at": read_at(inputs.snapshot.commits), **judged.document}
                stages.seconds["audit"] = time.monotonic() - began
                rollup.result()
                if request.is_report_wanted:
                    with stages.of("report"):
                        facts = gather_facts(spark, landing, request.expansion, judged)
    except StoppedError:
        raise
    except Exception as problem:
        if audit is None:
            raise
        return audit, facts, problem
    return audit, facts, None


def _ingest(spark: SparkSession, request: RunRequest, stages: _Stages) -> tuple[list[LandingResult], HolesError | None]:
    """Runs the ingest. Returns (batches that landed, error that names the partitions left unread or None). A stop ends
    the stream after a committed batch, and the next run continues after that.
    """
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

    done: dict[int, LandingResult] = {}  # by number, also those of an attempt that ended at holes

    def batch(landed: LandingResult) -> None:
        done[landed.batch] = landed
        stages.progress.batch(landed)
        stages.check()

    try:
        return ingest_job.ingest(wanted, topics, spark, batch), None
    except HolesError as problem:
        return [done[number] for number in sorted(done)], problem
    except KodoctlError:
        stages.check()
        raise
