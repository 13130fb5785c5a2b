# adapter: a command line
"""Runner of `pipeline run`: its options and output, and one run of one topology."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodo_pipeline.audit.command_hint import resend_commands
from kodo_pipeline.charts.chart_files import check_drawable, make_folder, write_pictures
from kodo_pipeline.ingest.ingest_command import AcceptHoles, IngestProgress, MaintainEvery, MaxBytes
from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.landing.command_options import (
    Conf,
    LandingOption,
    Master,
    must_name_broker,
    new_run,
    page_stem,
)
from kodo_pipeline.rollup.rollup_command import Window
from kodo_pipeline.spark.spark_progress import Bar
from kodoctl.cli.common.console import Environment, defect, replace_file, report, say
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import say_folded
from kodoctl.errors import ExitCode, KodoctlError, UsageError, error
from kodoctl.host.private_files import LANDING, LEDGER
from kodoctl.text.formatting import many, time_text

if TYPE_CHECKING:
    from kodo_pipeline.ingest.job import LandingResult
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.run.job import RunResult
    from kodo_pipeline.spark.spark_session import Session, SparkSettings
    from kodoctl.cli.common.followed_files import FollowedFiles
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.topology.expand import Expansion, FamilyTopic

Files = Annotated[list[str], typer.Argument(help="Topology files, or folders of them.", metavar="TOPOLOGY")]
Pictures = Annotated[
    str | None,
    typer.Option(
        "--png",
        help="Write the page's charts as well, as pictures, into FOLDER/TOPOLOGY[-ENVIRONMENT].",
        metavar="FOLDER",
    ),
]
Pages = Annotated[
    str, typer.Option("-o", "--out", help="Folder of the pages, TOPOLOGY[-ENVIRONMENT]-report.html.", metavar="FOLDER")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no page, and gather nothing for one.")]


@dataclass(frozen=True, slots=True)
class RunFlags:
    """Arguments and options of a run, without those of the service (`--every` and the like)."""

    topologies: Files
    landing: LandingOption = LANDING
    env: Environment = None
    master: Master = None
    conf: Conf = None
    max_bytes: MaxBytes = 256 * 1024 * 1024
    accept_holes: AcceptHoles = False
    maintain_every: MaintainEvery = 50
    ledger: LedgerOption = None
    window: Window = None
    out: Pages = "."
    png: Pictures = None
    no_report: NoReport = False


class RunProgressView(IngestProgress):
    """View of one run of one topology. `brief`: print less, for the log of a service; `landed`: called with the number
    of messages of each batch; `got_on`: called with the name of each stage.
    """

    def __init__(
        self,
        output: Format,
        run: str,
        bar: Bar,
        topology: str = "",
        *,
        brief: bool = False,
        landed: Callable[[int], None] = lambda _: None,
        got_on: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(output, run, bar)
        self._facts = {"topology": topology} if topology else {}
        self._brief, self._landed, self._got_on = brief, landed, got_on

    def line(self, event: str, text: str, **facts: Any) -> None:
        """Prints a line as `PipelineProgress.line` does. JSON lines also name the topology."""
        super().line(event, text, **self._facts, **facts)

    def stage(self, name: str) -> None:
        """Reports that a stage begins; JSON output has a line for it."""
        self._got_on(name)
        if self.json:
            self.line("stage", "", stage=name)

    def topics(self, expansion: Expansion, topics: list[FamilyTopic], absent: list[FamilyTopic]) -> None:
        """Prints how many topics the run will read; a brief view prints nothing. Raises ClusterError if the run has no
        topic to read.
        """
        if topics and self._brief:
            return
        super().topics(expansion, topics, absent)

    def batch(self, landed: LandingResult) -> None:
        """Reports a committed batch, and prints it; a brief view prints no empty batch."""
        self._landed(landed.events)
        if landed.events or not self._brief:
            super().batch(landed)

    def verdict(
        self, result: RunResult, page: str | None, topology: str, *, whole: bool, pictures: Path | None = None
    ) -> None:
        """Prints the result: one line, after the whole audit if `whole`; as JSON one object with the whole audit.
        `page`: path of the report, None: no report was written; `pictures`: folder, None: no pictures; in text both are
        printed only with `whole`.
        """
        from kodo_pipeline.audit.audit_text import WHOLE, lines

        took = {stage: round(seconds, 3) for stage, seconds in result.seconds.items()}
        events = sum(one.events for one in result.landed)
        if self.json:
            self.line("verdict", "", verdict=result.audit["verdict"], landed=events, audit=result.audit, page=page,
                      stages=took, seconds=round(result.took, 3))  # fmt: skip
            return
        if whole:
            for line in lines(result.audit):
                (say if line.startswith(WHOLE) else say_folded)(line)  # what is to be copied stays in one piece
            if page:
                say(f"page: {page}")
            if page and pictures:
                say(f"pictures: {pictures}")
        stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in took.items())
        at = f"{time_text(int(time.time() * 1000))} " if self._brief else ""
        say_folded(f"{at}{topology}: {result.audit['verdict']}; {many(events, 'message')} landed; {stages}", 2)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs topologies with the options of one command line. `files`: their files, which a service reads for each run."""

    asked: RunFlags
    connection: Connection
    settings: SparkSettings
    keys: Secret | None
    bar: Bar
    output: Format
    files: FollowedFiles

    def expansions(self) -> list[Expansion]:
        """Reads and expands the topology files, which may have changed since the last run. Raises UsageError,
        InvalidFileError.
        """
        return list(self.files.read().expansions)

    def landing(self, expansion: Expansion) -> Landing:
        """Makes a new Landing object for a topology."""
        from kodo_pipeline.landing.landing_store import Landing

        return Landing(self.asked.landing, expansion.name, expansion.topology.environment)

    def check(self, expansions: list[Expansion]) -> None:
        """Creates the folders of the report, the pictures and the landings. Raises KodoctlError if one of them cannot
        be used, if the broker's address or libraries for the report are missing, or if the window is invalid. Done
        before Spark is started, which takes longer.
        """
        must_name_broker(self.connection)
        if not self.asked.no_report:
            check_drawable()
            make_folder(Path(self.asked.out))
        self.width()
        for one in expansions:
            if (folder := self.pictures(one)) is not None:
                make_folder(folder)
            self.landing(one).check()

    def width(self) -> int | None:
        """Width of the windows in ms; None: that of the counted tables, else 5 minutes. Raises UsageError."""
        from kodo_pipeline.rollup.report import parse_window

        return None if self.asked.window is None else parse_window(self.asked.window)

    def pictures(self, expansion: Expansion) -> Path | None:
        """Folder for a topology's pictures; None if no pictures are wanted."""
        wanted = self.asked.png if not self.asked.no_report else None
        return None if wanted is None else Path(wanted).absolute() / page_stem(expansion)

    @contextmanager
    def alone(self, expansions: list[Expansion]) -> Iterator[None]:
        """Context in which no other process runs these topologies, ensured by locks; without effect for a landing in an
        object store, or on a file system without locks. Raises LockedError.
        """
        with ExitStack() as locks:
            for one in expansions:
                locks.enter_context(self.landing(one).alone("run"))
            yield

    def settings_for(self, expansions: list[Expansion]) -> SparkSettings:
        """Settings of a Spark session for one run: a light session if all landings are small."""
        return replace(self.settings, light=all(self.landing(one).is_small() for one in expansions))

    def run(self, spark: Session, expansion: Expansion, *, several: bool) -> int:
        """Runs a topology, prints the result, and returns the exit code: that of a loss, else of a reported error, else
        of the audit. An error before the verdict that is not a KodoctlError is raised, unless `several`; every other
        one is reported. `several`: other topologies run, too, and the name of this one is printed first.
        """
        from kodo_pipeline.audit.report import EXIT_CODES
        from kodo_pipeline.audit.verdict import Outcome

        if several and self.output is Format.TEXT:
            say(
                f"== {expansion.name}"
                + (f", {expansion.topology.environment}" if expansion.topology.environment else "")
            )
        view = RunProgressView(self.output, new_run(), self.bar, expansion.name)
        result, page, failed = None, None, None
        try:
            result = self.result(spark, expansion, view)
            if result.holes is not None:
                failed = self.failure(result.holes, view)
            page = self.page(result, expansion)
        except Exception as problem:
            if result is None and not several and not isinstance(problem, KodoctlError):
                raise
            known = problem if isinstance(problem, KodoctlError) else KodoctlError(defect(problem))
            failed = self.failure(known, view)
        if result is None:
            return failed or ExitCode.ERROR
        view.verdict(result, page, expansion.name, whole=True, pictures=self.pictures(expansion))
        verdict = Outcome(result.audit["verdict"])
        return EXIT_CODES[verdict] if failed is None or verdict is Outcome.LOSS else failed

    def failure(self, problem: KodoctlError, view: RunProgressView) -> int:
        """Prints an error, and returns its exit code."""
        report(problem.diagnostics)
        if self.output is Format.JSON:
            view.line("failed", "", problems=[problem_json(one) for one in problem.diagnostics])
        return problem.exit_code

    def result(
        self,
        spark: Session,
        expansion: Expansion,
        view: RunProgressView,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> RunResult:
        """Runs all stages of a topology (the report only if one is wanted) and returns the result. Raises KodoctlError
        for a failure before the audit is complete, and StoppedError between two batches or stages if `is_stopped`
        returns True. Two errors are returned instead: partitions left unread are in `RunResult.holes`, and any error
        after the audit, or of the rollup, is in `RunResult.failure`.
        """
        from kodo_pipeline.run.job import RunRequest, run_topology
        from kodo_pipeline.spark.spark_session import spark_failures

        request = RunRequest(
            view.run, expansion, self.connection, self.landing(expansion), self.landing(expansion), self._book,
            self.keys, self.asked.max_bytes, self.asked.accept_holes, self.asked.maintain_every, not self.asked.no_report,
            self.width(),
        )  # fmt: skip
        with spark_failures(spark):
            found = run_topology(spark, self.settings, request, view, is_stopped)
        commands = resend_commands(
            found.audit["lost"], self._typed_command(expansion, self.asked.landing), self._ledger
        )
        return replace(found, audit={**found.audit, "commands": commands})

    @property
    def _book(self) -> str:
        """Address of the recall ledger."""
        return ledger_named(self.asked.ledger, self.asked.landing)

    @property
    def _ledger(self) -> str:
        """Address of the recall ledger for commands to copy; empty for the default one."""
        return "" if self._book == LEDGER else self._book

    def _typed_command(self, expansion: Expansion, landing: str) -> str:
        return command_line(str(expansion.topology.source.path), expansion.topology.environment, landing)

    def page(self, result: RunResult, expansion: Expansion) -> str | None:
        """Writes the report and the pictures, and returns the report's path; None if no report is wanted. Raises
        UsageError, and the error (`RunResult.failure`) that occurred when its facts were gathered.
        """
        if result.failure is not None:
            raise result.failure
        if result.facts is None:
            return None
        from kodo_pipeline.report.document import ReportOrigin, document
        from kodo_pipeline.report.report_html import report_html

        origin = ReportOrigin(
            run=result.audit["run"],
            made_at=int(time.time() * 1000),
            topology=expansion.name,
            environment=expansion.topology.environment,
            file=self._typed_command(expansion, LANDING),
            typed=self._typed_command(expansion, self.asked.landing),
            ledger=self._ledger,
        )
        file = Path(self.asked.out) / f"{page_stem(expansion)}-report.html"
        if file.is_dir():
            raise UsageError(error("K020", "cannot write file", f"{file} is a folder"))
        made = document(origin, result.facts)
        replace_file(file, report_html(made).encode())
        if (folder := self.pictures(expansion)) is not None:
            from kodo_pipeline.report.report_charts import for_chat

            write_pictures(str(folder), list(for_chat(made)))
        return str(file.absolute())


def problem_json(finding: Any) -> dict[str, str]:
    """A diagnostic as an object with `code`, `summary` and `detail`, for JSON lines."""
    return {"code": finding.code, "summary": finding.summary, "detail": finding.detail}
