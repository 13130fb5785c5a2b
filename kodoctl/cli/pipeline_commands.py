"""pipeline ingest: what the topics of a topology hold, landed as tables. Spark is imported when a command runs, never before."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli import wiring
from kodoctl.cli.console import Environment, command, say, tell
from kodoctl.cli.wiring import Target, connects
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.plan.figures import many

if TYPE_CHECKING:
    from kodoctl.pipeline.jobs.ingest import Landed, Request
    from kodoctl.pipeline.landing import Landing
    from kodoctl.pipeline.session import SparkSettings
    from kodoctl.topology.expand import Expansion, FamilyTopic

app = typer.Typer(
    name="pipeline",
    help="What happened to every message, told from the data. Needs the extra: pip install 'kodoctl[spark]'.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
LANDING = ".kodoctl/landing"
STARTS = "Spark takes 5 to 15 s to start."


class Format(StrEnum):
    """Views for people and machines."""

    TEXT = "text"
    JSON = "json"


File = Annotated[str, typer.Argument(help="The topology file.", metavar="TOPOLOGY")]
LandingOption = Annotated[
    str,
    typer.Option(
        "--landing", help="Where tables live: a folder or an object store that Spark can write.", metavar="PATH"
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark's master; without it every core of this machine.", metavar="ADDRESS"),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", help="A setting of Spark's, as spark-submit takes it; may be repeated.", metavar="KEY=VALUE"
    ),
]
MaxBytes = Annotated[int, typer.Option("--max-bytes", help="Bytes a batch reads at most, about.", min=1, metavar="N")]
AcceptHoles = Annotated[
    bool, typer.Option("--accept-holes", help="Go on where messages are gone, and write down that they are missing.")
]
Output = Annotated[Format, typer.Option("--format", help="How progress and result are printed.")]


def register(parent: typer.Typer) -> None:
    """Adds the commands of this file, and of those beside it."""
    from kodoctl.cli import (
        pipeline_audit,
        pipeline_lab,
        pipeline_recall,
        pipeline_recommend,
        pipeline_report,
        pipeline_rollup,
    )

    app.command("ingest")(ingest)
    app.command("rollup")(pipeline_rollup.rollup)
    app.command("recommend")(pipeline_recommend.recommend)
    app.command("lab")(pipeline_lab.lab)
    app.command("audit")(pipeline_audit.audit)
    app.command("report")(pipeline_report.report)
    app.add_typer(pipeline_recall.app)
    parent.add_typer(app)


@app.callback()
def group() -> None:
    """A group, also while it has one command."""


@command
@connects
def ingest(
    target: Target,
    topology: File,
    landing: LandingOption = LANDING,
    env: Environment = None,
    master: Master = None,
    conf: Conf = None,
    max_bytes: MaxBytes = 256 * 1024 * 1024,
    accept_holes: AcceptHoles = False,
    output: Output = Format.TEXT,
) -> None:
    """Land everything the topology's topics hold as tables; the next run goes on behind it."""
    run = new_run()
    view = _View(output, run)
    view.begin("ingest")
    settings = spark_settings(master, conf)
    connection = target.connection()
    expansion = one_expansion(topology, wiring.environment_of(connection, env))
    if connection.broker_url is None:
        detail = "name it with --broker-url, KODOCTL_BROKER_URL or the context's broker_url"
        raise ClusterError(error("K516", "no address of the broker's binary port", detail))
    from kodoctl.pipeline.jobs import ingest as job
    from kodoctl.pipeline.landing import Landing
    from kodoctl.pipeline.session import spark_session

    place = Landing(landing, expansion.name, expansion.topology.environment)
    request = job.Request(expansion, connection, place, run, max_bytes, accept_holes)
    topics, absent = job.present(request)
    view.topics(request, topics, absent)
    with spark_session(settings) as spark:
        done = job.ingest(request, topics, spark, view.batch)
    view.end(done, place.root.uri)


