"""Views of plans, from a cluster or from a file; reading and writing of plan files."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kodoctl.cli.common.console import reading, say, say_json
from kodoctl.cli.common.plan_files import read_plan_text, write_plan_text
from kodoctl.cli.common.terminal import show_lines
from kodoctl.errors import UsageError, Where, error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.plan import Plan
    from kodoctl.text.line import Line

D = TypeVar("D")
T = TypeVar("T")


class PlanFormat(StrEnum):
    """Formats in which a plan is printed: text, JSON, Markdown, HTML, annotations of a GitHub job, or a Code Quality
    report of GitLab.
    """

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB = "github"
    GITLAB = "gitlab"


FormatOption = Annotated[PlanFormat, typer.Option("--format", help="How the plan is printed.")]


@reading
def show(
    file: Annotated[str, typer.Argument(help="A plan file, written by `plan --out`.", metavar="FILE")],
    output: FormatOption = PlanFormat.TEXT,
    context: Annotated[
        str | None,
        typer.Option("--context", help="Of a plan over several clusters, this one.", metavar="NAME"),
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Name each of many alike topics.")] = False,
) -> None:
    """Show a plan file again, in any view. Reads no cluster: the view is the plan as made, not the live state."""
    from kodoctl.plan.fleet import ONLY, alone

    found = read_plans(file)
    if context is None:
        show_plan(
            found, {name: f"{file}, context {name}" if name else file for name in found.plans}, output, verbose=verbose
        )
        return
    plans = {} if found.only is not None else found.plans
    if context not in plans:
        known = ", ".join(plans) or "the plan is of one cluster and does not say which context it was"
        raise UsageError(error("K501", "unknown context", f"{context!r}; known: {known}", Where(file)))
    show_plan(alone(plans[context]), {ONLY: f"{file}, context {context}"}, output, verbose=verbose)


def show_plan(
    fleet: FleetPlan, targets: Mapping[str, str], output: PlanFormat = PlanFormat.TEXT, *, verbose: bool = False
) -> None:
    """Prints a plan in one of its formats. `targets`: context -> text about its cluster or file; `verbose`: the text
    names every topic, also those with the same changes, which are otherwise shown as a group.
    """
    from kodoctl.plan import fleet as fleets
    from kodoctl.plan import plan_file

    if fleet.only is not None:
        from kodoctl.render.plan_annotations import plan_github, plan_gitlab
        from kodoctl.render.plan_html import plan_html
        from kodoctl.render.plan_markdown import plan_markdown
        from kodoctl.render.plan_text import plan_lines

        texts = {
            PlanFormat.MARKDOWN: plan_markdown,
            PlanFormat.HTML: plan_html,
            PlanFormat.GITHUB: plan_github,
            PlanFormat.GITLAB: plan_gitlab,
        }
        _show(plan_file.to_json(fleet.only), targets[fleets.ONLY], output, partial(plan_lines, verbose=verbose), texts)
    else:
        from kodoctl.render.fleet_text import fleet_github, fleet_gitlab, fleet_html, fleet_lines, fleet_markdown

        several = {
            PlanFormat.MARKDOWN: fleet_markdown,
            PlanFormat.HTML: fleet_html,
            PlanFormat.GITHUB: fleet_github,
            PlanFormat.GITLAB: fleet_gitlab,
        }
        _show(fleets.to_json(fleet), targets, output, partial(fleet_lines, verbose=verbose), several)


def _show(
    document: D,
    target: T,
    output: PlanFormat,
    lines: Callable[[D, T], Iterable[Line]],
    texts: Mapping[PlanFormat, Callable[[D, T], str]],
) -> None:
    if output is PlanFormat.TEXT:
        show_lines(lines(document, target))
    elif output is PlanFormat.JSON:
        say_json(document)
    else:
        say(texts[output](document, target))


def read_plan(file: str) -> Plan:
    """Reads the plan in a plan file of one cluster. Raises UsageError for a file of several clusters, and the errors of
    `read_plans`.
    """
    found = read_plans(file)
    if found.only is not None:
        return found.only
    names = ", ".join(member.context for member in found.members)
    raise UsageError(error("K548", "one cluster at a time", f"this plan is of several: {names}", Where(file)))


def read_plans(file: str) -> FleetPlan:
    """Reads the plans in a plan file. Raises UsageError if the file cannot be read, RefusedError for another format,
    another version of kodoctl or an edited file, InvalidFileError for any other fault.
    """
    from kodoctl.plan import fleet

    return fleet.loads(read_plan_text(file, "kodoctl plan"), file)


def write_plan(plan: FleetPlan, out: str) -> None:
    """Writes a plan file atomically. Raises UsageError if the file cannot be written, or if it is there and neither
    empty nor a plan of an apply.
    """
    from kodoctl.plan import fleet

    write_plan_text(fleet.dumps(plan), out)
