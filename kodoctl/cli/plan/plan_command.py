"""plan: the changes that an apply would make on a cluster, or on several, and the data at stake."""

from __future__ import annotations

from typing import Annotated

import typer

from kodoctl.cli.common import plan_options
from kodoctl.cli.common.cluster_results import open_all, shown_targets
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment, Paths, RuleFiles, finish, judging, tell
from kodoctl.cli.plan.plan_views import FormatOption, PlanFormat, show_plan, write_plan
from kodoctl.cli.plan.planning_flow import PlanFlags, plan_all
from kodoctl.documents.plan_actions import UNREAD_CODES
from kodoctl.errors import ExitCode

Detailed = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 2 when there is something to change.")]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        help="Show apart what was edited since this git revision, such as origin/main, and what drifted; its team rules"
        " judge as well.",
        metavar="REF",
    ),
]


@judging
@reaches
def plan(
    reach: TargetClusters,
    paths: Paths = None,
    env: Environment = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Write the plan to this file, for `apply FILE`.", metavar="FILE")
    ] = None,
    output: FormatOption = PlanFormat.TEXT,
    detailed: Detailed = False,
    adopt: plan_options.Adopt = None,
    allow_destroy: plan_options.AllowDestroy = None,
    allow_share: plan_options.AllowShare = None,
    take_over: plan_options.TakeOver = False,
    against: Against = None,
    targets: plan_options.Targets = None,
    excludes: plan_options.Excludes = None,
    rules: RuleFiles = None,
    verbose: plan_options.Verbose = False,
) -> None:
    """Show the changes an apply would make, and data at stake.

    Writes nothing.
    """
    from kodoctl.plan.live.planner import Tolerance

    given = PlanFlags(adopt, allow_destroy, allow_share, take_over, against, targets, excludes, rules or [])
    with open_all(reach.by_context) as sessions:
        tolerance = Tolerance.NONE if reach.several else Tolerance.REDUCED
        fleet = plan_all(sessions, paths, env, given, verbose=verbose, tolerance=tolerance).fleet
        if out is not None:  # before anything is printed: the reader of a pipe may leave early
            write_plan(fleet, out)
        show_plan(fleet, shown_targets(sessions), output, verbose=verbose)
    if out is not None:
        then = "it is refused, to be read only" if fleet.refused else f"carry it out with: kodoctl apply {out}"
        tell(f"Plan written to {out}; {then}")
    if fleet.refused:
        finish(ExitCode.REFUSED)
    if fleet.unreached:
        finish(ExitCode.ERROR)
    if detailed and not fleet.empty:
        finish(ExitCode.CHANGES)
    if detailed and any(one.code in UNREAD_CODES for plan in fleet.plans.values() for one in plan.findings):
        finish(ExitCode.ERROR)  # nobody knows whether a database that was not read would change
