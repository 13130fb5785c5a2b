"""drift: manual changes on a cluster, or on several, since the last apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import plan_options
from kodoctl.cli.common.cluster_results import finish_problems, open_all, results_json, show_results, shown_targets
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment, Paths, finish, judging, say_json
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.plan.planning_flow import PlanFlags, plan_all
from kodoctl.errors import ClusterError, ExitCode

if TYPE_CHECKING:
    from kodoctl.plan.drift import Drift
    from kodoctl.plan.plan_document import DriftDocument
    from kodoctl.pulsar.session import Session


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

    Exits 3 if somebody changed it by hand, or may have; 4 if something could not
    be compared.
    """
    from kodoctl.plan.drift import split
    from kodoctl.plan.live.planner import Tolerance
    from kodoctl.render.drift_text import drift_lines

    with open_all(reach.by_context) as sessions:
        planned = plan_all(sessions, paths, env, PlanFlags(), verbose=verbose, tolerance=Tolerance.LEFT_OUT)
        found = {name: split(one.plan, one.live, count_unmanaged=unmanaged) for name, one in planned.prepared.items()}
        results = {
            member.context: found[member.context] if member.plan is not None else ClusterError(*member.problems)
            for member in planned.fleet.members
        }
        documents = {
            name: one if isinstance(one, ClusterError) else drift_document(sessions[name], one)
            for name, one in results.items()
        }
        if output is Format.JSON:
            say_json(results_json(documents, "drift", dict))
        else:
            targets = shown_targets(sessions)
            show_results(
                documents,
                lambda name, one: show_lines(drift_lines(one, targets[name], verbose=verbose)),
                "not compared",
            )
    if any(one.refused for one in found.values()):
        finish(ExitCode.REFUSED)
    if any(one.drifted for one in found.values()):
        finish(ExitCode.DRIFT)
    finish_problems(results)


def drift_document(session: Session, found: Drift) -> DriftDocument:
    """The drift of one cluster as JSON, with the number of stored entries that the next apply would deliver again,
    which is read from the cluster (None: it cannot be counted). Blocks; raises no KodoctlError.
    """
    from kodoctl.plan.drift import to_json
    from kodoctl.plan.live.returning_entries import returning_entries

    return to_json(found, returning_entries(session.admin, found.by_hand))
