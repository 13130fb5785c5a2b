# adapter: a command line
"""Command `pipeline report`: writes a report on a landing as one page, and as pictures for a chat."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kodo_pipeline.charts.chart_files import check_drawable, make_folder, say_pictures, write_pictures
from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.landing.command_options import (
    LandedFlags,
    Output,
    lightly,
    new_run,
    one_expansion,
    page_stem,
)
from kodo_pipeline.report.report_document import ReportDocument
from kodo_pipeline.spark.spark_progress import Bar
from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import columns, command, say, tell_wait, write_file
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.plan_files import check_replaceable
from kodoctl.cli.letters.recall_options import signing_keys
from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import LANDING, LEDGER

Out = Annotated[
    str | None,
    typer.Option(
        "-o", "--out", help="The page's file.", show_default="TOPOLOGY[-ENVIRONMENT]-report.html", metavar="FILE"
    ),
]
Pictures = Annotated[
    str | None,
    typer.Option(
        "--png", help="Write the verdict and the charts there, too, as pictures for a chat.", metavar="FOLDER"
    ),
]


@command
@connects
@bundles("asked", LandedFlags)
def report(
    target: TargetOptions,
    asked: LandedFlags,
    out: Out = None,
    png: Pictures = None,
    ledger: LedgerOption = None,
    output: Output = Format.TEXT,
) -> None:
    """Make one page about a landing, for everybody.

    Tells what was lost, what waits, who is slow, failing or noisy, and what to do.
    """
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "report on what was landed")
    settings, keys = asked.settings(), signing_keys()
    check_drawable()
    connection = target.connection()
    expansion = one_expansion(asked.topology, command_target.environment_of(connection, asked.env))
    from kodo_pipeline.report.document import ReportOrigin, document
    from kodo_pipeline.report.job import gather
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

    place = asked.place(expansion)
    book = ledger_named(ledger, asked.landing)
    file = out or f"{page_stem(expansion)}-report.html"
    _writable(file, png)
    with (
        closing(HttpAdmin(connection, waits=WaitMonitor(tell_wait))) as admin,
        bar.session(lightly(settings, place)) as spark,
    ):
        facts = gather(spark, place, expansion, admin, book, keys)
    about = ReportOrigin(
        run=run,
        made_at=int(time.time() * 1000),
        topology=expansion.name,
        environment=expansion.topology.environment,
        file=command_line(asked.topology, asked.env, LANDING),
        typed=asked.typed,
        ledger="" if book == LEDGER else book,
    )
    _write(document(about, facts), file, png, output)


def _writable(file: str, png: str | None) -> None:
    """Makes the folders of the page and the pictures, before Spark takes its time. Raises UsageError if the page cannot
    be written, or would replace a YAML file or a plan.
    """
    check_replaceable(file)
    for folder in (Path(file).parent, *([Path(png)] if png else [])):
        make_folder(folder)
    if Path(file).is_dir():
        raise UsageError(
            error("K020", "cannot write file", f"{file} is a folder: name a file, such as {file}/report.html")
        )


def _write(made: ReportDocument, file: str, png: str | None, output: Format) -> None:
    from kodo_pipeline.report.report_charts import for_chat
    from kodo_pipeline.report.report_html import report_html

    write_file(file, report_html(made).encode())
    pictures = list(for_chat(made)) if png else []
    write_pictures(png or "", pictures)
    if output is Format.JSON:
        say(json.dumps(made, indent=2))
        return
    from kodo_pipeline.report.report_words import headlines
    from kodoctl.text.wrap import fold

    for line in headlines(made):
        for part in fold(line, columns(), 2):
            say(part)
    say(f"page: {Path(file).absolute()}")
    if png:
        say_pictures(png, pictures)
    say(f"run: {made['run']}")
