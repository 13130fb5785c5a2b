"""Commands on the file alone: lint, expand. They need no cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kodoctl.cli.console import Paths, command, finish, paths_or_default, say
from kodoctl.errors import ExitCode


class LintFormat(StrEnum):
    """Views of lint findings."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command("lint")(lint)


@command
def lint(
    paths: Paths = None,
    output: Annotated[LintFormat, typer.Option("--format", help="How findings are printed.")] = LintFormat.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="REF", help="Compare payload schemas with those of a git revision."),
    ] = None,
) -> None:
    """Check topology files: every finding at once, with file, line and column."""
    from kodoctl.render.findings import RENDERERS
    from kodoctl.topology.lint import lint as run
    from kodoctl.topology.load import read_files

    files = read_files(paths_or_default(paths))
    earlier = None
    if against is not None:
        from kodoctl.cli.git import earlier_payloads

        earlier = earlier_payloads(files, against)
    result = run(files, earlier)
    say(RENDERERS[output.value](result))
    if result.failed or (strict and result.warned):
        finish(ExitCode.ERROR)
