"""drift: manual changes on a cluster, or on several, since the last apply."""

from __future__ import annotations

from typing import Annotated

import typer

from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment, Paths, finish, judging, say
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.plan.planning_flow import PlanFlags, prepare_files
from kodoctl.errors import ExitCode


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
    import json

    from kodoctl.plan.drift import split, to_json
    from kodoctl.render.drift_text import drift_lines

    if reach.several:
        from kodoctl.cli.plan.fleet_planning_flow import drift_several

        drift_several(reach, paths, env, unmanaged=unmanaged, json_output=output is Format.JSON, verbose=verbose)
        return
    with reach.only().session() as session:
        prepared = prepare_files(session, paths, env, PlanFlags(), verbose=verbose)
        found = split(prepared.plan, prepared.live, count_unmanaged=unmanaged)
        if output is Format.JSON:
            say(json.dumps(to_json(found), indent=2))
        else:
            show_lines(drift_lines(to_json(found), command_target.shown_target(session.connection)))
    if found.refused:
        finish(ExitCode.REFUSED)
    if found.drifted:
        finish(ExitCode.DRIFT)
