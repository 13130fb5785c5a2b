"""apply: carries out a plan file exactly; or makes a plan, shows it, asks, and carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import (
    Approval,
    applying,
    approval_of,
    carry_out,
    check_files,
    confirm_all,
    show_reviewed,
)
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.cluster_results import open_all, shown_targets
from kodoctl.cli.common.command_target import TargetClusters, TargetOptions, reaches
from kodoctl.cli.common.console import Environment, RuleFiles
from kodoctl.cli.common.options import bundles
from kodoctl.cli.common.plan_files import is_plan_file
from kodoctl.cli.plan.plan_views import read_plans, show_plan
from kodoctl.cli.plan.planning_flow import PlanFlags, plan_all, plan_each
from kodoctl.errors import RefusedError, UsageError, Where, error

if TYPE_CHECKING:
    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.plan import Plan


Approved = Annotated[
    str | None,
    typer.Option(
        "--approved",
        help="Plan anew and carry that out without asking, if this plan file has all of it; else exit 4.",
        metavar="FILE",
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        help="Continue the latest apply of this namespace, which was cut off: its own plan, no other.",
        metavar="TENANT/NAMESPACE",
    ),
]


@applying
@reaches
@bundles("approval", approval_of)
def apply(
    reach: TargetClusters,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="A plan file, or topology files and folders.", show_default="topologies/", metavar="PATH"),
    ] = None,
    env: Environment = None,
    adopt: plan_options.Adopt = None,
    allow_destroy: plan_options.AllowDestroy = None,
    allow_share: plan_options.AllowShare = None,
    take_over: plan_options.TakeOver = False,
    approved: Approved = None,
    resume: Resume = None,
    targets: plan_options.Targets = None,
    excludes: plan_options.Excludes = None,
    rules: RuleFiles = None,
    *,
    approval: Approval,
) -> None:
    """Carry out a reviewed plan file; or plan, show and ask first.

    A plan file is carried out exactly: the file is the approval, and only a protected context is confirmed.
    """
    if resume is not None and paths:
        detail = f"--resume continues the plan in the journal of {resume}: leave {', '.join(paths)} out"
        raise UsageError(error("K428", "a plan file is carried out as it is", detail))
    file = paths[0] if paths and len(paths) == 1 and not approved and is_plan_file(paths[0]) else None
    given = PlanFlags(adopt, allow_destroy, allow_share, take_over, None, targets, excludes, rules or [])
    if file or resume:
        _check_planned(replace(given, destroy=None) if resume else given)
    if resume is not None:
        _resume(reach, resume, approval, allow_destroy or ())
    elif file is not None:
        _apply_file(reach, file, approval.approved)
    else:
        _apply_paths(reach, paths, env, given, approval, approved)


def _apply_paths(  # one for each thing that flags say
    reach: TargetClusters,
    paths: list[str] | None,
    env: str | None,
    given: PlanFlags,
    approval: Approval,
    approved: str | None,
) -> None:
    """Plans, prints the plan, asks for confirmation, and carries the plan out. `approved`: the plan file that
    replaces the confirmation; None: the user confirms.
    """
    from kodoctl.plan.ledger_plan import ledger_pending

    reviewed = read_plans(approved) if approved is not None else None
    with open_all(reach.by_context if reviewed is None else _of_file(reach, reviewed)) as sessions:
        planned = plan_all(sessions, paths, env, given, verbose=approval.verbose)
        fleet = planned.fleet
        show_reviewed(sessions, fleet, approval)
        if reviewed is not None:
            fleet, approval = _fleet_as_approved(fleet, reviewed, str(approved)), approval.approved
        waiting = [
            name
            for name, plan in sorted(fleet.plans.items())
            if not plan.empty or ledger_pending(plan.owners, planned.prepared[name].live)
        ]
        if waiting and not fleet.empty:
            for session in sessions.values() if fleet.only is not None else ():
                if session.client.available:
                    session.client.get()  # whoever has no way to a broker answers no question for nothing
            question = "Apply these changes?" if fleet.only is not None else "Apply these changes to all of them?"
            confirm_all([sessions[name] for name in waiting], approval, question=question)
        elif waiting:  # ledgers alone: only a protected context asks
            confirm_all([sessions[name] for name in waiting], approval.approved, question="")
        carry_out(sessions, fleet, approval, waiting=waiting)


def _check_planned(given: PlanFlags) -> None:
    """Raises UsageError if a flag is given together with a plan file: the plan file already contains its
    choice.
    """
    flags = {
        "--adopt": given.adopt,
        "--allow-destroy": given.destroy,
        "--allow-share": given.share,
        "--take-over": given.take_over,
        "--target": given.targets,
        "--exclude": given.excludes,
        "--rules": given.rules,
    }
    if named := [flag for flag, value in flags.items() if value]:
        detail = f"{' and '.join(named)} {'belongs' if len(named) == 1 else 'belong'} to its plan"
        raise UsageError(error("K428", "a plan file is carried out as it is", detail))


def _fleet_as_approved(fleet: FleetPlan, reviewed: FleetPlan, file: str) -> FleetPlan:
    """Returns the plans that could be made now, each with the evidence that was reviewed for its cluster. Raises
    RefusedError as `_as_approved` does, also for a cluster that could not be planned when the file was made.
    """
    from kodoctl.plan.approval import K544

    absent = [member.context for member in reviewed.unreached if member.context in fleet.plans]
    if absent:
        detail = f"{', '.join(absent)} could not be planned when {file} was made"
        raise RefusedError(error("K544", K544, detail, Where(file)))
    plans = {name: _as_approved(plan, reviewed.plans[name], file) for name, plan in fleet.plans.items()}
    return replace(fleet, members=tuple(replace(member, plan=plans.get(member.context)) for member in fleet.members))


def _as_approved(planned: Plan, reviewed: Plan, file: str) -> Plan:
    """Returns `planned` with the reviewed evidence. Raises RefusedError if the approved plan `reviewed` of the file is
    refused or reduced, or does not contain all of `planned`. The approved plan only limits the changes; it is not
    carried out itself.
    """
    from kodoctl.plan.approval import unapproved_changes, with_reviewed_evidence
    from kodoctl.plan.partial_access import refuse_reduced

    if reviewed.refused:
        raise _plan_refusal(file)
    refuse_reduced(reviewed, file)
    if findings := unapproved_changes(planned, reviewed):
        raise RefusedError(*findings)
    return with_reviewed_evidence(planned, reviewed)


def _apply_file(reach: TargetClusters, file: str, approval: Approval) -> None:
    """Carries out the plans of a file exactly as they are: each is bound to its cluster, to the files and to its
    objects. Only protected contexts are confirmed.
    """
    from kodoctl.plan.fleet import ONLY
    from kodoctl.plan.partial_access import refuse_reduced

    fleet = read_plans(file)
    targets = {name: target for name, target in _of_file(reach, fleet).items() if name in fleet.plans}
    with open_all(targets) as sessions:
        for plan in fleet.plans.values():
            refuse_reduced(plan, file)
        if fleet.only is not None and fleet.refused:
            if not approval.json_output:
                show_plan(fleet, shown_targets(sessions), verbose=approval.verbose)
            raise _plan_refusal(file)
        show_reviewed(sessions, fleet, approval)
        for plan in {plan.digest: plan for plan in fleet.plans.values()}.values():
            check_files(plan)
        waiting = sorted(name for name, plan in fleet.plans.items() if name == ONLY or not plan.empty)
        confirm_all([sessions[name] for name in waiting], approval, question="")
        carry_out(sessions, fleet, approval, waiting=waiting, from_file=True)


def _of_file(reach: TargetClusters, fleet: FleetPlan) -> Mapping[str, TargetOptions]:
    """The target for each context of a plan file. Flags name the cluster of a plan for one; for several, they must name
    the same ones or none. Raises UsageError (K548).
    """
    if fleet.only is not None:
        if reach.several:
            detail = "the plan file is of one cluster: name its context"
            raise UsageError(error("K548", "one cluster at a time", detail))
        return reach.by_context
    names = [member.context for member in fleet.members]
    asked = {target.context for target in reach.targets if target.context}
    if (asked and asked != set(names)) or any(target.admin_url for target in reach.targets):
        detail = f"the plan file is of {', '.join(names)}: without --context and addresses these are taken"
        raise UsageError(error("K548", "other clusters than planned", detail))
    return {name: TargetOptions(name) for name in names}


def _plan_refusal(file: str) -> RefusedError:
    return RefusedError(error("K536", "this plan is refused", "settle the errors it lists and plan again", Where(file)))


def _resume(reach: TargetClusters, namespace: str, approval: Approval, destroy: Sequence[str]) -> None:
    """Shows the rest of the latest apply of each cluster, which was cut off, asks for confirmation, and carries it out:
    a plan from the journal is not approved by anybody.
    """
    from kodoctl.plan.live.undo_planner import prepare_resume

    space = command_target.parse_namespace(namespace)
    with open_all(reach.by_context) as sessions:
        fleet = plan_each(sessions, lambda name: prepare_resume(sessions[name], space, destroy))
        show_reviewed(sessions, fleet, approval)
        confirm_all(sessions.values(), approval, question="Continue with these changes?")
        carry_out(sessions, fleet, approval, verb="resume")
