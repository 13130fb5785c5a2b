# adapter: moves cursors on the broker
"""Run of a replay, or of its undo: while the lanes are paused, cursors move back, and entries that must not come again
are acknowledged.

The positions before the replay are in the journal before the first cursor moves, and each move is there before and
after it happens. Every step can be repeated: killed at any time, the same command continues, and the lanes stay paused
until it is complete. If somebody resumed them meanwhile, the journal shows which cursors moved, so that no message
comes a third time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kodoctl.documents.replay_document import ReplayReport
from kodoctl.errors import ClusterError, KodoctlError, RefusedError, UsageError, error
from kodoctl.pulsar.admin.admin import Admin, subscription_path
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, poll_until, write_confirmed
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.entry_runs import acknowledged, common, entry_count, from_rows, without
from kodoctl.recall.plan.replay_history import Phase, begin_entry, phase_entry
from kodoctl.recall.plan.replay_plan import PartitionState, part_of, replay_of, undo_of, why_stale
from kodoctl.text.formatting import many
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    from kodoctl.documents.replay_document import ReplayPartition, ReplayPlanDocument
    from kodoctl.pulsar.binary.message_reader import Place
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.plan.entry_runs import Runs
    from kodoctl.recall.plan.replay_history import CursorMoved, ReplayRecord
    from kodoctl.recall.send.lane_pause import LanePause

_CONFIRM_S: Final = 30.0  # seconds until a broker has to show acknowledgements that were sent


@dataclass(frozen=True, slots=True)
class ReplayLane:
    """A ready lane of a replay plan, which is paused while its cursors move (implements `LaneToPause`, whose members
    its fields are).
    """

    run: str
    lane: str
    topic: str
    subscription: str
    source_topic: str
    holder: str


def lanes_of(plan: ReplayPlanDocument) -> list[ReplayLane]:
    """The lanes of a plan, each once, for their pauses."""
    topics = {one["lane"]: one["topic"] for one in plan["partitions"]}
    subscription = plan["subscription"]
    return [
        ReplayLane(plan["run"], lane, plan["topic"], subscription, topic, subscription)
        for lane, topic in topics.items()
    ]


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """Tools of an attempt at a replay.

    Args:
        admin: checks the lease before each write.
        pauses: one for each lane of the plan (`lanes_of`).
        record: writes an entry into the journal, and returns when it is stored.
        who: the user, as text.
        wait: ms that workers may take to leave each lane.
        tell: takes lines for people.
    """

    plan: ReplayPlanDocument
    admin: Admin
    cluster: RecallCluster
    pauses: Sequence[LanePause]
    record: Callable[[Mapping[str, Any]], None]
    who: str
    wait: int
    tell: Callable[[str], None]


def apply_replay(work: ReplayWork, earlier: ReplayRecord | None) -> ReplayReport:
    """Carries out a plan, and returns the report. `earlier`: record of an earlier attempt at the plan, in the state
    `incomplete`; None: none has begun.

    Before this attempt changes the journal or a cursor, raises the errors of `LanePause.begin`, and without `earlier`
    also RefusedError (K595) if the plan does not fit the cluster (`why_stale`), the errors of `begin_entry`,
    ClusterError and LockedError; it ends its new pauses then. After that, raises ClusterError or LockedError, or
    returns a report with `problems`: the lanes stay paused, and the same command, run again, continues.
    """
    plan, report = work.plan, ReplayReport(work.plan["run"], "replay")
    if earlier is None:
        try:
            _check_state(work)
        except RefusedError:
            _end_pauses(work)
            raise
    with _Paused(work) as paused:
        if earlier is None:
            before = {part: state.acknowledged for part, state in _check_state(work).items()}
            work.record(begin_entry(plan, before, work.who, _now()))
            moves: Mapping[str, CursorMoved] = {}
        else:
            before, moves = dict(earlier.before), earlier.moves
        paused.has_begun = True
        for one in plan["partitions"]:
            _replay_partition(work, one, before[part_of(one)], moves.get(part_of(one)), report)
            report.partitions += 1
        _end(work, paused, report, Phase.END)
    return report


def undo_replay(work: ReplayWork, earlier: ReplayRecord) -> ReplayReport:
    """Takes a replay back, and returns the report: entries that were acknowledged before the replay, and are still
    stored, are acknowledged again. `earlier`: its record, in any state but `undone`. A partition whose topic or
    subscription is gone is left out, and `tell` gets a line about it.

    The lanes are paused meanwhile, and stay paused if the report has `problems` or if the undo fails after it began.
    Raises LockedError, ClusterError, and the errors of `LanePause.begin`.
    """
    report = ReplayReport(work.plan["run"], "undo")
    with _Paused(work) as paused:
        report.again_done = earlier.again_done if earlier.state == "undoing" else _again_done(work, earlier)
        work.record(phase_entry(earlier.run, Phase.UNDOING, _now(), again_done=report.again_done))
        paused.has_begun = True
        for one in work.plan["partitions"]:
            part, now = part_of(one), _state(work, one)
            if now is None:
                work.tell(f"{part}: the subscription or its topic is not there any more, so nothing of it comes again")
                continue
            missing = undo_of(earlier.before[part], now)
            report.entries += entry_count(missing)
            _acknowledge(work, one, missing, report)
            report.partitions += 1
        _end(work, paused, report, Phase.UNDONE)
    return report


def _again_done(work: ReplayWork, earlier: ReplayRecord) -> int:
    """Number of entries that were handled a second time: those of the plan that are acknowledged, in partitions whose
    cursor has moved.
    """
    count = 0
    for one in work.plan["partitions"]:
        move = earlier.moves.get(part_of(one))
        if (earlier.state == "complete" or (move is not None and move.is_sure)) and (now := _state(work, one)):
            count += entry_count(common(from_rows(one["again"]), now.acknowledged))
    return count


def _end_pauses(work: ReplayWork) -> None:
    """Ends the pauses of an attempt that was killed before it changed anything: the plan fits no more, so no later
    attempt would.
    """
    for pause in work.pauses:
        if text := pause.end_left():
            work.tell(text)


class _Paused:
    """Context in which the lanes are paused. `has_begun`: cursors may have moved, so that the lanes stay paused after a
    failure; `is_complete`: nothing is left to do, so that they are resumed.
    """

    def __init__(self, work: ReplayWork) -> None:
        self._work = work
        self._entered: list[LanePause] = []
        self.has_begun = self.is_complete = False

    def __enter__(self) -> Self:
        try:
            for pause in self._work.pauses:
                pause.begin(self._work.wait)
                self._entered.append(pause)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        failure: KodoctlError | None = None
        for pause in self._entered:
            try:
                text = pause.finish() if self.is_complete else pause.keep() if self.has_begun else pause.give_up()
            except KodoctlError as problem:
                failure, text = problem, pause.keep()
            if text:
                self._work.tell(text)
        if failure is not None:
            raise failure


def _end(work: ReplayWork, paused: _Paused, report: ReplayReport, phase: Phase) -> None:
    """Records the end, unless something is left to do."""
    if not report.problems:
        work.record(phase_entry(work.plan["run"], phase, _now()))
        report.complete = paused.is_complete = True


def _now() -> int:
    return int(time.time() * 1000)


def _state(work: ReplayWork, partition: ReplayPartition) -> PartitionState | None:
    """Present state of a partition; None: there is no such partition, or it lacks the subscription."""
    try:
        facts = work.cluster.facts(part_of(partition))
    except UsageError:
        return None
    cursor = facts.cursors.get(work.plan["subscription"])
    return None if cursor is None else PartitionState(facts.ledgers, acknowledged(facts.ledgers, cursor))


def _check_state(work: ReplayWork) -> dict[str, PartitionState]:
    """Reads the states of all partitions, by full name. Raises RefusedError with every difference from the plan."""
    counts: dict[str, int | None] = {}
    for topic in {one["topic"] for one in work.plan["partitions"]}:
        try:
            counts[topic] = work.cluster.partitions(topic)
        except UsageError:
            counts[topic] = None
    found, problems = {}, []
    for one in work.plan["partitions"]:
        state = _state(work, one)
        if problem := why_stale(one, counts[one["topic"]], state):
            problems.append(problem)
        elif state is not None:
            found[part_of(one)] = state
    if problems:
        detail = "\n".join([*dict.fromkeys(problems), "plan again; nothing was changed"])
        raise RefusedError(error("K595", "the cluster changed since the replay plan", detail))
    return found


def _replay_partition(
    work: ReplayWork, one: ReplayPartition, before: Runs, earlier: CursorMoved | None, report: ReplayReport
) -> None:
    """Replays one partition. `earlier`: move of its cursor by an attempt that was not complete, None:
    there was none.
    """
    part = part_of(one)
    now = _state(work, one)
    if now is None:
        raise _lost(f"{part}: the subscription or its topic is not there any more")
    pause = next(pause for pause in work.pauses if pause.lane == one["lane"])
    has_moved = earlier is not None and earlier.is_possible(pause.stood)
    replay, again = replay_of(one, before, now, has_moved=has_moved), from_rows(one["again"])
    is_open = bool(without(common(again, now.stored), now.acknowledged))
    if earlier is not None and has_moved and not earlier.is_sure and not is_open:
        report.unclear.append(f"{part}: {many(entry_count(again), 'entry', 'entries')}")
    if replay.to is not None:
        work.record(phase_entry(work.plan["run"], Phase.MOVING, _now(), partition=part, paused=pause.began))
        _move(work, one, replay.to, again)
        now = _state(work, one)
    removed = 0 if has_moved else entry_count(without(again, now.stored if now else ()))
    if removed:
        work.tell(f"{part}: {many(removed, 'entry was', 'entries were')} removed before the cursor moved: retention")
    if earlier is None or not earlier.is_sure:
        work.record(phase_entry(work.plan["run"], Phase.MOVED, _now(), partition=part))
    _acknowledge(work, one, replay.acknowledge, report)
    report.entries += entry_count(again) - removed
    report.kept += entry_count(replay.acknowledge)


def _move(work: ReplayWork, one: ReplayPartition, to: Place, again: Runs) -> None:
    """Moves the cursor of a partition to an entry, which is the first to come. Raises ClusterError."""
    topic = TopicName.parse(one["topic"])
    path = f"{subscription_path(topic, work.plan['subscription'], one['partition'])}/resetcursor"
    body = {"ledgerId": to[0], "entryId": to[1], "partitionIndex": -1, "batchIndex": -1, "isExcluded": False}

    def has_moved() -> bool:
        now = _state(work, one)
        return now is not None and not common(again, now.acknowledged)

    try:
        write_confirmed(work.admin, "POST", path, body, done=has_moved)
    except WriteFailedError as problem:
        raise _lost(f"{part_of(one)}: the cursor does not move: {problem}") from None
    if not poll_until(has_moved):
        raise _lost(f"{part_of(one)}: the broker does not show the cursor at {to[0]}:{to[1]}")


def _lost(detail: str) -> ClusterError:
    return ClusterError(error("K593", "replay that cannot be carried out", detail))


def _acknowledge(work: ReplayWork, one: ReplayPartition, runs: Runs, report: ReplayReport) -> None:
    """Acknowledges entries of a partition as their exclusive consumer, and waits until the broker shows it. Adds a
    problem to the report if it does not. Raises LockedError, ClusterError.
    """
    if not runs:
        return
    part = part_of(one)
    consumer = work.cluster.hold(part, work.plan["subscription"])
    try:
        for place in _places(runs, one["partition"]):
            consumer.acknowledge(work.cluster.token(place))
    finally:
        consumer.close()

    def is_shown() -> bool:
        now = _state(work, one)
        return now is not None and not without(common(runs, now.stored), now.acknowledged)

    if not poll_until(is_shown, seconds=_CONFIRM_S):
        entries = many(entry_count(runs), "entry", "entries")
        report.problems.append(f"{part}: the broker does not show that all of {entries} are acknowledged")


def _places(runs: Runs, partition: int) -> Iterable[Position]:
    return (Position(partition, run.ledger, entry) for run in runs for entry in range(run.first, run.last + 1))
