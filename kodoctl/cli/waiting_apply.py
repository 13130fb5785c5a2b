"""waiting apply: a plan of waiting messages carried out while their lane is paused, each message exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli import command_target, plan_options
from kodoctl.cli.command_target import TargetOptions, connects
from kodoctl.cli.options import Format, bundles
from kodoctl.cli.recall_apply import ApplyFlags, HashOption, MaxAge, RateOption, TopologyFile, apply_plan
from kodoctl.cli.recall_options import LEDGER, LedgerOption, Output
from kodoctl.console import command, tell
from kodoctl.errors import LockedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.recall_plan import RecallPlan
    from kodoctl.recall.sends_in_flight import SendReport

PlanFile = Annotated[str, typer.Argument(help="A file of `waiting plan`.", metavar="PLAN")]
Wait = Annotated[str, typer.Option("--wait", help="How long workers may take to leave the lane.", metavar="TIME")]


@dataclass(frozen=True, slots=True)
class WaitingApplyFlags:
    """Arguments and options of the command."""

    plan: PlanFile
    rate: RateOption = "200/s"
    wait: Wait = "1m"
    ledger: LedgerOption = LEDGER
    topology: TopologyFile = None
    hash_: HashOption = None
    max_age: MaxAge = "1d"
    confirm_name: plan_options.Confirm = None


@command
@connects
@bundles("asked", WaitingApplyFlags)
def apply(target: TargetOptions, asked: WaitingApplyFlags, output: Output = Format.TEXT) -> None:
    """Pause the lane, release, move or discard the messages of a plan, each exactly once, and end the pause.

    Killed, interrupted or repeated, it goes on where it was; the lane stays paused until then. Workers leave a paused
    lane when what they run of it has ended.
    """
    wait = _milliseconds(asked.wait)
    flags = ApplyFlags(**{one.name: getattr(asked, one.name) for one in fields(ApplyFlags)})
    apply_plan(target, flags, output, paused=partial(_paused, wait=wait))


@contextmanager
def _paused(session: Session, plan: RecallPlan, wait: int) -> Iterator[list[SendReport]]:
    """Pauses the lane; the attempt's report goes into the list, and decides whether the pause ends."""
    from kodoctl.pulsar.override_store import OverrideStore
    from kodoctl.recall.lane_pause import LanePause, PauseClock
    from kodoctl.topology.names import TopicName

    ground = TopicName(TopicName.parse(plan.dead_topic).namespace, plan.topic).full
    store = OverrideStore(session.admin, ground, plan.subscription, Random())  # noqa: S311  # spreads tries
    clock = PauseClock(lambda: int(time.time() * 1000), time.sleep)
    pause = LanePause(plan, session.admin, store, command_target.who(), clock)
    pause.begin(wait)
    reports: list[SendReport] = []
    try:
        yield reports
    except LockedError:  # before anything was sent
        if text := pause.give_up():
            tell(text)
        raise
    except BaseException:
        tell(pause.keep())
        raise
    if text := pause.end(reports[0]):
        tell(text)


def _milliseconds(text: str) -> int:
    from kodoctl.topology.units import Duration, UnitError

    try:
        return int(Duration.parse(text))
    except UnitError as problem:
        raise UsageError(error("K005", "wrong unit", f"--wait: {problem}")) from None
