"""waiting release: what waits in some lanes is planned and released in one run, each message exactly once.

The plan is stored before the lane is paused and removed when nothing of it is left to do, so that the same command
goes on with it after a kill: a lane that another plan has paused is left alone by all others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli import command_target, plan_options
from kodoctl.cli.command_target import TargetOptions, connects
from kodoctl.cli.options import Format
from kodoctl.cli.plan_files import write_plan_text
from kodoctl.cli.recall_apply import ApplyFlags, RateOption, attempt_plan
from kodoctl.cli.recall_options import Because, File, LedgerOption, Output, Topic, file_with, ledger_named
from kodoctl.cli.terminal import show_lines
from kodoctl.cli.waiting_apply import SendPace, Wait, may_have_sent, paused_while_sending
from kodoctl.cli.waiting_planning import plan_lane
from kodoctl.console import Environment, command, finish, say, tell
from kodoctl.errors import ExitCode, KodoctlError, LockedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.documents.waiting_document import LaneReleaseRow
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.recall_plan import RecallPlan
    from kodoctl.recall.sends_in_flight import SendReport
    from kodoctl.recall.waiting_lanes import WaitingLane
    from kodoctl.topology.loaded_topology import LoadedTopology

PLANS = ".kodoctl/releases"
_RESUMED = "30d"  # age of a plan that was begun: as long as an order may last
Lanes = Annotated[
    list[str], typer.Option("--lane", help="A lane they wait in, such as L1/blocking; again for more.", metavar="LANE")
]
Condition = Annotated[
    str, typer.Option("--where", help="Condition that messages must meet; `true` is all.", metavar="CONDITION")
]
Whose = Annotated[str, typer.Option("--subscription", help="Whose messages.", metavar="NAME")]
Plans = Annotated[
    str, typer.Option("--plans", help="Folder of plans that are not finished, for the next run.", metavar="FOLDER")
]


@command
@connects
def release(
    target: TargetOptions,
    topology: File,
    topic: Topic,
    subscription: Whose,
    lane: Lanes,
    where: Condition,
    because: Because = "",
    rate: RateOption = "1000/s",
    wait: Wait = "1m",
    ledger: LedgerOption = None,
    plans: Plans = PLANS,
    env: Environment = None,
    confirm_name: plan_options.Confirm = None,
    output: Output = Format.TEXT,
) -> None:
    """Release what waits in some lanes in one run: plan it, pause the lane, send each message once, end the pause.

    Workers get it within seconds, due at once, and the limits hold for it. A lane without such messages is not paused.
    Killed or interrupted, the same command goes on where it was; `waiting plan` and `apply` are for who reviews first.
    """
    from kodoctl.render.release_text import release_lines

    pace = SendPace.of(wait, rate)
    sending = _LaneRelease(target, plans, where, because, rate, pace, ledger_named(ledger), confirm_name)
    with target.session() as session:
        loaded, chosen = _lanes(session, topology, env, topic, subscription, lane)
        shown = command_target.shown_target(session.connection)
    rows: list[LaneReleaseRow] = []
    try:
        rows.extend(sending.run(loaded, one) for one in chosen)
    finally:  # what was sent is reported also where a later lane is refused
        document: Any = {
            "format_version": 1, "topic": topic, "subscription": subscription, "where": where, "lanes": rows,
        }  # fmt: skip
        if rows and output is Format.JSON:
            import json

            say(json.dumps(document, indent=1))
        elif rows:
            show_lines(release_lines(document, shown))
    if not all(row["complete"] for row in rows):
        finish(ExitCode.INTERRUPTED if sending.interrupted else ExitCode.ERROR)


def _lanes(
    session: Session, topology: str, env: str | None, topic: str, subscription: str, names: list[str]
) -> tuple[LoadedTopology, list[WaitingLane]]:
    from kodoctl.recall.waiting_lanes import waiting_lanes, with_target

    loaded = file_with(session, topology, env, topic)
    return loaded, [with_target(one, None) for one in waiting_lanes(loaded, topic, subscription, names)]


class _LaneRelease:
    """Release of one lane after the other. `interrupted`: by Ctrl-C; the lanes that follow are left then."""

    def __init__(
        self,
        target: TargetOptions,
        plans: str,
        where: str,
        because: str,
        rate: str,
        pace: SendPace,
        ledger: str,
        names: list[str] | None,
    ) -> None:
        self._target, self._plans, self._where, self._because = target, Path(plans), where, because
        self._rate, self._pace, self._ledger, self._names = rate, pace, ledger, names
        self.interrupted = False

    def run(self, loaded: LoadedTopology, lane: WaitingLane) -> LaneReleaseRow:
        """First what an earlier run left, then whatever waits now, as often as there are more than one plan takes."""
        row: LaneReleaseRow = {
            "lane": lane.lane, "released": 0, "stays": {}, "problems": [], "complete": True, "seconds": 0.0,
        }  # fmt: skip
        with self._target.session() as session:
            file = self._file(session, lane)
        if file.exists():
            tell(f"{lane.lane}: going on with the plan that an earlier run left in {file}")
            self._attempt(file, row)
        while row["complete"] and not self.interrupted:
            with self._target.session() as session:
                made = self._made(session, loaded, lane)
            row["stays"] = _stays(made)
            if made.empty:
                break
            self._store(made, file)
            try:
                self._attempt(file, row)
            finally:
                self._forget_unsent(made, file)
            if "beyond" not in row["stays"]:
                break
        row["complete"] = row["complete"] and not self.interrupted
        return row

    def _made(self, session: Session, loaded: LoadedTopology, lane: WaitingLane) -> RecallPlan:
        from kodoctl.recall.recall_plan import MAX_LETTERS, RecallAction

        return plan_lane(
            session, loaded, lane, RecallAction.RELEASE, self._where, MAX_LETTERS, self._because, self._ledger
        )

    def _file(self, session: Session, lane: WaitingLane) -> Path:
        """One plan at a time of each lane and cluster, whatever it chose."""
        name = f"{session.connection.admin_url}|{lane.dead_topic}|{lane.holder}"
        return self._plans / f"{lane.lane.replace('/', '-')}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"

    def _store(self, made: RecallPlan, file: Path) -> None:
        from kodoctl.recall import recall_plan_file

        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            detail = f"{file.parent}: {problem.strerror}"
            raise UsageError(error("K535", "the plan file cannot be written", detail)) from None
        if file.exists():
            detail = f"another run of this command stored its plan in {file} meanwhile; nothing was sent by this one"
            raise LockedError(error("K563", "another recall is running", detail))
        write_plan_text(recall_plan_file.dumps(made), str(file))

    def _forget_unsent(self, made: RecallPlan, file: Path) -> None:
        """Of a plan that nothing was sent of the next run has to know nothing: it may choose other messages."""
        from kodoctl.recall.delta_ledger import DeltaLedger

        if file.exists() and not may_have_sent(made, DeltaLedger(self._ledger)):
            file.unlink(missing_ok=True)

    def _attempt(self, file: Path, row: LaneReleaseRow) -> None:
        flags = ApplyFlags(str(file), self._rate, self._ledger, max_age=_RESUMED, confirm_name=self._names)
        failures: list[KodoctlError] = []
        paused = partial(paused_while_sending, pace=self._pace, ledger=self._ledger, failures=failures)
        found = attempt_plan(self._target, flags, Format.JSON, paused=paused)
        if found is None:
            file.unlink(missing_ok=True)
            return
        report, _, seconds = found
        row["released"] += report.sent + report.had_already + report.already
        row["problems"] += [*report.refused, *report.unclear, *report.elsewhere, *report.stored_twice]
        row["seconds"] = round(row["seconds"] + seconds, 3)
        self.interrupted = self.interrupted or report.interrupted
        row["complete"] = report.complete and not failures
        if not (failures or _goes_on(report)):
            file.unlink(missing_ok=True)


def _goes_on(report: SendReport) -> bool:
    """True if another attempt at the same plan has something to do: the lane stays paused until then."""
    return bool(report.interrupted or report.unacknowledged or report.in_doubt or report.unclear)


def _stays(made: RecallPlan) -> dict[str, int]:
    """Why messages of the lane wait on -> how many."""
    summary = made.summary
    found = Counter(summary["left_out"])
    found["other"] = summary["read"] - summary["matched"]
    return {why: count for why, count in found.items() if count}
