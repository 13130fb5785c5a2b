"""Command `pipeline convert`: converts a landing of an older kodoctl to Delta tables with today's columns. Starts no
Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_pipeline.landing.command_options import (
    File,
    LandingOption,
    Output,
    PipelineProgress,
    new_run,
    one_expansion,
    spark_settings,
)
from kodoctl.cli.common.console import Environment, command
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import say_folded
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.landing.landing_commits import LandingCommit


@command
def convert(
    topology: File,
    landing: LandingOption = LANDING,
    env: Environment = None,
    output: Output = Format.TEXT,
) -> None:
    """Convert a landing of an older kodoctl into Delta tables.

    They have all columns. Repeat the command after a kill: it continues.
    """
    view = _View(output, new_run())
    view.line("begin", f"Run {view.run}: conversion of a landing of an older kodoctl.", command="convert")
    spark_settings(None, None)  # the same extra has what it needs
    expansion = one_expansion(topology, env)
    from kodo_pipeline.landing.landing_conversion import convert as convert_landing
    from kodo_pipeline.landing.landing_store import Landing

    place = Landing(landing, expansion.name, expansion.topology.environment)
    done = convert_landing(place, view.commit)
    if view.json:
        view.line("end", "", batches=done.batches, rows=done.rows, columns=done.columns, landing=place.root.uri)
        return
    for table, names in done.columns.items():
        say_folded(f"{table}: {', '.join(names)} added, empty in the rows that are there.")
    if not done.batches:
        say_folded(f"{view.seconds:.1f} s: {place.root.uri}")
        return
    what = f"{many(done.batches, 'batch', 'batches')} with {many(done.rows, 'row')}"
    say_folded(f"{what} converted, {view.seconds:.1f} s: {place.root.uri}")
    say_folded("What `pipeline rollup` had counted is counted anew by the next one.")


class _View(PipelineProgress):
    """Progress of a conversion: each batch."""

    def commit(self, commit: LandingCommit) -> None:
        """Prints a batch that is converted."""
        if commit.batch is not None:
            rows = sum(one.rows for one in commit.tables.values())
            self.line("batch", f"Batch {commit.batch}: {many(rows, 'row')}", batch=commit.batch, rows=rows)
