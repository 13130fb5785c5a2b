"""plan, apply, destroy, drift: the commands that compare files with a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli import command_target, plan_options
from kodoctl.cli.apply_flow import Approval, carry_out, confirm, lock_seconds
from kodoctl.cli.command_target import TargetClusters, TargetOptions, connects, reaches
from kodoctl.cli.plan_views import FormatOption, PlanFormat, read_any_plan, read_plan, show_fleet, show_plan, write_plan
from kodoctl.cli.planning_flow import PlanFlags, prepare_files
from kodoctl.cli.terminal import show_lines
from kodoctl.console import Environment, Paths, command, finish, judging, say, tell
from kodoctl.errors import ExitCode, RefusedError, UsageError, Where, error

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session


class ApplyFormat(StrEnum):
    """Views of an apply."""

    TEXT = "text"
    JSON = "json"


Detailed = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 2 when there is something to change.")]
LockTimeout = Annotated[
    str, typer.Option("--lock-timeout", help="How long to wait for another apply, such as 10m.", metavar="DURATION")
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        help="Show apart what was edited since this git revision, such as origin/main, and what drifted.",
        metavar="REF",
    ),
]
ApplyFormatOption = Annotated[ApplyFormat, typer.Option("--format", help="text, or a stream of JSON lines.")]


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command("plan")(plan)
    app.command("apply")(apply)
    app.command("drift")(drift)
    app.command("destroy")(destroy)


@judging
@reaches
def plan(
    reach: TargetClusters,
    paths: Paths = None,
    env: Environment = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the plan to this file, for `apply FILE`.", metavar="FILE")
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
    verbose: plan_options.Verbose = False,
) -> None:
    """Show what would change on the live cluster, and what data is at stake. Writes nothing."""
    given = PlanFlags(adopt, allow_destroy, allow_share, take_over, against, targets, excludes)
    if reach.several:
        _plan_several(reach, paths, env, given, out=out, output=output, detailed=detailed, verbose=verbose)
        return
    with reach.only().session() as session:
        prepared = prepare_files(session, paths, env, given, verbose=verbose, may_reduce=True)
        if out is not None:  # before anything is printed: the reader of a pipe may leave early
            write_plan(prepared.plan, out)
        show_plan(prepared.plan, command_target.shown_target(session.connection), output)
    if out is not None:
        _tell_written(out, refused=prepared.plan.refused)
    if prepared.plan.refused:
        finish(ExitCode.REFUSED)
    if detailed and not prepared.plan.empty:
        finish(ExitCode.CHANGES)


def _tell_written(out: str, *, refused: bool) -> None:
    then = "it is refused, to be read only" if refused else f"carry it out with: kodoctl apply {out}"
    tell(f"Plan written to {out}; {then}")


def _plan_several(
    reach: TargetClusters,
    paths: list[str] | None,
    env: str | None,
    given: PlanFlags,
    *,
    out: str | None,
    output: PlanFormat,
    detailed: bool,
    verbose: bool,
) -> None:
    from kodoctl.cli.fleet_flow import end_of_plan, open_all, plan_all, shown_targets

    with open_all(reach.targets) as sessions:
        fleet = plan_all(sessions, paths, env, given, verbose=verbose).fleet
        if out is not None:
            write_plan(fleet, out)
        show_fleet(fleet, shown_targets(sessions), output)
    if out is not None:
        _tell_written(out, refused=fleet.refused)
    end_of_plan(fleet, detailed=detailed)


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


@command
@reaches
def apply(
    reach: TargetClusters,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="A plan file, or topology files and folders.", show_default="topologies/", metavar="PATH"),
    ] = None,
    env: Environment = None,
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: plan_options.Confirm = None,
    lock_timeout: LockTimeout = "0s",
    output: ApplyFormatOption = ApplyFormat.TEXT,
    adopt: plan_options.Adopt = None,
    allow_destroy: plan_options.AllowDestroy = None,
    allow_share: plan_options.AllowShare = None,
    take_over: plan_options.TakeOver = False,
    approved: Approved = None,
    resume: Resume = None,
    targets: plan_options.Targets = None,
    excludes: plan_options.Excludes = None,
    verbose: plan_options.Verbose = False,
) -> None:
    """Carry out a reviewed plan file exactly; or plan, show, ask, and carry that out."""
    approval = Approval(auto_approve, confirm_name, lock_seconds(lock_timeout), output is ApplyFormat.JSON, verbose)
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
        from kodoctl.cli.fleet_flow import apply_several

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
    """Plans, shows, asks, and carries out what was shown; `approved`: the plan file that stands for an answer."""
    from kodoctl.plan.ledger_plan import ledger_pending

    reviewed = read_plan(approved) if approved is not None else None
    prepared = prepare_files(session, paths, env, given, verbose=approval.verbose)
    planned = _shown(prepared.plan, session, approval)
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
    """Raises UsageError where flags would allow, or name a part of, what is planned already."""
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


def _shown(planned: Plan, session: Session, approval: Approval) -> Plan:
    """The plan, which people have seen by now. Raises RefusedError for one that may not be carried out."""
    if not approval.json_output:
        show_plan(planned, command_target.shown_target(session.connection))
    if planned.refused:
        raise RefusedError(*(d for d in planned.all_findings() if approval.json_output))
    return planned


def _as_approved(planned: Plan, reviewed: Plan, file: str) -> Plan:
    """The plan made now, if all of it was approved: the file says what may be done, never what is done."""
    from kodoctl.plan.approval import unapproved, with_reviewed_evidence
    from kodoctl.plan.partial_access import refuse_reduced

    if reviewed.refused:
        raise RefusedError(
            error("K536", "this plan is refused", "settle the errors it lists and plan again", Where(file))
        )
    refuse_reduced(reviewed, file)
    if findings := unapproved(planned, reviewed):
        raise RefusedError(*findings)
    return with_reviewed_evidence(planned, reviewed)


def _apply_file(session: Session, file: str, planned: Plan, approval: Approval) -> None:
    """Exactly this plan: bound to the cluster, to the files and to every object it touches."""
    from kodoctl.cli.apply_flow import check_files
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
    """What is left of a plan that was cut off: a journal says so, which is no approval."""
    from kodoctl.planning.undo_planner import prepare_resume

    planned = _shown(prepare_resume(session, command_target.parse_namespace(namespace), destroy), session, approval)
    confirm(session.connection, approval, question="Continue with these changes?")
    carry_out(session, planned, approval, verb="resume")


@command
@connects
def destroy(
    target: TargetOptions,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Topology files whose objects go.", show_default=False, metavar="PATH"),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A topology by name, its file may be gone (repeatable).", metavar="NAME"),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            help="TENANT/NAMESPACE to look in, with --name and without a file (repeatable).",
            metavar="TENANT/NAMESPACE",
        ),
    ] = None,
    env: Environment = None,
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: plan_options.Confirm = None,
    lock_timeout: LockTimeout = "0s",
    output: ApplyFormatOption = ApplyFormat.TEXT,
    allow_destroy: plan_options.AllowDestroy = None,
    verbose: plan_options.Verbose = False,
) -> None:
    """Delete everything a topology created. What it adopted is forgotten, not deleted."""
    from kodoctl.cli.apply_flow import prepare_destroy

    approval = Approval(auto_approve, confirm_name, lock_seconds(lock_timeout), output is ApplyFormat.JSON, verbose)
    with target.session() as session:
        planned = prepare_destroy(session, paths, name, namespace, env, allow_destroy)
        _shown(planned, session, approval)
        if planned.empty:
            if verbose:
                command_target.tell_total(session)
            return
        confirm(session.connection, approval, question="Destroy all of this?")
        carry_out(session, planned, approval, verb="destroy")


@judging
@reaches
def drift(
    reach: TargetClusters,
    paths: Paths = None,
    env: Environment = None,
    unmanaged: Annotated[
        bool, typer.Option("--unmanaged", help="Objects that no file declares count as drift.")
    ] = False,
    output: Annotated[ApplyFormat, typer.Option("--format", help="text or json.")] = ApplyFormat.TEXT,
    verbose: plan_options.Verbose = False,
) -> None:
    """Compare the live cluster with what was applied: exit 3 when somebody changed it by hand."""
    import json

    from kodoctl.plan.drift import split, to_json
    from kodoctl.render.drift_text import drift_lines

    if reach.several:
        from kodoctl.cli.fleet_flow import drift_several

        drift_several(reach, paths, env, unmanaged=unmanaged, json_output=output is ApplyFormat.JSON, verbose=verbose)
        return
    with reach.only().session() as session:
        prepared = prepare_files(session, paths, env, PlanFlags(), verbose=verbose)
        found = split(prepared.plan, prepared.live, count_unmanaged=unmanaged)
        if output is ApplyFormat.JSON:
            say(json.dumps(to_json(found), indent=2))
        else:
            show_lines(drift_lines(to_json(found), command_target.shown_target(session.connection)))
    if found.refused:
        finish(ExitCode.REFUSED)
    if found.drifted:
        finish(ExitCode.DRIFT)
