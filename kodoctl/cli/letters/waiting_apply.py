"""waiting apply: carries out a plan of waiting messages while their lane is paused, each message exactly once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, finish, report, tell
from kodoctl.cli.common.options import Format, bundles, parse_duration, parse_rate
from kodoctl.cli.letters.console_plans import forget_plan
from kodoctl.cli.letters.recall_apply import approved_plan, print_report
from kodoctl.cli.letters.recall_options import Output, WaitingApplyFlags
from kodoctl.errors import ExitCode, KodoctlError

if TYPE_CHECKING:
    from kodoctl.cli.letters.recall_apply import ApprovedPlan, Background
    from kodoctl.documents.recall_document import SendReport
    from kodoctl.recall.ledger.recall_ledger import RecallLedger
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.recall.send.lane_pause import LanePause


@command
@connects
@bundles("asked", WaitingApplyFlags)
def apply(target: TargetOptions, asked: WaitingApplyFlags, output: Output = Format.TEXT) -> None:
    """Carry out a plan: release, move or discard its messages.

    Pauses the lane, takes each message exactly once, and ends the pause.

    Killed, interrupted or repeated, it goes on where it was; the lane stays paused until then. Workers
    leave a paused lane when what they run of it has ended.
    """
    pace = SendPace.of(asked.wait, asked.rate)
    with approved_plan(target, asked, output, waiting=True) as approved:
        done = send_paused(approved, pace)
    if done.report.complete and not done.stays_paused:
        forget_plan(Path(asked.plan))
    print_report(done.report, approved.plan, done.seconds, output)
    if done.stays_paused:
        finish(ExitCode.ERROR)


class SendPace(NamedTuple):
    """Speed and patience of an attempt. `wait`: ms that workers may take to leave the paused lane; `per_second`:
    messages sent per second.
    """

    wait: int
    per_second: float

    @classmethod
    def of(cls, wait: str, rate: str) -> SendPace:
        """Parses the options --wait and --rate. Raises UsageError (K005)."""
        return cls(int(parse_duration("--wait", wait)), parse_rate("--rate", rate))

    def sending(self, plan: RecallPlan) -> int:
        """Milliseconds that it takes to send the messages of a plan at this speed."""
        return ceil(plan.size / self.per_second * 1000)


class PausedSend(NamedTuple):
    """Result of carrying out a plan of waiting messages. `seconds`: duration; `stays_paused`: the pause of the lane
    could not be ended, and the error was printed.
    """

    report: SendReport
    seconds: float
    stays_paused: bool = False


def send_paused(
    approved: ApprovedPlan, pace: SendPace, background: Background | None = None, kept: threading.Event | None = None
) -> PausedSend:
    """Carries out a plan of waiting messages: pauses their lane, waits until workers have left it, sends or discards
    the messages, and ends the pause unless the report says that another attempt is needed. A plan without messages
    pauses nothing. `background`: stops the attempt, and takes its lines and progress; None: Ctrl-C stops it, and they
    are printed. `kept`: set, also before an exception, if an order of the plan's run pauses the lane or may, and
    cleared if none does: while it is set, the plan's file must stay, because another plan cannot end the pause.

    Raises KodoctlError: if a message may have been sent before that, the lane stays paused, and the same command, run
    again, continues; else the pause is ended if the cluster permits it. An error at the end of the pause is printed and
    not raised, because the report of the sent messages must not be lost.
    """
    from kodoctl.pulsar.control.override_store import OverrideStore
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.recall.send.lane_pause import LanePause, PauseClock
    from kodoctl.topology.names import TopicName

    plan, session = approved.plan, approved.session
    if plan.empty:
        return PausedSend(approved.send(background=background), 0.0)
    speak, sleep = (background.tell, background.sleep) if background else (tell, time.sleep)
    ledger = DeltaLedger(approved.ledger)  # before anything is paused: it may be missing
    ground = TopicName(TopicName.parse(plan.source_topic).namespace, plan.topic).full
    store = OverrideStore(session.admin, ground, plan.subscription)
    clock = PauseClock(lambda: int(time.time() * 1000), sleep)
    pause = LanePause(plan, session.admin, store, command_target.who(), clock, speak)
    try:
        return _send_in_pause(approved, pause, pace, ledger, background)
    finally:
        if kept is not None and pause.stays is not None:
            (kept.set if pause.stays else kept.clear)()


def _send_in_pause(
    approved: ApprovedPlan, pause: LanePause, pace: SendPace, ledger: RecallLedger, background: Background | None
) -> PausedSend:
    """Sends a plan's messages between the begin and the end of the pause, as `send_paused` says."""
    plan, speak = approved.plan, background.tell if background else tell
    began = time.monotonic()
    pause.begin(pace.wait, pace.sending(plan))
    try:
        sent = approved.send(background=background)
    except BaseException:
        _tell(speak, pause.keep() if may_have_sent(plan, ledger) else pause.give_up())
        raise
    try:
        _tell(speak, pause.give_up() if sent.interrupted and not may_have_sent(plan, ledger) else pause.end(sent))
    except KodoctlError as problem:
        report(problem.diagnostics)
        if background:
            background.tell(f"The pause could not be ended: {problem}")
        _tell(speak, pause.keep())
        return PausedSend(sent, time.monotonic() - began, stays_paused=True)
    return PausedSend(sent, time.monotonic() - began)


def may_have_sent(plan: RecallPlan, ledger: RecallLedger) -> bool:
    """False if the recall ledger shows that no attempt at the plan sent or discarded a message; True otherwise, also if
    the ledger cannot be read.
    """
    from kodoctl.recall.ledger.recall_ledger import has_begun

    try:
        return has_begun(ledger.entries(plan.ledger_key), plan.run)
    except KodoctlError:  # it is not known
        return True


def _tell(speak: Callable[[str], None], text: str) -> None:
    if text:
        speak(text)
