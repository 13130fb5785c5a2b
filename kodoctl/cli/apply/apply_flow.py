"""Steps that all applying commands share: show the plan, ask for confirmation, compare the plan with the files, carry
it out, report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from kodoctl.cli.apply.apply_progress import ApplyProgress
from kodoctl.cli.apply.apply_report import show_problem, show_result
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.cluster_results import shown_targets
from kodoctl.cli.common.console import command, finish, is_terminal, one_line, say, tell
from kodoctl.cli.common.options import Format, parse_duration
from kodoctl.cli.common.protected_contexts import Confirm, confirm_context
from kodoctl.cli.common.terminal import interruptible
from kodoctl.cli.plan.plan_views import show_plan
from kodoctl.errors import ExitCode, KodoctlError, RefusedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.apply.fleet_run import ClusterResult, Task
    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.session import Session

C = TypeVar("C", bound=Callable[..., Any])

_BEGUN: Final[ContextVar[bool]] = ContextVar("begun", default=False)
"""True if the running command may have written."""

_REPEATING: Final = frozenset({"apply", "destroy", "resume"})
"""Commands that make a new plan of what is left; an undo or a forget, run again, is about what was done so far."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Options that all applying commands share: approval, waiting time for the lease, and output.

    `auto_approve`: do not ask, except about protected contexts; `names`: protected contexts confirmed by --confirm,
    None: the option was not given; `lock_timeout`: seconds to wait for another apply, 0: 2 s at most.
    """

    auto_approve: bool = False
    names: list[str] | None = None  # of protected contexts, instead of typing them
    lock_timeout: float = 0.0
    json_output: bool = False
    verbose: bool = False

    @property
    def approved(self) -> Approval:
        """The same options for a plan that was approved before: only protected contexts are still confirmed."""
        return replace(self, auto_approve=True)


def approval_of(
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: Confirm = None,
    lock_timeout: plan_options.LockTimeout = "0s",
    output: plan_options.StreamFormat = Format.TEXT,
    verbose: plan_options.Verbose = False,
) -> Approval:
    """Collects the options that all applying commands share. Raises UsageError for an invalid --lock-timeout."""
    wait = parse_duration("--lock-timeout", lock_timeout).seconds
    return Approval(auto_approve, confirm_name, wait, output is Format.JSON, verbose)


def confirm(connection: Connection, approval: Approval, *, question: str) -> None:
    """Asks the user to answer `question` by typing `yes`, unless --auto-approve was given. For a protected context,
    asks for the name of the context instead, unless --confirm was given; --auto-approve does not replace it. Raises
    UsageError if there is no terminal to ask at, RefusedError for any other answer, or if --confirm has only other
    names. An interrupt at the question ends the command, as in `ask`.
    """
    context = connection.context
    if context is not None and context.protected:
        confirm_context(context, approval.names, ask)
        return
    if approval.auto_approve:
        return
    if not is_terminal():
        raise UsageError(
            error(
                "K539", "confirmation needs a terminal", "without a terminal, say --auto-approve or apply a plan file"
            )
        )
    if (answer := ask(f"{question} Type 'yes' to confirm")) != "yes":
        detail = f'nothing was applied: the answer was "{one_line(answer, 40)}", only "yes" confirms'
        raise RefusedError(error("K538", "confirmation declined", detail))


def ask(question: str) -> str:
    """Asks a question at the terminal, and returns the typed answer; "" if the user typed nothing. An interrupt, or the
    end of the input, ends the command, as in `before_writes`.
    """
    with before_writes():
        return str(typer.prompt(question, default="", show_default=False, err=True))


@contextmanager
def before_writes() -> Iterator[None]:
    """Context for everything that a command does before it writes: an interrupt ends the command with exit code 130,
    and prints that nothing was applied, or, if `writes` has begun, only that it was interrupted.
    """
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        tell("\nInterrupted." if _BEGUN.get() else "\nInterrupted. Nothing was applied.")
        finish(ExitCode.INTERRUPTED)


def applying(function: C) -> C:
    """Decorator that makes a function a `command` that applies a plan: an interrupt before `writes` begins prints that
    nothing was applied. The function has to do all of its writes inside `writes`, as `carry_out` does.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _BEGUN.set(False)
        with before_writes():
            function(*args, **kwargs)

    return command(run)  # type: ignore[return-value]


