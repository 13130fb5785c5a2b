"""Command `pipeline ingest`: lands the messages of a topology's topics as tables. Spark is imported only when the
command runs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kodo_pipeline.landing.command_options import (
    Conf,
    File,
    LandingOption,
    Master,
    Output,
    PipelineProgress,
    must_name_broker,
    new_run,
    one_expansion,
    spark_settings,
)
from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, command
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import say_folded
from kodoctl.errors import ClusterError, error
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.ingest.job import LandingResult
    from kodoctl.topology.expand import Expansion, FamilyTopic

MaxBytes = Annotated[int, typer.Option("--max-bytes", help="Bytes a batch reads at most, about.", min=1, metavar="N")]
AcceptHoles = Annotated[
    bool, typer.Option("--accept-holes", help="Go on where messages are gone, and write down that they are missing.")
]
MaintainEvery = Annotated[
    int,
    typer.Option(
        "--maintain-every", help="Batches after which the landing is maintained; 0: never.", min=0, metavar="N"
    ),
]


@command
@connects
def ingest(
    target: TargetOptions,
    topology: File,
    landing: LandingOption = LANDING,
    env: Environment = None,
    master: Master = None,
    conf: Conf = None,
    max_bytes: MaxBytes = 256 * 1024 * 1024,
    accept_holes: AcceptHoles = False,
    maintain_every: MaintainEvery = 50,
    output: Output = Format.TEXT,
) -> None:
    """Land the stored messages of the topics as tables.

    The next run continues where this one ended.
    """
    run = new_run()
    view = IngestProgress(output, run)
    view.begin("ingest")
    settings = spark_settings(master, conf)
    connection = target.connection()
    expansion = one_expansion(topology, command_target.environment_of(connection, env))
    must_name_broker(connection)
    from kodo_pipeline.ingest import job
    from kodo_pipeline.landing.landing_store import Landing, must_be_free

    place = Landing(landing, expansion.name, expansion.topology.environment)
    place.check()
    must_be_free(place)
    request = job.IngestRequest(expansion, connection, place, run, max_bytes, accept_holes, maintain_every)
    topics, absent = job.present(request)
    view.topics(expansion, topics, absent)
    with view.bar.session(settings) as spark:
        done = job.ingest(request, topics, spark, view.batch)
    view.end(done, place.root.uri)


class IngestProgress(PipelineProgress):
    """Progress of an ingest, as text or JSON lines: how many topics it reads (in JSON also which), each batch, the
    result.
    """

    def topics(self, expansion: Expansion, topics: list[FamilyTopic], absent: list[FamilyTopic]) -> None:
        """Prints how many topics will be read, and how many do not exist (`absent`); JSON has their names. Raises
        ClusterError (K710), and prints nothing, if there is none to read.
        """
        if not topics:
            detail = f"{expansion.name} is not applied there: `kodoctl apply FILE` creates its topics"
            raise ClusterError(error("K710", "topic not found", detail))
        missing = f"; {len(absent)} are not on the cluster" if absent else ""
        names = {"topics": [one.name.full for one in topics], "absent": [one.name.full for one in absent]}
        self.line("topics", f"Reading {many(len(topics), 'topic')} of {expansion.name}{missing}.", **names)

    def batch(self, landed: LandingResult) -> None:
        """Prints a batch that was committed."""
        holes = f", {many(len(landed.holes), 'range')} not full" if landed.holes else ""
        what, rate = "no new messages; how far every partition is, is noted,", ""
        if landed.events:
            what = f"{many(landed.events, 'message')}, {many(landed.transitions, 'audit record')}, {landed.size / 1e6:.1f} MB"
            rate = f" ({landed.events / max(landed.seconds, 0.001):,.0f}/s)"
        self.line("batch", f"Batch {landed.batch}: {what} in {landed.seconds:.1f} s{rate}{holes}", **asdict(landed))

    def end(self, done: list[LandingResult], where: str) -> None:
        """Prints the sums over the batches `done` of the run. `where`: address of the landing."""
        events, records = sum(one.events for one in done), sum(one.transitions for one in done)
        holes, unreadable = sum(len(one.holes) for one in done), sum(one.unreadable for one in done)
        if self.json:
            totals = {"events": events, "transitions": records, "batches": len(done), "holes": holes}
            self.line("end", "", **totals, unreadable=unreadable, landing=where, seconds=round(self.seconds, 3))
            return
        landed = f"{many(events, 'message')} and {many(records, 'audit record')} landed in {many(len(done), 'batch', 'batches')}"
        say_folded(f"{landed if events else 'Nothing new'}, {self.seconds:.1f} s: {where}")
        if holes:
            say_folded(f"{many(holes, 'range')} could not be read in full; the table `coverage` says which.")
        if unreadable:
            say_folded(
                f"{many(unreadable, 'message')} on audit topics hold records that cannot be read, or none; all are among the events."
            )
