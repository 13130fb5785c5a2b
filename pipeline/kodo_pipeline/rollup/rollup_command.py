# adapter: a command line
"""Command `pipeline rollup`: counts landed messages in windows of time, for questions about tenants, lanes and
latencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodo_pipeline.landing.command_options import (
    LandedFlags,
    Output,
    PipelineProgress,
    lightly,
    new_run,
    one_expansion,
)
from kodo_pipeline.rollup.rollup_document import RollupDocument
from kodoctl.cli.common.console import command
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.terminal import say_folded, show_lines
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.rollup.job import RollupResult, RollupScope

Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        help="Width of the windows, a whole part of a day; another one than before counts everything anew.",
        show_default="5 minutes, or what the tables have",
        metavar="TIME",
    ),
]


@command
@bundles("asked", LandedFlags)
def rollup(
    asked: LandedFlags,
    window: Window = None,
    output: Output = Format.TEXT,
) -> None:
    """Count landed messages by window, lane and tenant.

    Counts arrivals, done, failed and over limit, and shows latencies.
    """
    view = _View(output, new_run())
    view.begin("rollup")
    settings = asked.settings()
    from kodo_pipeline.landing.landing_commits import ROLLUP_RUN
    from kodo_pipeline.landing.landing_store import must_be_free
    from kodo_pipeline.rollup import job
    from kodo_pipeline.rollup.report import parse_window
    from kodo_pipeline.rollup.summary import summary

    width = None if window is None else parse_window(window)
    expansion = one_expansion(asked.topology, asked.env)
    place = asked.place(expansion, messages=True)
    must_be_free(place, ROLLUP_RUN)
    with view.bar.session(lightly(settings, place)) as spark:
        done = job.count(spark, place, expansion, view.run, width, view.work)
        tables = job.counted_tables(spark, place)
        found = summary(tables.rollup, tables.latencies, tables.window, tables.bounds)
    view.end(done, found, place.root.uri)


class _View(PipelineProgress):
    """Progress of a count, and its tables."""

    def work(self, work: RollupScope) -> None:
        """Prints how many batches are going to be counted, and why."""
        batches = many(work.fresh, "batch", "batches")
        why = "an older kodoctl counted less" if work.is_upgrade else "windows were of another width"
        everything = f"Counting everything anew, {batches}: {why}." if work.anew else None
        text = everything or (f"Counting {batches} that landed since." if work.fresh else "Nothing landed since.")
        self.line("work", text, batches=work.fresh, anew=work.anew, window_ms=work.window)

    def end(self, done: RollupResult, found: RollupDocument, where: str) -> None:
        """Prints the figures, as a table or as a line of JSON for each lane and tenant."""
        if self.json:
            for lane in found["lanes"]:
                self.line("lane", "", **lane)
            for tenant in found["tenants"]:
                self.line("tenant", "", **tenant)
            totals = {name: value for name, value in found.items() if name not in ("lanes", "tenants")}
            days = {"batches": done.batches, "days": list(done.days)}
            self.line("end", "", **totals, **days, landing=where, seconds=round(self.seconds, 3))
            return
        from kodo_pipeline.rollup.rollup_text import lines

        show_lines(lines(found))
        extent = f"{many(len(done.days), 'day')} counted anew" if done.days else "Nothing new"
        say_folded(f"{extent}, {self.seconds:.1f} s: {where}/rollup, latencies, sent, failures")