def spark_settings(master: str | None, conf: list[str] | None) -> SparkSettings:
    """How this process gets a session: `spark-submit` tells its child that a gateway is there. Raises UsageError, also where the
    extra is not installed.
    """
    from kodoctl.pipeline.session import SparkSettings, configuration_of, installed

    installed()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted and conf:
        raise UsageError(error("K578", "settings of Spark", "--conf belongs before the program: spark-submit has it"))
    return SparkSettings(master, configuration_of(conf or ()), submitted, environ=dict(os.environ))


def lightly(settings: SparkSettings, place: Landing) -> SparkSettings:
    """The same for a session that reads what has landed there."""
    return replace(settings, light=place.is_small())


def new_run() -> str:
    """The id of a run: runs sort by the time they began."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def one_expansion(path: str, environment: str | None) -> Expansion:
    """The one topology that a file, or a folder with one file, declares. Raises UsageError, InvalidFileError."""
    expansions = wiring.load_desired([path], environment).expansions
    if len(expansions) != 1:
        detail = f"{path} holds {', '.join(one.topology.source.name for one in expansions) or 'none'}: name one file"
        raise UsageError(error("K701", "one topology file needed", detail))
    return next(iter(expansions))


class Progress:
    """Lines on standard error for people, JSON lines with the run's id for machines. A command's own view adds its events."""

    def __init__(self, output: Format, run: str) -> None:
        self.json, self.run, self._began = output is Format.JSON, run, time.monotonic()

    def line(self, event: str, text: str, **facts: Any) -> None:
        """One event."""
        if self.json:
            say(json.dumps({"event": event, "run": self.run, **facts}))
        else:
            tell(text)

    def begin(self, what: str) -> None:
        """Before anything that takes time."""
        self.line("begin", f"Run {self.run}: {what}. {STARTS}", command=what)

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began


class _View(Progress):
    """Batches and the result."""

    def topics(self, request: Request, topics: list[FamilyTopic], absent: list[FamilyTopic]) -> None:
        """What is going to be read."""
        if not topics:
            detail = f"{request.expansion.name} is not applied there: `kodoctl apply` creates its topics"
            raise ClusterError(error("K710", "topic missing", detail))
        missing = f"; {len(absent)} are not on the cluster" if absent else ""
        names = {"topics": [one.name.full for one in topics], "absent": [one.name.full for one in absent]}
        self.line("topics", f"Reading {many(len(topics), 'topic')} of {request.expansion.name}{missing}.", **names)

    def batch(self, landed: Landed) -> None:
        """Each batch that counts."""
        holes = f", {many(len(landed.holes), 'range')} not full" if landed.holes else ""
        text = (
            f"Batch {landed.batch}: {many(landed.events, 'message')}, {many(landed.transitions, 'audit record')}, "
            f"{landed.size / 1e6:.1f} MB in {landed.seconds:.1f} s ({landed.events / max(landed.seconds, 0.001):,.0f}/s){holes}"
        )
        self.line("batch", text, **asdict(landed))

    def end(self, done: list[Landed], where: str) -> None:
        """The result."""
        events, records = sum(one.events for one in done), sum(one.transitions for one in done)
        holes, unreadable = sum(len(one.holes) for one in done), sum(one.unreadable for one in done)
        if self.json:
            totals = {"events": events, "transitions": records, "batches": len(done), "holes": holes}
            self.line("end", "", **totals, unreadable=unreadable, landing=where, seconds=round(self.seconds, 3))
            return
        new = f"{many(events, 'message')} and {many(records, 'audit record')} landed" if events else "Nothing new"
        say(f"{new} in {many(len(done), 'batch', 'batches')}, {self.seconds:.1f} s: {where}")
        if holes:
            say(f"{many(holes, 'range')} could not be read in full; the table `coverage` says which.")
        if unreadable:
            say(f"{many(unreadable, 'message')} on audit topics hold no readable records; they are among the events.")
