"""Common steps of commands that apply: the plan shown, confirmation, check against the files, execution, report."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from kodoctl.cli.apply.apply_progress import ApplyProgress
from kodoctl.cli.apply.apply_report import report_json, show_report
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import interruptible
from kodoctl.cli.plan.plan_views import show_plan
from kodoctl.console import command, finish, is_terminal, one_line, say, tell
from kodoctl.errors import ExitCode, RefusedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.session import Session

C = TypeVar("C", bound=Callable[..., Any])

_BEGUN: Final[ContextVar[bool]] = ContextVar("begun", default=False)
"""Whether the running command may have written."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Options of an apply: its approval, the time it waits for another apply (s), and the form of its output."""

    auto_approve: bool = False
    names: list[str] | None = None  # of protected contexts, instead of typing them
    lock_timeout: float = 0.0
    json_output: bool = False
    verbose: bool = False

    @property
    def approved(self) -> Approval:
        """The approval for a plan that was approved before: confirms protected contexts only."""
        return replace(self, auto_approve=True)


def approval_of(
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: plan_options.Confirm = None,
    lock_timeout: plan_options.LockTimeout = "0s",
    output: plan_options.StreamFormat = Format.TEXT,
    verbose: plan_options.Verbose = False,
) -> Approval:
    """The options that all commands have that apply. Raises UsageError for a wrong --lock-timeout."""
    return Approval(auto_approve, confirm_name, lock_seconds(lock_timeout), output is Format.JSON, verbose)


def confirm(connection: Connection, approval: Approval, *, question: str) -> None:
    """Requests the answer `yes`. A protected context requires its name, also with --auto-approve. Raises
    UsageError if no terminal can answer, RefusedError if the user declines.
    """
    context = connection.context
    if context is not None and context.protected:
        names = approval.names or []
        typed = context.name if context.name in names else next(iter(names), None)
        if typed is None and is_terminal():
            typed = ask(f"Context {context.name!r} is protected. Type its name to go on")
        if typed is None:
            detail = f"{context.name!r}: say --confirm {context.name}"
            raise UsageError(error("K537", "protected context", detail))
        if typed != context.name:
            raise RefusedError(
                error("K538", "confirmation declined", f"{typed!r} is not the context's name; nothing was written")
            )
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
    """Answer typed at a terminal, "" for an empty one.
    After an interrupt it prints that nothing was applied, and exits.
    """
    with before_writes():
        return str(typer.prompt(question, default="", show_default=False, err=True))


@contextmanager
def before_writes() -> Iterator[None]:
    """Context of a command's work outside of `writes`: an interrupt before the first write prints that nothing was applied."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        tell("\nInterrupted." if _BEGUN.get() else "\nInterrupted. Nothing was applied.")
        finish(ExitCode.INTERRUPTED)


def applying(function: C) -> C:
    """Decorator: a `command` that applies a plan. An interrupt before its first write prints that nothing was applied.
    So the command must do all of its writes inside `writes`.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _BEGUN.set(False)
        with before_writes():
            function(*args, **kwargs)

    return command(run)  # type: ignore[return-value]


@contextmanager
def writes() -> Iterator[None]:
    """Context of the writes of an `applying` command: after an interrupt inside it, or later, the command does not say
    that nothing was applied.
    """
    _BEGUN.set(True)
    try:
        yield
    except KeyboardInterrupt:
        tell("Interrupted.")
        finish(ExitCode.INTERRUPTED)


@writes()
def carry_out(session: Session, plan: Plan, approval: Approval, *, verb: str = "apply") -> None:
    """Runs the apply and prints its report. The exit code is 0 only if everything was done.

    `verb`: for the journal.
    """
    from kodoctl.apply.run import RunOptions, run

    tell_without_port(session)
    try:
        options = RunOptions(command_target.who(), approval.lock_timeout, verb, command_target.commit_of(plan.paths))
        with interruptible_apply() as stop, ApplyProgress(stream_json=approval.json_output) as progress:
            result = run(
                session,
                plan,
                options,
                listen=progress,
                stop=stop,
                tell=tell if approval.verbose else quiet,
            )
    finally:
        if approval.verbose:
            command_target.tell_total(session)
    if approval.json_output:
        say(json.dumps(report_json(result)))
    else:
        show_report(result)
    if result.interrupted:
        finish(ExitCode.INTERRUPTED)
    if not result.complete or result.notes:
        finish(ExitCode.ERROR)


def tell_without_port(session: Session) -> None:
    """Prints the limits of an apply that cannot reach the binary port of the broker."""
    if not session.client.available:
        tell(
            "Note: without the broker's binary port (--broker-url) there is no journal, and an apply that dies leaves its lock."
        )


def quiet(_: str) -> None:
    """Discards a message about the progress of an apply, for commands without --verbose."""


def interruptible_apply() -> AbstractContextManager[threading.Event]:
    """An event that Ctrl-C sets: an apply then stops after its running calls."""
    return interruptible("finishing the running calls", "The next plan shows what is left.")


def lock_seconds(text: str) -> float:
    """Seconds of `--lock-timeout`, parsed before any confirmation. Raises UsageError."""
    from kodoctl.topology.units import Duration, UnitError

    try:
        return Duration.parse(text).seconds
    except UnitError as problem:
        raise UsageError(error("K005", "wrong unit", f"--lock-timeout: {problem}")) from None


def check_files(plan: Plan) -> None:
    """Raises RefusedError if the plan's files are present and their meaning changed since the plan.

    Files that are missing are not compared; a note names them.
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


def shown_plan(planned: Plan, session: Session, approval: Approval) -> Plan:
    """The plan, which people have seen by now. Raises RefusedError for one that may not be carried out."""
    if not approval.json_output:
        show_plan(planned, command_target.shown_target(session.connection))
    if planned.refused:
        raise RefusedError(*(d for d in planned.all_findings() if approval.json_output))
    return planned
