"""drift: manual changes on a cluster, or on several, since the last apply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli.common import plan_options
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment, Paths, finish, judging, report, say, tell
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.plan.planning_flow import PlanFlags, open_all, plan_all, shown_targets
from kodoctl.errors import ExitCode

if TYPE_CHECKING:
    from kodoctl.plan.drift import Drift
    from kodoctl.plan.fleet import FleetPlan


@judging
@reaches
def drift(
    reach: TargetClusters,
    paths: Paths = None,
    env: Environment = None,
    unmanaged: Annotated[
        bool, typer.Option("--unmanaged", help="Objects that no file declares count as drift.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    verbose: plan_options.Verbose = False,
) -> None:
    """Compare the live cluster with the last apply.

    Exits 3 when somebody changed it by hand.
    """
    from kodoctl.plan.drift import split

    with open_all(reach.by_context) as sessions:
        planned = plan_all(sessions, paths, env, PlanFlags(), verbose=verbose)
        found = {name: split(one.plan, one.live, count_unmanaged=unmanaged) for name, one in planned.prepared.items()}
        if output is Format.JSON:
            say(json.dumps(_document(planned.fleet, found), indent=2))
        else:
            _show(planned.fleet, found, shown_targets(sessions))
    if any(one.refused for one in found.values()):
        finish(ExitCode.REFUSED)
    if any(one.drifted for one in found.values()):
        finish(ExitCode.DRIFT)
    if planned.fleet.unreached:
        finish(ExitCode.ERROR)


def _document(fleet: FleetPlan, found: Mapping[str, Drift]) -> Mapping[str, Any]:
    """JSON of the drift of the only cluster, or of each of several."""
    from kodoctl.plan.drift import to_json
    from kodoctl.plan.fleet import ONLY
    from kodoctl.plan.serialization import diagnostic_to_json

    if ONLY in found:
        return to_json(found[ONLY])
    clusters = [
        {
            "context": member.context,
            "drift": to_json(found[member.context]) if member.context in found else None,
            "problems": [diagnostic_to_json(problem) for problem in member.problems],
        }
        for member in fleet.members
    ]
    return {"format_version": 1, "clusters": clusters}


def _show(fleet: FleetPlan, found: Mapping[str, Drift], targets: Mapping[str, str]) -> None:
    """Prints the drift of each cluster, with its context if there are several."""
    from kodoctl.plan.drift import to_json
    from kodoctl.render.drift_text import drift_lines

    for member in fleet.members:
        if member.context not in found:
            tell(f"--- {member.context}: not compared")
            report(member.problems)
            continue
        if member.context:
            say(f"--- {member.context}")
        show_lines(drift_lines(to_json(found[member.context]), targets[member.context]))
