"""Command `pipeline maintain`: merges small files of a landing, and removes expired payloads, files that no table
names, and, with `--keep`, old rows of settled messages. Starts no Spark.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.landing.command_options import (
    File,
    LandingOption,
    Output,
    PipelineProgress,
    landed_place,
    new_run,
    one_expansion,
    spark_settings,
)
from kodoctl.cli.common.console import Environment, command
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import say_folded
from kodoctl.cli.letters.recall_options import signing_keys
from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import many
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodo_pipeline.upkeep.landing_maintenance import MaintenanceResult
    from kodo_pipeline.upkeep.row_removal import RemovalPlan

_DAYS = 7  # that the log of a table names what was replaced
_DAY = 86_400_000
Retain = Annotated[
    str,
    typer.Option("--retain", help="How long a replaced file stays for those who read it, 7d at most.", metavar="TIME"),
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        help="Remove rows of settled messages that are older, 1d at least; without it all stay.",
        metavar="TIME",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what --keep would remove, and end.")]


@command
def maintain(
    topology: File,
    landing: LandingOption = LANDING,
    env: Environment = None,
    retain: Retain = "24h",
    keep: Keep = None,
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
) -> None:
    """Keep the landing small.

    Writes one large file for many small ones, shortens logs, and deletes files that no table names and payloads that
    the topology file keeps no longer. With --keep it also removes old rows of settled messages; --dry-run needs --keep.
    """
    hours, age = _hours(retain), None if keep is None else _age(keep)
    if dry_run and age is None:
        detail = "--dry-run shows what --keep TIME would remove: give that"
        raise UsageError(error("K586", "a time that maintenance cannot take", detail))
    view = _View(output, new_run())
    view.line("begin", f"Run {view.run}: maintenance of a landing.", command="maintain")
    spark_settings(None, None)  # the same extra has what it needs
    expansion = one_expansion(topology, env)
    from kodo_pipeline.landing.payload_policy import payload_policies
    from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, record_run
    from kodo_pipeline.upkeep.landing_maintenance import maintain as maintain_landing
    from kodo_pipeline.upkeep.row_removal import finish_removal, plan_removal, removal_time, remove_rows

    place = landed_place(expansion, landing, command_line(topology, env, landing))
    before = 0 if age is None else removal_time(age, int(time.time() * 1000))
    if dry_run:
        view.removal(plan_removal(place, expansion, signing_keys(), before), dry=True)
        return
    with place.alone() as alone, record_run(place, view.run, "maintain", alone=alone):
        if age is not None:
            finish_removal(place, view.run)
            plan = plan_removal(place, expansion, signing_keys(), before)
            remove_rows(place, view.run, plan)
            view.removal(plan, dry=False)
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


def _age(text: str) -> int:
    try:
        found = Duration.parse(text)
    except UnitError as problem:
        raise UsageError(error("K586", "a time that maintenance cannot take", f"--keep {text}: {problem}")) from None
    if found < _DAY:
        detail = f"--keep {text}: rows go by whole days, so give 1d or more"
        raise UsageError(error("K586", "a time that maintenance cannot take", detail))
    return int(found)


class _View(PipelineProgress):
    """Progress of `pipeline maintain`: each table and its removed rows and files."""

    def removal(self, plan: RemovalPlan, *, dry: bool) -> None:
        """Prints the numbers of rows that are, or would be (`dry`), removed, and of those that stay."""
        date = datetime.fromtimestamp(plan.before / 1000, UTC).date().isoformat()
        found = plan.rows
        if self.json:
            figures: dict[str, Any] = {} if found is None else {
                "messages": found.totals.messages, "records": found.totals.records, "left": found.left,
                "files": {name: {"touched": touched, "whole": whole} for name, (touched, whole) in found.files.items()},
            }  # fmt: skip
            self.line("removal", "", before=plan.before, dry_run=dry, why=plan.why, **figures)
            return
        if found is None:
            say_folded(f"No row is removed: {plan.why}.")
            return
        touched, whole = (sum(one[at] for one in found.files.values()) for at in (0, 1))
        what = f"{many(found.totals.messages, 'message')} and {many(found.totals.records, 'record')}"
        would = "would be removed" if dry else "removed"
        say_folded(
            f"{what} of before {date} {would}: {many(whole, 'file')} as a whole, {touched - whole:,} rewritten without them. "
            f"{many(found.left, 'message')} as old {'stays' if found.left == 1 else 'stay'}: not settled, a dead letter, "
            "a producer's mark, or beside such or a younger one."
        )

    def table(self, name: str, before: int, after: int) -> None:
        """Prints how many files the table had and has."""
        text = f"{name}: {many(before, 'file')}" + (f" became {after:,}" if after != before else "")
        self.line("table", text, table=name, before=before, after=after)

    def end(self, done: MaintenanceResult, where: str) -> None:
        """Prints the numbers of files, and of removed payloads and files. `where`: address of the landing."""
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
