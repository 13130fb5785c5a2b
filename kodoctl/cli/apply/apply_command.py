"""apply: carries out a plan file exactly, or plans, shows, asks, and carries that out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.apply.apply_flow import Approval, applying, approval_of, carry_out, check_files, confirm, shown_plan
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.command_target import TargetClusters, reaches
from kodoctl.cli.common.console import Environment
from kodoctl.cli.common.options import bundles
from kodoctl.cli.plan.plan_views import read_any_plan, read_plan, show_plan
from kodoctl.cli.plan.planning_flow import PlanFlags, prepare_files
from kodoctl.errors import RefusedError, UsageError, Where, error

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session


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
    *,
    approval: Approval,
) -> None:
    """Carry out a reviewed plan file; or plan, show and ask first.

    A plan file is carried out exactly, without a question: the file is the approval.
    """
    file = paths[0] if paths and len(paths) == 1 and paths[0].endswith(".json") and not approved else None
    given = PlanFlags(adopt, allow_destroy, allow_share, take_over, None, targets, excludes)
    if file or resume:
        _check_planned(replace(given, destroy=None) if resume else given)
    if resume is not None:
        with reach.only("--resume").session() as session:
            _resume(session, resume, approval, allow_destroy or ())
        return
    from kodoctl.plan.fleet import FleetPlan

    read = read_any_plan(file) if file is not None else None
    if isinstance(read, FleetPlan) or (reach.several and approved is None):
        from kodoctl.cli.apply.fleet_apply_flow import apply_several

        apply_several(reach, read, paths, env, given, approval)
        return
    with reach.only("--approved").session() as session:
        if read is not None:
            _apply_file(session, str(file), read, approval)
        else:
            _apply_paths(session, paths, env, given, approval, approved)


def _apply_paths(  # one for each thing that flags say
    session: Session,
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

    reviewed = read_plan(approved) if approved is not None else None
    prepared = prepare_files(session, paths, env, given, verbose=approval.verbose)
    planned = shown_plan(prepared.plan, session, approval)
    if reviewed is not None:
        planned, approval = _as_approved(planned, reviewed, str(approved)), approval.approved
    if planned.empty and not ledger_pending(planned.owners, prepared.live):
        return
    if not planned.empty:
        if session.client.available:
            session.client.get()  # whoever has no way to a broker answers no question for nothing
        confirm(session.connection, approval, question="Apply these changes?")
    carry_out(session, planned, approval)


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
    }
    if named := [flag for flag, value in flags.items() if value]:
        detail = f"{' and '.join(named)} {'belongs' if len(named) == 1 else 'belong'} to its plan"
        raise UsageError(error("K428", "a plan file is carried out as it is", detail))


def _as_approved(planned: Plan, reviewed: Plan, file: str) -> Plan:
    """The plan made now, if the approved plan contains all of it. The approved file limits the changes; it is
    not carried out itself.
    """
    from kodoctl.plan.approval import unapproved_changes, with_reviewed_evidence
    from kodoctl.plan.partial_access import refuse_reduced

    if reviewed.refused:
        raise RefusedError(
            error("K536", "this plan is refused", "settle the errors it lists and plan again", Where(file))
        )
    refuse_reduced(reviewed, file)
    if findings := unapproved_changes(planned, reviewed):
        raise RefusedError(*findings)
    return with_reviewed_evidence(planned, reviewed)


def _apply_file(session: Session, file: str, planned: Plan, approval: Approval) -> None:
    """Exactly this plan: bound to the cluster, to the files and to every object it touches."""
    from kodoctl.plan.partial_access import refuse_reduced

    refuse_reduced(planned, file)
    if not approval.json_output:
        show_plan(planned, command_target.shown_target(session.connection))
    if planned.refused:
        raise RefusedError(
            error("K536", "this plan is refused", "settle the errors it lists and plan again", Where(file))
        )
    check_files(planned)
    confirm(session.connection, approval.approved, question="")
    carry_out(session, planned, approval)


def _resume(session: Session, namespace: str, approval: Approval, destroy: Sequence[str]) -> None:
    """The rest of a plan that was cut off, confirmed and carried out: the journal that has it is no approval."""
    from kodoctl.plan.live.undo_planner import prepare_resume

    rest = prepare_resume(session, command_target.parse_namespace(namespace), destroy)
    planned = shown_plan(rest, session, approval)
    confirm(session.connection, approval, question="Continue with these changes?")
    carry_out(session, planned, approval, verb="resume")
