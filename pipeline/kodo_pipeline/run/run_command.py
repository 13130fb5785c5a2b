# adapter: a command line
"""Command `pipeline run`: ingest, rollup, audit and report of topologies in one session, once or at intervals."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kodo_pipeline.landing.command_line import duration
from kodo_pipeline.landing.command_options import Output, new_run, spark_settings, tell_warnings
from kodo_pipeline.run.runner import RunFlags, Runner, RunProgressView
from kodo_pipeline.spark.spark_progress import Bar
from kodoctl.cli.common.command_target import TargetOptions, connects, environment_of
from kodoctl.cli.common.console import command, finish
from kodoctl.cli.common.followed_files import FollowedFiles
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.letters.recall_options import signing_keys
from kodoctl.errors import UsageError, error

Every = Annotated[
    str | None,
    typer.Option("--every", help="Stay up, and begin a run each time this has passed; SIGTERM ends.", metavar="TIME"),
]
RunTimeout = Annotated[
    str | None,
    typer.Option(
        "--run-timeout",
        help="With --every: end a run that has landed no batch and begun no stage for so long; by itself 1h.",
        metavar="TIME",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="With --every: serve metrics and health over HTTP; 0: any free port."
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; there is no password.")]


@command
@connects
@bundles("asked", RunFlags)
def run(
    target: TargetOptions,
    asked: RunFlags,
    every: Every = None,
    run_timeout: RunTimeout = None,
    port: Port = None,
    host: Host = "127.0.0.1",
    output: Output = Format.TEXT,
) -> None:
    """Ingest, roll up, audit and report in one Spark session.

    Exits 0 for no loss, 5 for a loss, 6 for inconclusive.

    Of several topologies each has its own verdict, and the exit code is that of the worst: a loss, then a run that
    failed (its own code), then an inconclusive one.
    """
    from kodo_pipeline.landing.landing_store import must_be_free
    from kodo_pipeline.run.run_service import RUN_TIMEOUT, serve

    interval = None if every is None else duration("--every", every)
    if port is not None and interval is None:
        detail = "--port serves the metrics of a run that goes on: give --every as well"
        raise UsageError(error("K029", "nothing to export to", detail))
    timeout = RUN_TIMEOUT if run_timeout is None else duration("--run-timeout", run_timeout)
    if run_timeout is not None and interval is None:
        detail = "--run-timeout is for the runs of a service: give --every as well"
        raise UsageError(error("K817", "an option of a service", detail))
    bar = Bar(output)
    again = "" if every is None else f" every {every}"
    RunProgressView(output, new_run(), bar).begin(f"run of {', '.join(asked.topologies)}{again}")
    connection, settings = target.connection(), spark_settings(asked.master, asked.conf)
    files = FollowedFiles(
        asked.topologies, environment_of(connection, asked.env), partial(tell_warnings, asked.topologies)
    )
    runner = Runner(asked, connection, settings, signing_keys(), bar, output, files)
    expansions = runner.expansions()
    runner.check(expansions)
    with runner.alone(expansions):
        if interval is not None:
            serve(runner, expansions, interval, (host, port), timeout)
            return
        for one in expansions:
            must_be_free(runner.landing(one))
        with bar.session(runner.settings_for(expansions)) as spark:
            codes = [runner.run(spark, one, several=len(expansions) > 1) for one in expansions]
    finish(worst(codes))


def worst(codes: list[int]) -> int:
    """Combines the exit codes of several runs: that of a loss, else of the first failure, else of an inconclusive run,
    else 0.
    """
    from kodo_pipeline.audit.report import EXIT_CODES
    from kodo_pipeline.audit.verdict import Outcome

    doubt, loss = EXIT_CODES[Outcome.INCONCLUSIVE], EXIT_CODES[Outcome.LOSS]
    return max(codes, key=lambda code: (code == loss, code not in (0, doubt), code == doubt))