@contextmanager
def writes() -> Iterator[None]:
    """Context for the writes of an `applying` command: from its beginning on, an interrupt ends the command with exit
    code 130 without the line that nothing was applied.
    """
    _BEGUN.set(True)
    try:
        yield
    except KeyboardInterrupt:
        tell("Interrupted.")
        finish(ExitCode.INTERRUPTED)


@writes()
def carry_out(
    sessions: Mapping[str, Session],
    fleet: FleetPlan,
    approval: Approval,
    *,
    waiting: Collection[str] | None = None,
    verb: str = "apply",
    from_file: bool = False,
) -> None:
    """Carries out plans of a fleet, blocks meanwhile, and prints a report for each of them; with JSON output, also an
    empty report for each plan that is not carried out. Returns if every cluster of the fleet has a plan, every report
    is complete and without notes, and no interrupt came; else ends the command with a nonzero exit code, or raises the
    error of the only cluster. An interrupt ends the applies after their running calls, a second one the process.

    `waiting`: contexts whose plans are carried out, for example because they have changes; None: all. `verb`: name of
    the command, for the journal; `from_file`: the plans are those of a plan file, which is carried out once.
    """
    from kodoctl.apply.fleet_run import Task

    plans = fleet.plans
    tasks = [Task(name, sessions[name], plans[name]) for name in plans if waiting is None or name in waiting]
    ended = _run(tasks, fleet, approval, verb) if tasks else ()
    idle = _without_changes(plans.keys() - {task.context for task in tasks}) if approval.json_output else ()
    repeats = verb in _REPEATING and not from_file
    for one in (*ended, *idle):
        show_result(one, sessions[one.context], json_output=approval.json_output, repeats=repeats)
    _tell_unreached(fleet, approval, repeats=repeats)
    _finish(ended, fleet)


def _without_changes(contexts: Iterable[str]) -> tuple[ClusterResult, ...]:
    """The result of each of these clusters, whose plans have no changes."""
    from kodoctl.apply.fleet_run import ClusterResult
    from kodoctl.apply.report import ApplyReport

    return tuple(ClusterResult(name, ApplyReport(())) for name in sorted(contexts))


def _run(tasks: Sequence[Task], fleet: FleetPlan, approval: Approval, verb: str) -> tuple[ClusterResult, ...]:
    """Carries out the tasks, prints their progress, and returns their results. Ctrl-C stops them after their running
    calls.
    """
    from kodoctl.apply.fleet_run import run_fleet
    from kodoctl.apply.run import RunOptions

    for task in tasks:
        _tell_without_port(task.session)
    absent = [member.context for member in fleet.unreached]
    listen = ApplyProgress(stream_json=approval.json_output)
    stopping = interruptible("finishing the running calls", "The next plan shows what is left.")
    progress_line = tell if approval.verbose else _quiet
    try:
        commit = command_target.commit_of(tasks[0].plan.paths)
        options = RunOptions(command_target.who(), approval.lock_timeout, verb, commit)
        with stopping as stop, listen as progress:
            ended = run_fleet(tasks, absent, options, listen=progress.of, stop=stop, tell=progress_line)
    finally:
        if approval.verbose and fleet.only is not None:
            command_target.tell_total(tasks[0].session)
    if fleet.only is None and not approval.json_output:
        say()
    return ended


def _tell_unreached(fleet: FleetPlan, approval: Approval, *, repeats: bool) -> None:
    for member in fleet.unreached:
        status = "not planned, not applied"
        show_problem(member.context, status, member.problems, json_output=approval.json_output)
    if fleet.unreached and not approval.json_output:
        onward = "Running the same command again" if repeats else "A new plan"
        say(f"{onward}, once it answers, continues with what is left.")


