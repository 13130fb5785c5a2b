"""status: counts of a topology's messages by lane, once or again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, Paths, finish, reading, report, say
from kodoctl.cli.common.terminal import live_screen, show_lines
from kodoctl.errors import ClusterError, ExitCode

if TYPE_CHECKING:
    from kodoctl.status.lane_status import StatusReading


class StatusFormat(StrEnum):
    """Formats in which a status is printed."""

    TEXT = "text"
    JSON = "json"


@reading
@connects
def status(
    target: TargetOptions,
    paths: Paths = None,
    env: Environment = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Count messages, not entries: reads the backlog. Of a batch that is partly acknowledged all count.",
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch/--once", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.5, help="Refresh interval of --watch, in seconds.", metavar="SECONDS")
    ] = 5.0,
    output: Annotated[StatusFormat, typer.Option("--format", help="text or json; watched, a document a line.")] = (
        StatusFormat.TEXT
    ),
) -> None:
    """Show levels and states and their waiting messages.

    Exits 1 when a declared lane is missing (0 with --watch). Marks of producers, which are no messages, are left out.
    """
    from kodoctl.status.lane_status import StatusReading
    from kodoctl.status.status_reader import read_status
    from kodoctl.status.status_text import status_json

    with target.session() as session:
        desired = command_target.load_desired(paths, command_target.environment_of(session.connection, env))
        shown = command_target.shown_target(session.connection)

        def look() -> StatusReading:
            topologies = tuple(read_status(session.admin, expansion, exact=exact) for expansion in desired.expansions)
            return StatusReading(int(time.time() * 1000), topologies)

        snapshot = look()
        if watch:
            _watch(snapshot, look, every, shown, output)
            return
    if output is StatusFormat.JSON:
        say(json.dumps(status_json(snapshot), indent=2))
    else:
        _show(snapshot, shown)
    if any(topology.missing for topology in snapshot.topologies):
        finish(ExitCode.ERROR)


def _show(snapshot: StatusReading, shown: str) -> None:
    from kodoctl.status.status_text import status_lines

    say(f"{shown}\n")
    show_lines(status_lines(snapshot))


def _watch(
    snapshot: StatusReading, look: Callable[[], StatusReading], every: float, shown: str, output: StatusFormat
) -> None:
    """Shows the status every `every` seconds until Ctrl-C: in place on a terminal, otherwise as a block, or as
    a line of JSON.

    A failed reading is reported, and the next one follows all the same: a user may want to watch a broker that
    restarts.
    """
    from kodoctl.status.status_text import status_json, status_lines

    try:
        with live_screen(plain=output is StatusFormat.JSON) as screen:
            while True:
                if output is StatusFormat.JSON:
                    say(json.dumps(status_json(snapshot)))
                else:
                    moment = datetime.fromtimestamp(snapshot.at / 1000).astimezone()
                    screen(f"{shown} at {moment:%H:%M:%S}, every {every:g} s", status_lines(snapshot))
                time.sleep(every)
                try:
                    snapshot = look()
                except ClusterError as problem:
                    report(problem.diagnostics)
    except KeyboardInterrupt:
        return
