"""Plans as people and programs read them, from a cluster or from a file; and the file itself."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kodoctl.cli.common.plan_files import read_plan_text, write_plan_text
from kodoctl.cli.common.terminal import show_lines
from kodoctl.console import reading, say
from kodoctl.errors import UsageError, Where, error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.plan import Plan
    from kodoctl.render.line import Line

D = TypeVar("D")
T = TypeVar("T")


class PlanFormat(StrEnum):
    """Views of a plan."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB = "github"


FormatOption = Annotated[PlanFormat, typer.Option("--format", help="How the plan is printed.")]


@reading
def show(
    file: Annotated[str, typer.Argument(help="A plan file, written by `plan --out`.", metavar="FILE")],
    output: FormatOption = PlanFormat.TEXT,
    context: Annotated[
        str | None,
        typer.Option("--context", help="Of a plan over several clusters, this one.", metavar="NAME"),
    ] = None,
) -> None:
    """Show a plan file again, in any view. Reads no cluster: the view is the plan as made, not the live state."""
    from kodoctl.plan.plan import Plan

    found = read_any_plan(file)
    if context is not None:
        plans = {} if isinstance(found, Plan) else found.plans
        if context not in plans:
            known = ", ".join(plans) or "the plan is of one cluster and does not say which context it was"
            raise UsageError(error("K501", "unknown context", f"{context!r}; known: {known}", Where(file)))
        show_plan(plans[context], f"{file}, context {context}", output)
    elif isinstance(found, Plan):
        show_plan(found, file, output)
    else:
        show_fleet(found, {name: f"{file}, context {name}" for name in found.plans}, output)


def show_plan(plan: Plan, target: str, output: PlanFormat = PlanFormat.TEXT) -> None:
    """Prints a plan in one of its formats. `target`: text that says where the plan comes from."""
    from kodoctl.plan import plan_file
    from kodoctl.render.plan_github import plan_github
    from kodoctl.render.plan_html import plan_html
    from kodoctl.render.plan_markdown import plan_markdown
    from kodoctl.render.plan_text import plan_lines

    texts = {PlanFormat.MARKDOWN: plan_markdown, PlanFormat.HTML: plan_html, PlanFormat.GITHUB: plan_github}
    _show(plan_file.to_json(plan), target, output, plan_lines, texts)


def show_fleet(fleet: FleetPlan, targets: Mapping[str, str], output: PlanFormat = PlanFormat.TEXT) -> None:
    """Prints a plan over several clusters in one of its formats. `targets`: context -> text that says where its plan
    comes from.
    """
    from kodoctl.plan import fleet as fleets
    from kodoctl.render.fleet_text import fleet_github, fleet_html, fleet_lines, fleet_markdown

    document = fleets.to_json(fleet)
    texts = {PlanFormat.MARKDOWN: fleet_markdown, PlanFormat.HTML: fleet_html, PlanFormat.GITHUB: fleet_github}
    _show(document, targets, output, fleet_lines, texts)


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
        say(json.dumps(document, indent=2))
    else:
        say(texts[output](document, target))


def read_plan(file: str) -> Plan:
    """Returns the plan of one cluster from a plan file. Raises UsageError if the file cannot be read or is a plan over
    several clusters, and the errors of `kodoctl.plan.plan_file.loads`.
    """
    from kodoctl.plan.plan import Plan

    found = read_any_plan(file)
    if isinstance(found, Plan):
        return found
    names = ", ".join(member.context for member in found.members)
    raise UsageError(error("K548", "one cluster at a time", f"this plan is of several: {names}", Where(file)))


def read_any_plan(file: str) -> Plan | FleetPlan:
    """Returns the plan, of one cluster or over several, from a plan file. Raises UsageError if the file cannot be read,
    and the errors of `loads` in `kodoctl.plan.plan_file` and `kodoctl.plan.fleet`.
    """
    from kodoctl.plan import fleet, plan_file

    text = read_plan_text(file, "kodoctl plan")
    return fleet.loads(text, file) if fleet.is_fleet(text) else plan_file.loads(text, file)


def write_plan(plan: Plan | FleetPlan, out: str) -> None:
    """Writes a plan file, completely or not at all. Raises UsageError if the file cannot be written."""
    from kodoctl.plan import fleet, plan_file

    write_plan_text(fleet.dumps(plan) if isinstance(plan, fleet.FleetPlan) else plan_file.dumps(plan), out)