def _finish(ended: Sequence[ClusterResult], fleet: FleetPlan) -> None:
    """Ends the command with the exit code of the results, if it is not 0. A refusal, a held or lost lease comes first,
    then an interrupt.
    """
    for one in ended:
        problem = one.problem
        if isinstance(problem, KodoctlError) and problem.exit_code != ExitCode.ERROR and not _held_back(problem):
            finish(problem.exit_code)
    if any(one.report is not None and one.report.interrupted for one in ended):
        finish(ExitCode.INTERRUPTED)
    if fleet.unreached or not all(one.complete for one in ended):
        finish(ExitCode.ERROR)


def _held_back(problem: KodoctlError) -> bool:
    return any(one.code == "K549" for one in problem.diagnostics)


def _tell_without_port(session: Session) -> None:
    """Prints a note about the missing journal if the session has no address of the broker's binary port."""
    if not session.client.available:
        tell(
            "Note: without the broker's binary port (--broker-url) there is no journal, and an apply that dies leaves its lock."
        )


def _quiet(_: str) -> None:
    """Discards a message about the progress of an apply, for commands without --verbose."""


def check_files(plan: Plan) -> None:
    """Raises RefusedError if the files declare something else now than when the plan was made. If one of the plan's
    paths is missing (seen from the present working folder), nothing is compared, and a note is printed. A plan without
    paths is not compared either, nor is one of `destroy`. Raises InvalidFileError if the files are invalid now,
    UsageError if they lack the plan's environment.
    """
    if not plan.paths or plan.destroying:
        return
    if not all(Path(path).exists() for path in plan.paths):
        tell(f"Note: {', '.join(plan.paths)} not found here: the plan is not compared with its files.")
        return
    from kodoctl.plan.plan import desired_digest
    from kodoctl.topology.load import BASE, environments_of, read_files

    environment = plan.environment or (BASE if environments_of(read_files(plan.paths)) else None)
    if desired_digest(command_target.load_desired(list(plan.paths), environment)) != plan.digest:
        detail = f"{', '.join(plan.paths)} means something else than when the plan was made: plan again"
        raise RefusedError(error("K543", "the files changed since the plan", detail))


def show_reviewed(sessions: Mapping[str, Session], fleet: FleetPlan, approval: Approval) -> None:
    """Prints the plans of a fleet, unless the output is JSON. Raises RefusedError if any of them is refused: with JSON
    output it has all findings of all plans, else none, because the printed plans show them.
    """
    if not approval.json_output:
        show_plan(fleet, shown_targets(sessions), verbose=approval.verbose)
    if fleet.refused:
        findings = [finding for plan in fleet.plans.values() for finding in plan.all_findings()]
        raise RefusedError(*(findings if approval.json_output else ()))


def confirm_all(sessions: Collection[Session], approval: Approval, *, question: str) -> None:
    """Asks for confirmation of the plans of several clusters, as `confirm` does: for the name of each protected
    context, and one question for all other clusters together. Raises UsageError, RefusedError.
    """
    contexts = [session.connection.context for session in sessions]
    protected = [one for one, context in zip(sessions, contexts, strict=True) if context and context.protected]
    for session in protected:
        confirm(session.connection, approval, question="")
    for session in [one for one in sessions if one not in protected][:1]:
        confirm(session.connection, approval, question=question)


def confirm_changes(
    sessions: Mapping[str, Session], fleet: FleetPlan, approval: Approval, *, question: str
) -> list[str]:
    """Asks for confirmation of the plans with changes, as `confirm_all` does; asks nothing for a plan without changes.
    Returns the contexts of the plans with changes. `question`: text such as "Take this back?"; these contexts are added
    to it, unless the command has one cluster (`ONLY`).
    """
    waiting = [name for name, plan in fleet.plans.items() if not plan.empty]
    several = "" if fleet.only is not None else f" On {' and '.join(waiting)}."
    confirm_all([sessions[name] for name in waiting], approval, question=f"{question}{several}")
    return waiting
