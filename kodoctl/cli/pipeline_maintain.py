"""pipeline maintain: small files of a landing become large ones, and what nothing names goes. Starts no Spark."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.options import Format
from kodoctl.cli.pipeline_options import (
    LANDING,
    File,
    LandingOption,
    Output,
    PipelineProgress,
    new_run,
    one_expansion,
    spark_settings,
)
from kodoctl.cli.terminal import say_folded
from kodoctl.console import Environment, command
from kodoctl.errors import UsageError, error
from kodoctl.formatting import many
from kodoctl.pipeline.command_hint import command_line
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodoctl.pipeline.ingest.landing_maintenance import MaintenanceResult

_DAYS = 7  # that the log of a table names what was replaced
Retain = Annotated[
    str,
    typer.Option("--retain", help="How long a replaced file stays for those who read it, 7d at most.", metavar="TIME"),
]


@command
def maintain(
    topology: File,
    landing: LandingOption = LANDING,
    env: Environment = None,
    retain: Retain = "24h",
    output: Output = Format.TEXT,
) -> None:
    """Keep the landing small: one large file for many small ones, short logs, nothing that no table names."""
    hours = _hours(retain)
    view = _View(output, new_run())
    view.line("begin", f"Run {view.run}: maintenance of a landing.", command="maintain")
    spark_settings(None, None)  # the same extra has what it needs
    expansion = one_expansion(topology, env)
    from kodoctl.pipeline.ingest.landing_maintenance import MaintenanceRequest, noted
    from kodoctl.pipeline.ingest.landing_maintenance import maintain as maintain_landing
    from kodoctl.pipeline.ingest.landing_store import Landing, must_hold
    from kodoctl.pipeline.ingest.payload_policy import payload_policies

    place = Landing(landing, expansion.name, expansion.topology.environment)
    must_hold(place, command_line(topology, env, landing))
    with place.alone() as alone, noted(place, view.run, "maintain", alone=alone):
        done = maintain_landing(
            MaintenanceRequest(place, view.run, hours, policies=payload_policies(expansion)), view.table
        )
    view.end(done, place.root.uri)


def _hours(text: str) -> int:
    try:
        found = Duration.parse(text)
    except UnitError as problem:
        raise UsageError(error("K586", "a time that maintenance cannot take", f"--retain {text}: {problem}")) from None
    hours = math.ceil(found / 3_600_000)
    if hours > _DAYS * 24:
        detail = f"--retain {text}: the log names what was replaced for {_DAYS} days, so give 7d or less"
        raise UsageError(error("K586", "a time that maintenance cannot take", detail))
    return hours


class _View(PipelineProgress):
    """Each table, and what was removed."""

    def table(self, name: str, before: int, after: int) -> None:
        """Prints how many files the table had and has."""
        text = f"{name}: {many(before, 'file')}" + (f" became {after:,}" if after != before else "")
        self.line("table", text, table=name, before=before, after=after)

    def end(self, done: MaintenanceResult, where: str) -> None:
        """Prints the sums."""
        before, after = (sum(one[end] for one in done.files.values()) for end in (0, 1))
        if self.json:
            figures = {"removed": done.removed, "freed": done.freed, "expired": done.expired}
            self.line("end", "", before=before, after=after, **figures, landing=where)
            return
        what = (
            f"{many(before, 'file')} became {after:,}" if after != before else f"{many(before, 'file')}, none to join"
        )
        if done.expired:
            say_folded(f"{many(done.expired, 'payload')} removed that the file keeps no longer.")
        gone = f"{many(done.removed, 'file')} that nothing names removed ({done.freed / 1e6:.1f} MB)"
        say_folded(f"{what}; {gone}, {self.seconds:.1f} s: {where}")
