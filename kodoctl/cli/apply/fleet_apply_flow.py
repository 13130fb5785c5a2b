"""apply over several clusters (`--context a --context b`): one plan, one question, one report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kodoctl.cli.apply.apply_flow import (
    Approval,
    check_files,
    confirm,
    interruptible_apply,
    quiet,
    tell_without_port,
    writes,
)
from kodoctl.cli.apply.apply_progress import ApplyProgress
from kodoctl.cli.apply.apply_report import report_json, show_report
from kodoctl.cli.common import command_target
from kodoctl.cli.plan.fleet_planning_flow import open_all, plan_all, shown_targets
from kodoctl.cli.plan.plan_views import PlanFormat, show_fleet
from kodoctl.cli.plan.planning_flow import PlanFlags
from kodoctl.console import finish, report, say, tell
from kodoctl.errors import ClusterError, ExitCode, KodoctlError, RefusedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.apply.fleet_run import ClusterResult
    from kodoctl.cli.common.command_target import TargetClusters, TargetOptions
    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session


def apply_several(
    reach: TargetClusters,
    read: Plan | FleetPlan | None,
    paths: list[str] | None,
    env: str | None,
    given: PlanFlags,
    approval: Approval,
) -> None:
    """Carries out the command `apply` for several clusters. `read`: the plan that was read from a file; None: plan the
    files in `paths`. Raises UsageError if `read` is the plan of one cluster.
    """
    from kodoctl.plan.plan import Plan

    if read is None:
        with open_all(reach.targets) as sessions:
            _apply_planned(sessions, paths, env, given, approval)
    elif isinstance(read, Plan):
        raise UsageError(error("K548", "one cluster at a time", "the plan file is of one cluster: name its context"))
    else:
        with open_all(_of_file(reach, read)) as sessions:
            _apply_file(sessions, read, approval.approved)


def _of_file(reach: TargetClusters, fleet: FleetPlan) -> list[TargetOptions]:
    """The contexts that a plan file names; flags that name clusters must name the same."""
    names = [member.context for member in fleet.members]
    asked = {target.context for target in reach.targets if target.context}
    if (asked and asked != set(names)) or any(target.admin_url for target in reach.targets):
        detail = f"the plan file is of {', '.join(names)}: without --context and addresses these are taken"
        raise UsageError(error("K548", "other clusters than planned", detail))
    return [command_target.TargetOptions(name) for name in fleet.plans]


def _apply_planned(
    sessions: Mapping[str, Session], paths: list[str] | None, env: str | None, given: PlanFlags, approval: Approval
) -> None:
    """Plans, shows, asks, carries out."""
    from kodoctl.plan.ledger_plan import ledger_pending

    planned = plan_all(sessions, paths, env, given, verbose=approval.verbose)
    waiting = {
        name
        for name, one in planned.prepared.items()
        if not one.plan.empty or ledger_pending(one.plan.owners, one.live)
    }
    _approve_and_carry_out(sessions, planned.fleet, waiting, approval)


def _apply_file(sessions: Mapping[str, Session], fleet: FleetPlan, approval: Approval) -> None:
    """Applies the plans of a file, and no others: each once its topology files are checked against it."""
    known: set[str] = set()
    for plan in fleet.plans.values():
        if not fleet.refused and plan.digest not in known:
            known.add(plan.digest)
            check_files(plan)
    waiting = {name for name, plan in fleet.plans.items() if not plan.empty}
    _approve_and_carry_out(sessions, fleet, waiting, approval)


def _approve_and_carry_out(
    sessions: Mapping[str, Session], fleet: FleetPlan, waiting: set[str], approval: Approval
) -> None:
    if not approval.json_output:
        show_fleet(fleet, shown_targets(sessions), PlanFormat.TEXT)
    if fleet.refused:
        findings = [finding for plan in fleet.plans.values() for finding in plan.all_findings()]
        raise RefusedError(*(findings if approval.json_output else ()))
    if waiting:
        if not fleet.empty:
            _confirm_all([sessions[name] for name in sorted(waiting)], approval)
        _carry_out(sessions, fleet, waiting, approval)
    elif fleet.unreached:
        _tell_unreached(fleet, approval)
        finish(ExitCode.ERROR)


def _confirm_all(sessions: Sequence[Session], approval: Approval) -> None:
    """Each protected context by its name; the others together, once."""
    contexts = [session.connection.context for session in sessions]
    protected = [one for one, context in zip(sessions, contexts, strict=True) if context and context.protected]
    for session in protected:
        confirm(session.connection, approval, question="")
    open_ones = [session for session in sessions if session not in protected]
    if open_ones:
        question = "Apply these changes to all of them?"
        confirm(open_ones[0].connection, approval, question=question)


@writes()
def _carry_out(sessions: Mapping[str, Session], fleet: FleetPlan, waiting: set[str], approval: Approval) -> None:
    from kodoctl.apply.fleet_run import Task, run_fleet
    from kodoctl.apply.run import RunOptions

    tasks = [Task(name, sessions[name], plan) for name, plan in fleet.plans.items() if name in waiting]
    for task in tasks:
        tell_without_port(task.session)
    options = RunOptions(
        command_target.who(), approval.lock_timeout, "apply", command_target.commit_of(tasks[0].plan.paths)
    )
    with interruptible_apply() as stop, ApplyProgress(stream_json=approval.json_output) as progress:
        ended = run_fleet(
            tasks,
            [member.context for member in fleet.unreached],
            options,
            listen=progress.of,
            stop=stop,
            tell=tell if approval.verbose else quiet,
        )
    if not approval.json_output:
        say()
    for one in ended:
        _tell_end(one, json_output=approval.json_output)
    _tell_unreached(fleet, approval)
    _finish(ended, fleet)


def _tell_end(ended: ClusterResult, *, json_output: bool) -> None:
    if ended.report is not None:
        if json_output:
            say(json.dumps({**report_json(ended.report), "context": ended.context}))
        else:
            say(f"--- {ended.context}")
            show_report(ended.report)
        return
    assert ended.problem is not None
    _tell_problem(ended.context, "not applied", ended.problem, json_output=json_output)


def _tell_problem(context: str, what: str, problem: KodoctlError, *, json_output: bool) -> None:
    if json_output:
        from kodoctl.plan.serialization import diagnostic_to_json

        found = [diagnostic_to_json(one) for one in problem.diagnostics]
        say(json.dumps({"type": "error", "context": context, "status": what, "problems": found}))
        return
    tell(f"--- {context}: {what}")
    report(problem.diagnostics)


def _tell_unreached(fleet: FleetPlan, approval: Approval) -> None:
    for member in fleet.unreached:
        problem = ClusterError(*member.problems)
        _tell_problem(member.context, "not planned, not applied", problem, json_output=approval.json_output)
    if fleet.unreached and not approval.json_output:
        say("Running the same command again, once it answers, continues with what is left.")


def _finish(ended: Sequence[ClusterResult], fleet: FleetPlan) -> None:
    """Exits with the code of the fleet's results. A refusal or a held lease comes first: then nothing was
    written anywhere.
    """
    for one in ended:
        if one.problem is not None and one.problem.exit_code != ExitCode.ERROR and not _held_back(one.problem):
            finish(one.problem.exit_code)
    if any(one.report is not None and one.report.interrupted for one in ended):
        finish(ExitCode.INTERRUPTED)
    if fleet.unreached or not all(one.complete for one in ended):
        finish(ExitCode.ERROR)


def _held_back(problem: KodoctlError) -> bool:
    return any(one.code == "K549" for one in problem.diagnostics)
