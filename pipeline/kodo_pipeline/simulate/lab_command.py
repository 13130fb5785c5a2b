# adapter: a command line
"""Command `pipeline lab`: replays recorded traffic under another topology file, before it is applied."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodo_pipeline.charts.chart_files import check_drawable, make_folder, say_pictures, write_pictures
from kodo_pipeline.landing.command_options import (
    LandedFlags,
    Output,
    lightly,
    new_run,
    one_expansion,
)
from kodo_pipeline.spark.spark_progress import Bar
from kodoctl.cli.common.console import command, say, tell
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.terminal import show_lines
from kodoctl.errors import UsageError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.simulate.simulation_document import SimulationDocument

Candidate = Annotated[
    str | None,
    typer.Option(
        "--candidate",
        help="The topology file as it would be, or a patch of TOPOLOGY as `recommend` prints it; - is standard input.",
        show_default="none: TOPOLOGY alone is replayed",
        metavar="FILE",
    ),
]
Newest = Annotated[
    int, typer.Option("--messages", help="Replay so many of the newest arrivals of a subscription.", min=1, metavar="N")
]
HandlerTime = Annotated[
    str | None,
    typer.Option(
        "--handler-time",
        help="How long a handler takes.",
        show_default="by tenant, from the workers' records",
        metavar="TIME",
    ),
]
Pictures = Annotated[
    str | None,
    typer.Option("--png", help="Write a chart of each subscription there, too, as a picture.", metavar="FOLDER"),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        help="Handlers at once, in all workers.",
        show_default="`concurrency` times `expected_workers`",
        min=1,
        metavar="N",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Workers that share the lanes, each with an engine of its own.",
        show_default="`expected_workers`",
        min=1,
        max=64,
        metavar="N",
    ),
]
Outages = Annotated[
    list[str] | None,
    typer.Option(
        "--outage",
        help="Put in an outage: so many of the busiest tenants (or tenant=NAME, also several times), whose handlers take"
        " DURATION in STATE and fail. Further parts: outcome=done, begin=TIME, length=TIME. May be there several times.",
        metavar="tenants=N,state=STATE,duration=TIME",
    ),
]


@command
@bundles("asked", LandedFlags)
def lab(
    asked: LandedFlags,
    candidate: Candidate = None,
    outage: Outages = None,
    messages: Newest = 100_000,
    handler_time: HandlerTime = None,
    slots: Slots = None,
    workers: Workers = None,
    png: Pictures = None,
    output: Output = Format.TEXT,
) -> None:
    """Replay landed traffic with other weights, limits or routes.

    Tells how long each tenant would wait, also in an outage. Changes nothing.

    Example: kodoctl pipeline recommend topologies/trade.yaml | kodoctl pipeline lab topologies/trade.yaml --candidate -
    """
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "lab")
    settings = asked.settings()
    if png:
        check_drawable()
        make_folder(Path(png))
    from kodo_pipeline.landing.command_line import duration
    from kodo_pipeline.simulate import job
    from kodo_pipeline.simulate.comparison import document
    from kodo_pipeline.simulate.outage_request import outage_of
    from kodo_pipeline.simulate.simulation_charts import for_chat
    from kodo_pipeline.simulate.simulation_text import lines

    request = job.SimulationRequest(
        messages,
        None if handler_time is None else float(duration("--handler-time", handler_time)),
        slots,
        workers,
        tuple(outage_of(one) for one in outage or ()),
    )
    today = job.Side.of(one_expansion(asked.topology, asked.env))
    then = None if candidate is None else job.candidate(today, *_read_file(candidate))
    if then is not None:
        job.changed_subscriptions(today, then)
    place = asked.place(today.expansion, messages=True)
    with bar.session(lightly(settings, place)) as spark:
        found, notes = job.build_simulations(spark, place, today, then, request)
    total = many(sum(len(one.arrivals) for one in found), "message")
    tell(f"Replaying {total} under {'both files' if then is not None else Path(today.path).name}.")
    made: SimulationDocument = {"run": run, **document(list(job.run_simulations(found, today, then)), notes)}
    pictures = list(for_chat(made)) if png else []
    write_pictures(png or "", pictures)
    if output is Format.JSON:
        say(json.dumps(made, indent=2))
        return
    show_lines(lines(made))
    if png:
        say_pictures(png, pictures)
    tell("Nothing was changed.")


def _read_file(file: str) -> tuple[bytes, str]:
    """Returns the content of `file` and its name for messages. "-" is standard input. Raises UsageError."""
    if file == "-":
        return sys.stdin.buffer.read(), "standard input"
    try:
        return Path(file).read_bytes(), file
    except OSError as problem:
        detail = f"--candidate {file}: {problem.strerror}"
        raise UsageError(error("K805", "the candidate does not fit", detail)) from None
