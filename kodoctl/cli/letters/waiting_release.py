"""waiting release: plans and releases the waiting messages of some lanes in one run, each message exactly once.

Each plan is stored before its lane is paused, so that the same command continues after a kill; no other plan takes the
messages of a paused lane. The stored plan is deleted when another attempt would have nothing to do, or when none of its
messages was sent and its pause has ended. Plans are in the folder of --plans, else in the user's state folder, never in
the working folder. A stored plan is carried out only if it matches this run's options.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, command, finish, say, tell
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.plan_files import read_plan_text, write_plan_text
from kodoctl.cli.common.protected_contexts import Confirm
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.letters.recall_apply import approved_plan
from kodoctl.cli.letters.recall_options import (
    ApplyFlags,
    Because,
    File,
    Output,
    RateOption,
    Topic,
    Wait,
    file_with,
)
from kodoctl.cli.letters.waiting_apply import SendPace, may_have_sent, send_paused
from kodoctl.cli.letters.waiting_planning import plan_lane
from kodoctl.documents.waiting_document import LaneReleaseRow, WaitingReleaseDocument
from kodoctl.errors import ExitCode, LockedError, RefusedError, UsageError, error
from kodoctl.host.private_files import make_private
from kodoctl.host.user_folders import state_folder

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import SendReport
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.recall.plan.waiting_lanes import WaitingLane
    from kodoctl.topology.loaded_topology import LoadedTopology

_RESUMED = "30d"  # age of a plan that was begun: as long as an order may last
Lanes = Annotated[
    list[str], typer.Option("--lane", help="A lane they wait in, such as L1/blocking; again for more.", metavar="LANE")
]
Condition = Annotated[
    str, typer.Option("--where", help="Condition that messages must meet; `true` is all.", metavar="CONDITION")
]
Whose = Annotated[str, typer.Option("--subscription", help="Whose messages.", metavar="NAME")]
Plans = Annotated[
    str | None,
    typer.Option(
        "--plans",
        help="Folder of plans that are not finished, for the next run; else one of the user who runs this.",
        metavar="FOLDER",
    ),
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
    plans: Plans = None,
    env: Environment = None,
    confirm_name: Confirm = None,
    output: Output = Format.TEXT,
) -> None:
    """Release the waiting messages of some lanes in one run.

    Plans it, pauses each lane, sends each message once, and ends the pause.

    Workers get the messages within seconds after that, and limits apply to them. A lane without such messages
    is not paused. After a kill or an interruption the same command continues, and the lane may stay paused
    until then. To review first, use `waiting plan` and `waiting apply`.
    """
    from kodoctl.render.waiting_text import release_lines

    pace = SendPace.of(wait, rate)
    folder = Path(plans) if plans else plans_folder()
    sending = _LaneRelease(target, folder, where, because, rate, pace, ledger_named(ledger), confirm_name)
    with target.session() as session:
        loaded, chosen = _lanes(session, topology, env, topic, subscription, lane)
        shown = command_target.shown_target(session.connection)
    document = WaitingReleaseDocument(1, topic, subscription, where)
    try:
        document.lanes.extend(row for one in chosen for row in sending.run(loaded, one))
    finally:  # what was sent is reported also where a later lane is refused
        if document.lanes and output is Format.JSON:
            say(json.dumps(asdict(document), indent=1))
        elif document.lanes:
            show_lines(release_lines(document, shown))
    if not all(row.complete for row in document.lanes):
        finish(ExitCode.INTERRUPTED if sending.interrupted else ExitCode.ERROR)


def plans_folder() -> Path:
    """Folder of stored plans of releases that have not finished; it may not exist yet. Raises UsageError (K020) if the
    user has no home folder.
    """
    return state_folder() / "releases"


def _lanes(
    session: Session, topology: str, env: str | None, topic: str, subscription: str, names: list[str]
) -> tuple[LoadedTopology, list[WaitingLane]]:
    from kodoctl.recall.plan.waiting_lanes import waiting_lanes, with_target

    loaded = file_with(session, topology, env, topic)
    return loaded, [with_target(one, None) for one in waiting_lanes(loaded, topic, subscription, names)]


class _LaneRelease:
    """Release of one lane after the other. `interrupted`: Ctrl-C ended the run, and further lanes are left out."""

    def __init__(
        self,
        target: TargetOptions,
        plans: Path,
        where: str,
        because: str,
        rate: str,
        pace: SendPace,
        ledger: str,
        names: list[str] | None,
    ) -> None:
        self._target, self._plans, self._where, self._because = target, plans, where, because
        self._rate, self._pace, self._ledger, self._names = rate, pace, ledger, names
        self._kept = threading.Event()  # the pause of the stored plan's run stays, or may
        self.interrupted = False

    def run(self, loaded: LoadedTopology, lane: WaitingLane) -> Iterator[LaneReleaseRow]:
        """Carries out the plan that an earlier run left, and yields a row for it. Then, if that plan is complete,
        releases the messages that wait now, with as many plans as they need, and yields one row for them, before an
        exception only if something was released.
        """
        with self._target.session() as session:
            file = self._file(session, lane)
        if file.exists():
            row = LaneReleaseRow(lane.lane, self._earlier_run(file, loaded, lane))
            tell(f"{lane.lane}: going on with the plan that run {row.earlier_run} left in {file}")
            self._attempt(file, row)
            row.complete = row.complete and not self.interrupted
            yield row
            if not row.complete:
                return
        row = LaneReleaseRow(lane.lane)
        try:
            self._release(loaded, lane, file, row)
        except BaseException:
            if row.released or row.problems:  # by an earlier plan of the same lane
                row.complete = False
                yield row
            raise
        yield row

    def _earlier_run(self, file: Path, loaded: LoadedTopology, lane: WaitingLane) -> str:
        """The id of the run that left a plan. Raises RefusedError if the plan differs from this run's options."""
        from kodoctl.recall.plan import recall_plan_file

        found = recall_plan_file.loads(read_plan_text(str(file), "kodoctl waiting release"), str(file))
        if different := _differences(found, loaded, lane, self._where):
            detail = [f"{lane.lane}: {file} was left by run {found.run}, and does something else; nothing was sent"]
            detail += [f"{name}: {there!r} there, {asked!r} in this run" for name, there, asked in different]
            detail.append("run that command again, which finishes it, or remove the file, if you do not know it")
            raise RefusedError(error("K591", "another release is not finished", "\n".join(detail)))
        return found.run

    def _release(self, loaded: LoadedTopology, lane: WaitingLane, file: Path, row: LaneReleaseRow) -> None:
        while row.complete and not self.interrupted:
            with self._target.session() as session:
                made = self._plan_release(session, loaded, lane)
            row.stays = _stays(made)
            if made.empty:
                break
            self._store(made, file)
            try:
                self._attempt(file, row)
            finally:
                self._forget_unsent(made, file)
            if "beyond" not in row.stays:
                break
        row.complete = row.complete and not self.interrupted

    def _plan_release(self, session: Session, loaded: LoadedTopology, lane: WaitingLane) -> RecallPlan:
        from kodoctl.documents.recall_document import MAX_LETTERS
        from kodoctl.recall.plan.recall_plan import RecallAction

        return plan_lane(
            session, loaded, lane, RecallAction.RELEASE, self._where, MAX_LETTERS, self._because, self._ledger
        )

    def _file(self, session: Session, lane: WaitingLane) -> Path:
        """File of the plan of one lane and cluster; at most one plan of them exists at a time."""
        name = f"{session.connection.admin_url}|{lane.source_topic}|{lane.holder}"
        return self._plans / f"{lane.lane.replace('/', '-')}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"

    def _store(self, made: RecallPlan, file: Path) -> None:
        from kodoctl.recall.plan import recall_plan_file

        try:
            make_private(file.parent)
        except OSError as problem:
            detail = f"{file.parent}: {problem.strerror}"
            raise UsageError(error("K535", "the plan file cannot be written", detail)) from None
        if file.exists():
            detail = f"another run of this command stored its plan in {file} meanwhile; nothing was sent by this one"
            raise LockedError(error("K563", "another recall is running", detail))
        self._kept.clear()
        write_plan_text(recall_plan_file.dumps(made), str(file))

    def _forget_unsent(self, made: RecallPlan, file: Path) -> None:
        """Deletes the plan's file if nothing was sent: the next run starts afresh and may choose other messages. Not
        while the pause of the plan's run stays, which no other plan can end.
        """
        from kodoctl.recall.ledger.delta_ledger import DeltaLedger

        if not self._kept.is_set() and file.exists() and not may_have_sent(made, DeltaLedger(self._ledger)):
            file.unlink(missing_ok=True)

    def _attempt(self, file: Path, row: LaneReleaseRow) -> None:
        flags = ApplyFlags(str(file), self._rate, self._ledger, max_age=_RESUMED, confirm_name=self._names)
        with approved_plan(self._target, flags, Format.JSON, waiting=True) as approved:
            done = send_paused(approved, self._pace, kept=self._kept)
        report = done.report
        row.released += report.sent + report.had_already + report.already
        row.problems += [*report.refused, *report.unclear, *report.elsewhere, *report.stored_twice]
        row.seconds = round(row.seconds + done.seconds, 3)
        self.interrupted = self.interrupted or report.interrupted
        row.complete = report.complete and not done.stays_paused
        if not (done.stays_paused or _goes_on(report)):
            file.unlink(missing_ok=True)


