# pure: every branch is tested
"""Replays in the journal of a namespace: which entries a subscription had acknowledged before each, so that an attempt
can be continued and undone. Other readers of the journal pass these entries over.

Every client that may produce to the journal may write into it, so an invalid entry is left out, and what a plan in it
names is compared with the cluster before anything is written. A replay of a newer kodoctl cannot be read: it is told,
and while it is the latest one, `last` means none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.pulsar.values import packed_text
from kodoctl.recall.plan.entry_runs import Runs, from_rows, to_rows
from kodoctl.recall.plan.replay_plan import parse, part_of
from kodoctl.text.escaping import one_line
from kodoctl.topology.names import InvalidNameError, TopicName

if TYPE_CHECKING:
    from kodoctl.documents.replay_document import ReplayPlanDocument, ReplayRow, ReplayState

KIND: Final = "replay"
VERSION: Final = 1
_MAX_RUN: Final = 64  # characters of the run of a newer kodoctl
_MOST_PACKED: Final = 4 << 20  # bytes of an entry; a broker takes messages of 5 MiB
Json = dict[str, Any]


class Phase(StrEnum):
    """Phases of a replay, as its entries in the journal name them: BEGIN once, before the first cursor moves; for each
    partition MOVING before its cursor moves, and MOVED when it has moved; END when nothing is left to do. If the replay
    is undone, UNDOING at each attempt, and UNDONE when nothing is left to undo. An attempt that continues another one
    may write MOVING and MOVED again.
    """

    BEGIN = "begin"
    MOVING = "moving"
    MOVED = "moved"
    END = "end"
    UNDOING = "undoing"
    UNDONE = "undone"


class CursorMoved(NamedTuple):
    """Move of one partition's cursor, from the journal. `is_sure`: the journal says that the cursor has moved; False:
    an attempt ended before it wrote that, so that the cursor may have moved or not. `paused`: when the pause of the
    lane began under which it was to move, ms since the epoch; 0 if `is_sure`.
    """

    paused: int
    is_sure: bool

    def is_possible(self, pause: int | None) -> bool:
        """True if the cursor has moved by the journal, or may have moved, although all messages of the plan are
        acknowledged now: workers may have handled them again. `pause`: begin of the pause that the next attempt finds,
        ms since the epoch; None: it found none. Under the same pause as before, which any number of attempts may
        continue, no worker has handled a message, so that acknowledged messages show that the cursor has not moved.
        """
        return self.is_sure or pause != self.paused


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """A replay from the journal.

    Args:
        began: ms since the epoch.
        who: the user who began it, as text, at most 200 characters.
        before: by partition of the plan (full name), the entries that were acknowledged before its first cursor moved.
        state: how far it came.
        moves: by partition (full name), the move of its cursor that was made or about to be made; partitions without
            one are absent.
        again_done: number of entries that had been handled a second time when the undo began; 0 before that.
    """

    plan: ReplayPlanDocument
    began: int
    who: str
    before: Mapping[str, Runs]
    state: ReplayState = "incomplete"
    moves: Mapping[str, CursorMoved] = field(default_factory=dict)
    again_done: int = 0

    @property
    def run(self) -> str:
        """Id of the replay."""
        return self.plan["run"]

    def row(self) -> ReplayRow:
        """The replay as JSON."""
        messages = sum(one["messages"] for one in self.plan["partitions"])
        return {
            "run": self.run,
            "began": self.began,
            "who": self.who,
            "topic": self.plan["topic"],
            "subscription": self.plan["subscription"],
            "messages": messages,
            "because": self.plan["because"],
            "state": self.state,
        }


@dataclass(frozen=True)
class Replays(Mapping[str, ReplayRecord]):
    """Replays in the journal of a namespace by their run, oldest first. `newer`: runs of a newer kodoctl, which cannot
    be read and are not among them (cut to 64 characters), oldest first; `is_last_newer`: the latest of all is one of
    these.
    """

    records: Mapping[str, ReplayRecord]
    newer: tuple[str, ...] = ()
    is_last_newer: bool = False

    def __getitem__(self, run: str) -> ReplayRecord:
        return self.records[run]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def unread(self) -> Iterator[str]:
        """Yields a text about each replay of a newer kodoctl."""
        yield from (f"replay {run}: a newer kodoctl made it, and this one cannot read it" for run in self.newer)


def begin_entry(plan: ReplayPlanDocument, before: Mapping[str, Runs], who: str, at: int) -> Json:
    """Makes the entry that is written before the first cursor moves. `before`: acknowledged entries of each partition
    of the plan, by its full name; `who`: name of the caller; `at`: ms since the epoch. Raises UsageError (K593) if the
    plan and these entries are in so many pieces that they do not fit into one entry.
    """
    document = json.dumps({"plan": plan, "before": {part: to_rows(runs) for part, runs in before.items()}})
    packed = packed_text.pack(document.encode(), 6)
    if len(packed) > _MOST_PACKED:
        detail = "the positions before it do not fit into the journal: replay a shorter time; nothing was changed"
        raise UsageError(error("K593", "replay that cannot be carried out", detail))
    return {**_entry(plan["run"], Phase.BEGIN, at), "who": who, "packed": packed}


def phase_entry(run: str, phase: Phase, at: int, **more: str | int) -> Json:
    """Makes the entry of a phase after BEGIN. `at`: ms since the epoch; `more`: `partition` (full name) and `paused`
    (see CursorMoved) of MOVING, `partition` of MOVED, `again_done` of UNDOING.
    """
    return {**_entry(run, phase, at), **more}


def _entry(run: str, phase: Phase, at: int) -> Json:
    return {"kind": KIND, "v": VERSION, "run": run, "phase": phase.value, "at": at}


def read_replays(entries: Iterable[Mapping[str, Any]], namespace: str) -> Replays:
    """Returns the replays in the journal of a namespace. `entries`: all entries of the journal, oldest first;
    `namespace`: with its Pulsar tenant. An invalid entry is ignored, and so are all entries of a replay whose first one
    (BEGIN) is missing or invalid, or names another namespace, a topic of another one, or an invalid ground topic.
    """
    found: dict[str, ReplayRecord] = {}
    newer: dict[str, None] = {}
    is_last_newer = False
    for entry in entries:
        run, version = entry.get("run"), entry.get("v")
        if entry.get("kind") != KIND or not isinstance(run, str):
            continue
        if version != VERSION:
            if isinstance(version, int) and version > VERSION and entry.get("phase") == Phase.BEGIN:
                newer[one_line(run, _MAX_RUN)], is_last_newer = None, True
            continue
        known = found.get(run)
        if known is not None:
            found[run] = _later(known, entry)
        elif entry.get("phase") == Phase.BEGIN and (record := _record(entry, namespace)) and record.run == run:
            found[run], is_last_newer = record, False
    return Replays(found, tuple(newer), is_last_newer)


def _later(known: ReplayRecord, entry: Mapping[str, Any]) -> ReplayRecord:
    """The record after a further entry of its run."""
    part = str(entry.get("partition"))
    match entry.get("phase"), known.state:
        case Phase.MOVING, "incomplete" if part in known.before and isinstance(entry.get("paused"), int):
            return replace(known, moves={**known.moves, part: CursorMoved(entry["paused"], is_sure=False)})
        case Phase.MOVED, "incomplete" if part in known.before:
            return replace(known, moves={**known.moves, part: CursorMoved(0, is_sure=True)})
        case Phase.END, "incomplete":
            return replace(known, state="complete")
        case Phase.UNDOING, "incomplete" | "complete" if isinstance(entry.get("again_done"), int):
            return replace(known, state="undoing", again_done=entry["again_done"])
        case Phase.UNDONE, _:
            return replace(known, state="undone")
        case _:
            return known  # a second attempt at it, or of a later kodoctl


def _record(entry: Mapping[str, Any], namespace: str) -> ReplayRecord | None:
    try:
        document = json.loads(packed_text.unpack(entry["packed"]))
        plan = parse(document["plan"], "the journal")
        before = {part_of(one): from_rows(document["before"][part_of(one)]) for one in plan["partitions"]}
        places = {str(TopicName.parse(one["topic"]).namespace) for one in plan["partitions"]}
        TopicName.parse(f"{namespace}/{plan['topic']}")  # raises: the name becomes a part of paths
        if places != {namespace} or plan["namespace"] != namespace:
            return None
        return ReplayRecord(plan, int(entry["at"]), str(entry["who"])[:200], before)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, KodoctlError, InvalidNameError):
        return None


def find_replay(found: Replays, name: str, namespace: str) -> ReplayRecord:
    """Finds the replay whose run is `name`, else the one whose run begins with it, or for `last` the latest one of the
    namespace, even if it is undone, so that a repeated command takes back no earlier one. Raises UsageError (K596) if
    no run fits or several do, if `last` is a replay of a newer kodoctl, or if neither the replay nor a later one of the
    same subscription is undone: the later one has to be undone first. Replays of a newer kodoctl never count as later
    ones, because their subscription is not known.
    """
    known = list(found.values())
    if name == "last" and found.is_last_newer:
        latest = f"the latest in {namespace}, {found.newer[-1]}, was made by a newer kodoctl"
        detail = f"{latest}: undo it with that one, or name an earlier replay by its run"
        raise UsageError(error("K596", "replay not found", detail))
    open_ = [one for one in known if one.state != "undone"]
    if name in found:
        fitting = [found[name]]
    else:
        fitting = known[-1:] if name == "last" else [one for one in known if one.run.startswith(name)]
    if len(fitting) != 1:
        begin = "several replays begin" if fitting else "no replay begins"
        latest = ", ".join(one.run for one in known[-5:])
        detail = f"{begin} with {name!r}; the latest: {latest}" if known else f"there was no replay in {namespace} yet"
        raise UsageError(error("K596", "replay not found", detail))
    chosen = fitting[0]
    if chosen in open_ and (later := later_run(found, chosen)):
        detail = f"{later} is a later replay of the same subscription: undo that one first"
        raise UsageError(error("K596", "replay not found", detail))
    return chosen


def later_run(found: Mapping[str, ReplayRecord], record: ReplayRecord) -> str:
    """Id of the latest replay of the same subscription that began after `record`, one of `found`, and is not undone; ""
    if there is none that this kodoctl can read. To continue or undo `record` would acknowledge messages that the later
    replay delivers again.
    """
    known = list(found.values())
    later = known[known.index(record) + 1 :]
    return next((one.run for one in reversed(later) if one.state != "undone" and _same(one, record)), "")


def _same(one: ReplayRecord, other: ReplayRecord) -> bool:
    return (one.plan["topic"], one.plan["subscription"]) == (other.plan["topic"], other.plan["subscription"])
