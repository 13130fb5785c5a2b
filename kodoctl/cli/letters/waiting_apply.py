"""waiting apply: a plan of waiting messages carried out while their lane is paused, each message exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, finish, report, tell
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.letters.recall_apply import (
    ApplyFlags,
    HashOption,
    MaxAge,
    RateOption,
    TopologyFile,
    apply_plan,
    rate_of,
)
from kodoctl.cli.letters.recall_options import LedgerOption, Output, ledger_named
from kodoctl.errors import ExitCode, KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.ledger.recall_ledger import RecallLedger
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.recall.send.sends_in_flight import SendReport

PlanFile = Annotated[str, typer.Argument(help="A file of `waiting plan`.", metavar="PLAN")]
Wait = Annotated[str, typer.Option("--wait", help="How long workers may take to leave the lane.", metavar="TIME")]


@dataclass(frozen=True, slots=True)
class WaitingApplyFlags:
    """Arguments and options of the command."""

    plan: PlanFile
    rate: RateOption = "200/s"
    wait: Wait = "1m"
    ledger: LedgerOption = None
    topology: TopologyFile = None
    hash_: HashOption = None
    max_age: MaxAge = "1d"
    confirm_name: plan_options.Confirm = None


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
    flags = ApplyFlags(**{one.name: getattr(asked, one.name) for one in fields(ApplyFlags)})
    failures: list[KodoctlError] = []
    paused = partial(paused_while_sending, pace=pace, ledger=ledger_named(asked.ledger), failures=failures)
    apply_plan(target, flags, output, paused=paused)
    if failures:
        finish(ExitCode.ERROR)


class SendPace(NamedTuple):
    """Durations of an attempt: ms that workers may take to leave the lane, then messages sent a second."""

    wait: int
    per_second: float

    @classmethod
    def of(cls, wait: str, rate: str) -> SendPace:
        """The durations in the options --wait and --rate. Raises UsageError."""
        return cls(_milliseconds(wait), rate_of(rate))

    def sending(self, plan: RecallPlan) -> int:
        """Milliseconds for the messages of a plan."""
        return ceil(plan.size / self.per_second * 1000)


@contextmanager
def paused_while_sending(
    session: Session, plan: RecallPlan, pace: SendPace, ledger: str, failures: list[KodoctlError]
) -> Iterator[list[SendReport]]:
    """Context of an attempt: pauses the lane before, and ends the pause by the attempt's report, which the
    caller appends to the list. An error while ending the pause goes to `failures`: the sent messages are
    reported in any case.
    """
    from kodoctl.pulsar.control.override_store import OverrideStore
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.recall.send.lane_pause import LanePause, PauseClock
    from kodoctl.topology.names import TopicName

    records = DeltaLedger(ledger)  # before anything is paused: it may be missing
    ground = TopicName(TopicName.parse(plan.dead_topic).namespace, plan.topic).full
    store = OverrideStore(session.admin, ground, plan.subscription, Random())  # noqa: S311  # spreads tries
    clock = PauseClock(lambda: int(time.time() * 1000), time.sleep)
    pause = LanePause(plan, session.admin, store, command_target.who(), clock, tell)
    pause.begin(pace.wait, pace.sending(plan))
    reports: list[SendReport] = []
    try:
        yield reports
    except BaseException:
        _tell(pause.keep() if may_have_sent(plan, records) else pause.give_up())
        raise
    try:
        unsent = reports[0].interrupted and not may_have_sent(plan, records)
        _tell(pause.give_up() if unsent else pause.end(reports[0]))
    except KodoctlError as problem:
        report(problem.diagnostics)
        _tell(pause.keep())
        failures.append(problem)


def may_have_sent(plan: RecallPlan, ledger: RecallLedger) -> bool:
    """True unless the ledger shows that no attempt at the plan came to send or discard anything."""
    from kodoctl.recall.ledger.recall_ledger import has_begun

    try:
        return has_begun(ledger.entries(plan.ledger_key), plan.run)
    except KodoctlError:  # it is not known
        return True


def _tell(text: str) -> None:
    if text:
        tell(text)


def _milliseconds(text: str) -> int:
    from kodoctl.topology.units import Duration, UnitError

    try:
        return int(Duration.parse(text))
    except UnitError as problem:
        raise UsageError(error("K005", "wrong unit", f"--wait: {problem}")) from None