def _differences(
    plan: RecallPlan, loaded: LoadedTopology, lane: WaitingLane, where: str
) -> list[tuple[str, object, object]]:
    """Compares a plan with a release of a lane. Returns for each difference its name, the plan's value and the
    release's value. The cluster is not compared here: that happens when the plan is carried out.
    """
    from kodoctl.recall.plan.recall_plan import RecallAction

    facts: dict[str, tuple[object, object]] = {
        "action": (plan.action, RecallAction.RELEASE),
        "condition": (plan.where, where),
        "topology file": (plan.path, loaded.source.name),
        "environment": (plan.environment, loaded.environment),
        "topic": (plan.topic, lane.ground),
        "subscription": (plan.subscription, lane.subscription),
        "lane": (plan.lane, lane.lane),
        "source": ((plan.source_topic, plan.holder), (lane.source_topic, lane.holder)),
        "further targets": ({one.topic for one in plan.lanes} - {lane.source_topic}, set()),
        "patch of payloads": (plan.edit, None),
        "sent again": (plan.again, False),
    }
    return [(name, there, asked) for name, (there, asked) in facts.items() if there != asked]


def _goes_on(report: SendReport) -> bool:
    """True if another attempt at the same plan has something to do: the lane stays paused until then."""
    return bool(report.interrupted or report.unacknowledged or report.in_doubt or report.unclear)


def _stays(made: RecallPlan) -> dict[str, int]:
    """Number of messages that stay in the lane, by reason."""
    summary = made.summary
    found = Counter(summary["left_out"])
    found["other"] = summary["read"] - summary["matched"]
    return {why: count for why, count in found.items() if count}
