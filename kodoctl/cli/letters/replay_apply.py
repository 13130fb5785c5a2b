"""replay apply|undo|list: carry out a reviewed replay plan, take one back, and show those of a namespace."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli.apply.apply_flow import Approval, confirm
from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, finish, reading, say, tell
from kodoctl.cli.common.options import Format, parse_duration
from kodoctl.cli.common.plan_files import read_plan_text
from kodoctl.cli.common.protected_contexts import Confirm
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.letters.recall_options import HashOption, MaxAge, Output, Wait
from kodoctl.errors import ExitCode, RefusedError, UsageError, Where, error
from kodoctl.text.formatting import time_text

if TYPE_CHECKING:
    from kodoctl.documents.replay_document import ReplayPlanDocument, ReplayReport
    from kodoctl.pulsar.control.lease import Lease
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.replay_history import ReplayRecord, Replays
    from kodoctl.recall.send.lane_pause import PauseWords
    from kodoctl.recall.send.replay_run import ReplayWork
    from kodoctl.topology.names import NamespaceName

PlanFile = Annotated[str, typer.Argument(help="A file of `replay plan`.", metavar="PLAN")]
Namespace = Annotated[str, typer.Argument(help="The namespace.", metavar="TENANT/NAMESPACE", show_default=False)]
Run = Annotated[
    str,
    typer.Argument(
        help="The replay, as `replay list` shows it; `last` is the latest.", metavar="RUN", show_default=False
    ),
]


@command
@connects
def apply(
    target: TargetOptions,
    plan: PlanFile,
    hash_: HashOption = None,
    max_age: MaxAge = "1d",
    wait: Wait = "1m",
    lock_timeout: plan_options.LockTimeout = "0s",
    confirm_name: Confirm = None,
    output: Output = Format.TEXT,
) -> None:
    """Carry out a plan: its messages, and no others, come again.

    Pauses the lanes, notes the positions in the journal, moves the cursors back, and ends the pause. What was handled
    since the plan stays done.

    Killed, interrupted or repeated, it goes on where it was; the lanes stay paused until then. The plan file is the
    approval: only a protected context asks for its name.
    """
    from kodoctl.documents.replay_document import ReplayReport
    from kodoctl.recall.plan.replay_history import later_run
    from kodoctl.recall.plan.replay_plan import hash_of
    from kodoctl.recall.send.lane_pause import REPLAY_APPLY
    from kodoctl.recall.send.replay_run import apply_replay
    from kodoctl.render.replay_text import replay_plan_lines

    made = _read_plan(plan)
    _check_plan(made, plan, int(parse_duration("--max-age", max_age)), hash_)
    waits, locks = int(parse_duration("--wait", wait)), parse_duration("--lock-timeout", lock_timeout).seconds
    with target.session() as session:
        if output is Format.TEXT:
            shown = command_target.shown_target(session.connection)
            show_lines(replay_plan_lines(made, shown, is_applied=True))
        if not made["partitions"]:
            if output is Format.JSON:
                _print(ReplayReport(made["run"], "replay", complete=True), 0, output)
            return
        _check_identity(session, made)
        confirm(session.connection, Approval(auto_approve=True, names=confirm_name), question="")
        space = command_target.parse_namespace(made["namespace"])
        began = time.monotonic()

        def carry_out(lease: Lease, found: Replays) -> ReplayReport:
            earlier, work = found.get(made["run"]), _work(session, lease, space, made, waits, REPLAY_APPLY)
            if earlier is not None:
                _tell_unread(found)
                _check_open(earlier, later_run(found, earlier), space)
            if earlier is not None and earlier.state != "incomplete":
                for pause in work.pauses:
                    pause.finish()  # where only that failed in an earlier attempt
                detail = f"{made['run']}, {time_text(earlier.began)}, by {earlier.who}: {earlier.state}; plan again to replay once more"
                raise RefusedError(error("K533", "the plan was applied already", detail))
            return apply_replay(work, earlier)

        report = _under_lease(session, space, hash_of(made), locks, carry_out)
    _print(report, time.monotonic() - began, output)
    if report.complete and output is Format.TEXT:
        tell(f"Undo it with: kodoctl replay undo {made['run']} {space}")


@command
@connects
def undo(
    target: TargetOptions,
    run: Run,
    namespace: Namespace,
    wait: Wait = "1m",
    lock_timeout: plan_options.LockTimeout = "0s",
    auto_approve: plan_options.AutoApprove = False,
    confirm_name: Confirm = None,
    output: Output = Format.TEXT,
) -> None:
    """Take a replay back: what has not come again comes no more.

    Acknowledges what was acknowledged before it. What was handled a second time meanwhile stays done.
    """
    from kodoctl.recall.plan.replay_history import find_replay
    from kodoctl.recall.send.lane_pause import REPLAY_UNDO
    from kodoctl.recall.send.replay_run import undo_replay
    from kodoctl.render.replay_text import replay_list_lines

    waits, locks = int(parse_duration("--wait", wait)), parse_duration("--lock-timeout", lock_timeout).seconds
    space = command_target.parse_namespace(namespace)
    with target.session() as session:
        known = _replays(session, space)
        _tell_unread(known)
        chosen = find_replay(known, run, str(space))
        _check_identity(session, chosen.plan)
        if output is Format.TEXT:
            show_lines(replay_list_lines([chosen.row()], str(space)))
        confirm(session.connection, Approval(auto_approve, confirm_name), question="Take this replay back?")
        began = time.monotonic()

        def carry_out(lease: Lease, found: Replays) -> ReplayReport:
            record = find_replay(found, chosen.run, str(space))
            work = _work(session, lease, space, record.plan, waits, REPLAY_UNDO)
            if record.state == "undone":
                for pause in work.pauses:
                    pause.finish()  # where only that failed in an earlier attempt
                detail = f"{record.run} is undone already: no message was touched, and its pauses have ended"
                raise UsageError(error("K596", "replay not found", f"{detail}. Name an earlier replay by its run"))
            return undo_replay(work, record)

        report = _under_lease(session, space, f"undo {chosen.run}", locks, carry_out)
    _print(report, time.monotonic() - began, output)


@reading
@connects
def list_(target: TargetOptions, namespace: Namespace, output: Output = Format.TEXT) -> None:
    """Show the replays of a namespace, oldest first."""
    from kodoctl.render.replay_text import replay_list_lines

    space = command_target.parse_namespace(namespace)
    with target.session() as session:
        known = _replays(session, space)
        _tell_unread(known)
        rows = [one.row() for one in known.values()]
        if not rows and not known.newer:
            command_target.check_namespaces(session, [space])
    if output is Format.JSON:
        say(json.dumps({"namespace": str(space), "replays": rows}, indent=1))
    else:
        show_lines(replay_list_lines(rows, str(space)))


def _read_plan(file: str) -> ReplayPlanDocument:
    from kodoctl.recall.plan.replay_plan import loads

    return loads(read_plan_text(file, "kodoctl replay plan …"), file)


def _check_plan(made: ReplayPlanDocument, file: str, most: int, answer: str | None) -> None:
    """Raises RefusedError for a plan that was refused, is older than `most` ms, or has another hash than `answer`
    (None: any).
    """
    from kodoctl.recall.plan.replay_plan import hash_of

    problem = ""
    if made["refusals"]:
        problem = "\n".join(made["refusals"])
    elif time.time() * 1000 - made["made_at"] > most:
        problem = f"it was made {time_text(made['made_at'])}: plan again and review it, or say --max-age"
    elif answer is not None and answer != hash_of(made):
        problem = f"{answer!r} is not the plan's hash"
    if problem:
        raise RefusedError(
            error("K593", "replay that cannot be carried out", f"{problem}; nothing was changed", Where(file))
        )


def _check_open(record: ReplayRecord, later: str, space: NamespaceName) -> None:
    """Raises RefusedError for a replay that must not be continued: its undo has begun, or a later replay of the same
    subscription (`later`, "": there is none) has, whose messages this one would acknowledge.
    """
    if record.state == "undoing":
        detail = f"an undo of {record.run} has begun: `kodoctl replay undo {record.run} {space}` ends it"
    elif record.state == "incomplete" and later:
        detail = f"{later} is a later replay of the same subscription: undo that one first, or plan these anew"
    else:
        return
    raise RefusedError(error("K593", "replay that cannot be carried out", f"{detail}; nothing was changed"))


def _check_identity(session: Session, made: ReplayPlanDocument) -> None:
    """Raises RefusedError for a plan of another cluster, if both identities are known."""
    from kodoctl.recall.cluster import RecallCluster

    tenant = command_target.parse_namespace(made["namespace"]).tenant
    RecallCluster(session).check_identity(made["cluster"], tenant)


def _replays(session: Session, space: NamespaceName) -> Replays:
    from kodoctl.plan.history import parse
    from kodoctl.pulsar.control.journal import read_journal
    from kodoctl.recall.plan.replay_history import read_replays

    return read_replays(map(parse, read_journal(session.admin, session.client, space)), str(space))


def _tell_unread(found: Replays) -> None:
    """Prints on standard error which replays are not known: they may be later ones of the same subscription."""
    for one in found.unread():
        tell(f"Not known: {one}")


def _under_lease(
    session: Session,
    space: NamespaceName,
    plan: str,
    timeout: float,
    carry_out: Callable[[Lease, Replays], ReplayReport],
) -> ReplayReport:
    """Takes the lease of the namespace, reads the replays in its journal, and carries out."""
    from kodoctl.pulsar.control.control_namespace import ensure_control_namespace
    from kodoctl.pulsar.control.lease import hold

    ensure_control_namespace(session.admin, space.tenant)
    who = command_target.who()
    with hold(session.admin, session.client, [space], who=who, plan=plan, timeout=timeout) as lease:
        return carry_out(lease, _replays(session, space))


def _work(
    session: Session, lease: Lease, space: NamespaceName, made: ReplayPlanDocument, wait: int, words: PauseWords
) -> ReplayWork:
    from kodoctl.apply.fenced_admin import FencedAdmin
    from kodoctl.pulsar.control.override_store import OverrideStore
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.send.lane_pause import LanePause, PauseClock
    from kodoctl.recall.send.replay_run import ReplayWork, lanes_of
    from kodoctl.topology.names import TopicName

    admin, who = FencedAdmin(session.admin, lease.check), command_target.who()
    ground = TopicName(space, made["topic"]).full
    store = OverrideStore(admin, ground, made["subscription"])
    clock = PauseClock(lambda: int(time.time() * 1000), time.sleep)
    pauses = [LanePause(lane, admin, store, who, clock, tell, words) for lane in lanes_of(made)]

    def record(entry: Mapping[str, Any]) -> None:
        lease.write(space, entry)

    return ReplayWork(made, admin, RecallCluster(session), pauses, record, who, wait, tell)


def _print(report: ReplayReport, seconds: float, output: Format) -> None:
    """Prints a report, and ends the command with its exit code if that is not 0."""
    from kodoctl.render.replay_text import replay_report_lines

    report.seconds = round(seconds, 3)
    if output is Format.JSON:
        say(json.dumps(asdict(report), indent=1))
    else:
        show_lines(replay_report_lines(report))
    if not report.complete or report.unclear:
        finish(ExitCode.ERROR)
