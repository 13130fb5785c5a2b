"""status: where the messages of a topology sit right now."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from typing import Annotated

import typer

from kodoctl.cli import wiring
from kodoctl.cli.console import Environment, Paths, command, finish, say
from kodoctl.cli.show import show_lines
from kodoctl.cli.wiring import Target, connects
from kodoctl.errors import ExitCode


class StatusFormat(StrEnum):
    """How a status is printed."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Adds the command of this file."""
    app.command("status")(status)


@command
@connects
def status(
    target: Target,
    paths: Paths = None,
    env: Environment = None,
    exact: Annotated[bool, typer.Option("--exact", help="Count messages, not entries: reads the backlog.")] = False,
    output: Annotated[StatusFormat, typer.Option("--format", help="text or json.")] = StatusFormat.TEXT,
) -> None:
    """Show levels and states with what waits in them. Exit 1 when a declared lane is missing."""
    from kodoctl.pulsar.status import read_status
    from kodoctl.render.status import status_json, status_lines

    with target.session() as session:
        desired = wiring.load_desired(paths, wiring.environment_of(session.connection, env))
        statuses = [read_status(session.admin, expansion, exact=exact) for expansion in desired.expansions]
        shown = wiring.shown_target(session.connection)
    document = status_json(statuses, int(time.time() * 1000))
    if output is StatusFormat.JSON:
        say(json.dumps(document, indent=2))
    else:
        say(f"{shown}\n")
        show_lines(status_lines(document))
    if any(found.missing for found in statuses):
        finish(ExitCode.ERROR)
