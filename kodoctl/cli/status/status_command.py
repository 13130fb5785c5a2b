"""status: counts of a topology's messages by lane, once or again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.cluster_results import (
    finish_problems,
    load_by_context,
    open_all,
    read_each,
    results_json,
    show_results,
    shown_targets,
)
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment, Paths, finish, reading, report, say
from kodoctl.cli.common.terminal import Screen, live_screen, show_lines
from kodoctl.errors import ClusterError, ExitCode, KodoctlError
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.status.lane_status import StatusReading
    from kodoctl.text.line import Line
    from kodoctl.ui.rate_history import RateHistory

    Snapshot = Mapping[str, StatusReading | KodoctlError]
    """Status of each cluster by context, or the error for which it could not be read."""


class StatusFormat(StrEnum):
    """Values of `--format` of `status`: text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


@reading
@reaches
def status(
    reach: TargetClusters,
    paths: Paths = None,
    env: Environment = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Count messages, not entries: reads the backlog. Of a batch that is partly acknowledged all count.",
        ),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Show every subscription. Of many, those that need a person are shown otherwise."),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch/--once", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[
        float,
        typer.Option("--every", min=0.5, max=86_400, help="Refresh interval of --watch, seconds.", metavar="SECONDS"),
    ] = 5.0,
    output: Annotated[StatusFormat, typer.Option("--format", help="text or json; watched, a document a line.")] = (
        StatusFormat.TEXT
    ),
) -> None:
    """Show levels and states and their waiting messages.

    Exits 1 when a declared lane is missing or cannot be read (0 with --watch). Marks of producers, which are no
    messages, are left out.
    """
    from kodoctl.status.lane_status import StatusReading
    from kodoctl.status.status_reader import read_status

    with open_all(reach.by_context) as sessions:
        desired = load_by_context(sessions, env, lambda environment: command_target.load_desired(paths, environment))
        shown = shown_targets(sessions)

        def look(name: str) -> StatusReading:
            admin = sessions[name].admin
            found = [read_status(admin, one, exact=exact) for one in desired[name].expansions]
            unread = tuple(topic for _, topics in found for topic in topics)
            return StatusReading(int(time.time() * 1000), tuple(status for status, _ in found), unread)

        snapshot = read_each(sessions, look)
        if watch:
            _watch(snapshot, lambda: read_each(sessions, look), every, shown, output, everything=everything)
            return
    if output is StatusFormat.JSON:
        say(json.dumps(_document(snapshot), indent=2))
    else:
        show_results(snapshot, lambda name, one: _show(one, shown[name], everything=everything), "not read")
    finish_problems(snapshot)
    readings = [one for one in snapshot.values() if not isinstance(one, KodoctlError)]
    if any(one.unread or any(topology.missing for topology in one.topologies) for one in readings):
        finish(ExitCode.ERROR)


def _document(snapshot: Snapshot) -> Any:
    from kodoctl.status.status_text import status_json

    return results_json(snapshot, "status", status_json)


def _show(reading: StatusReading, shown: str, *, everything: bool) -> None:
    from kodoctl.status.status_text import status_lines

    say(f"{shown}\n")
    show_lines(status_lines(reading, everything=everything))


def _watch(
    snapshot: Snapshot,
    look: Callable[[], Snapshot],
    every: float,
    shown: Mapping[str, str],
    output: StatusFormat,
    *,
    everything: bool,
) -> None:
    """Shows the status every `every` seconds until Ctrl-C: in place on a terminal, otherwise as a block, or as
    a line of JSON.

    A failed reading is reported on standard error and, with text, above the earlier status, which stays; it has no line
    of JSON. The next one follows all the same: a user may want to watch a broker that restarts.
    """
    from kodoctl.ui.rate_history import RateHistory

    histories = {name: RateHistory(every) for name in snapshot}
    problem: ClusterError | None = None
    try:
        with live_screen(plain=output is StatusFormat.JSON) as screen:
            while True:
                if output is StatusFormat.JSON:
                    if problem is None:
                        say(json.dumps(_document(snapshot)))
                else:
                    for name, one in snapshot.items():
                        if not isinstance(one, KodoctlError):
                            histories[name].add(one)
                    _redraw(screen, snapshot, every, shown, histories, problem, everything=everything)
                time.sleep(every)
                try:
                    snapshot, problem = look(), None
                except ClusterError as failed:
                    problem = failed
                    report(problem.diagnostics)
    except KeyboardInterrupt:
        return


def _redraw(
    screen: Screen,
    snapshot: Snapshot,
    every: float,
    shown: Mapping[str, str],
    histories: Mapping[str, RateHistory],
    problem: ClusterError | None,
    *,
    everything: bool,
) -> None:
    """Shows the status of the only cluster, or the statuses of several below their targets. Each reading has its time.
    `problem`: error of the last reading of the only cluster, which is shown above the earlier status; None: the reading
    did not fail.
    """
    from kodoctl.plan.fleet import ONLY
    from kodoctl.status.status_text import status_lines
    from kodoctl.text.escaping import one_line
    from kodoctl.text.line import Line

    def head(name: str, one: StatusReading) -> str:
        return f"{shown[name]} at {datetime.fromtimestamp(one.at / 1000).astimezone():%H:%M:%S}"

    def lines() -> Iterator[Line]:
        for name, one in snapshot.items():
            if isinstance(one, KodoctlError):
                yield Line(f"--- {name}: not read: {one_line(one, 300)}", "bold red")
            else:
                yield Line(f"--- {head(name, one)}", "bold cyan")
                yield from status_lines(one, histories[name].earlier, everything=everything)
            yield Line()

    only = snapshot.get(ONLY)
    if only is None or isinstance(only, KodoctlError):
        screen(f"{many(len(snapshot), 'cluster')}, every {every:g} s", lines())
    else:
        failed = [] if problem is None else [Line(f"not read since: {one_line(problem, 300)}", "bold red"), Line()]
        status = status_lines(only, histories[ONLY].earlier, everything=everything)
        screen(f"{head(ONLY, only)}, every {every:g} s", [*failed, *status])
