"""Plans as people and programs read them, from a cluster or from a file; and the file itself."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.console import command, say
from kodoctl.cli.plan_files import read_plan_text, write_plan_text
from kodoctl.cli.show import show_lines

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan


class PlanFormat(StrEnum):
    """Views of a plan."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB = "github"


FormatOption = Annotated[PlanFormat, typer.Option("--format", help="How the plan is printed.")]


def register(app: typer.Typer) -> None:
    """Adds the command of this file."""
    app.command("show")(show)


@command
def show(
    file: Annotated[str, typer.Argument(help="A plan file, written by `plan --out`.", metavar="FILE")],
    output: FormatOption = PlanFormat.TEXT,
) -> None:
    """Show a plan file again, in any view. Asks no cluster: what was planned, not what is live now."""
    show_plan(read_plan(file), file, output)


def show_plan(plan: Plan, target: str, output: PlanFormat = PlanFormat.TEXT) -> None:
    """Any view of a plan, drawn from its JSON form; `target` says where it comes from."""
    from kodoctl.plan import document

    data = document.to_json(plan)
    match output:
        case PlanFormat.TEXT:
            from kodoctl.render.plan_text import plan_lines

            show_lines(plan_lines(data, target))
        case PlanFormat.JSON:
            import json

            say(json.dumps(data, indent=2))
        case PlanFormat.MARKDOWN:
            from kodoctl.render.plan_markdown import plan_markdown

            say(plan_markdown(data, target))
        case PlanFormat.HTML:
            from kodoctl.render.plan_html import plan_html

            say(plan_html(data, target))
        case PlanFormat.GITHUB:
            from kodoctl.render.plan_github import plan_github

            say(plan_github(data, target))


def read_plan(file: str) -> Plan:
    """A plan file's plan. Raises UsageError for a file that cannot be read; see kodoctl.plan.document.loads for the rest."""
    from kodoctl.plan import document

    return document.loads(read_plan_text(file, "kodoctl plan"), file)


def write_plan(plan: Plan, out: str) -> None:
    """The plan file, complete or not at all. Raises UsageError."""
    from kodoctl.plan import document

    write_plan_text(document.dumps(plan), out)
