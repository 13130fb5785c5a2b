"""Scope of an audit: subscriptions, coverage and cursors of each partition, and lanes with the subscription that is
responsible for their messages. Pure: the input is rows of the landed tables and the topology; the output is facts for
the verdict and rows for the transforms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kodo_pipeline.evidence.audit_evidence import PartitionCoverage
from kodo_pipeline.evidence.continuity import is_contiguous, nothing_trimmed
from kodo_pipeline.evidence.partition_history import CursorSnapshot, Key, PartitionHistory
from kodo_pipeline.evidence.start_positions import (
    UNRECORDED,
    WAITS,
    CompleteTrail,
    audit_complete_since,
    complete_trails,
    proven_ranges,
    unproven_before,
)
from kodo_pipeline.source.splits import Place, nothing_deleted
from kodoctl.topology import defaults
from kodoctl.topology.names import HOLDER, Level, State, partition_numbers
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.model.topology import Subscription

GRACE: Final = Duration(600_000)  # what a message may be open beyond its horizon: workers are busy, or starting
NAMELESS: Final = ""  # of the row of cursors that each partition has, whatever subscriptions it has: what is stored
_PROVEN: Final = ("after_ledger", "after_entry", "last_ledger", "last_entry")
Mode = Literal["wait", "best_effort", "none"]


@dataclass(frozen=True, slots=True)
class AuditedSubscription:
    """A subscription of the topology that an audit judges, even if it keeps no audit records.

    `number`: its index, from 0, among all subscriptions in the order of the file, the column `family` of rows; `topic`:
    name of the ground topic in the file; `mode`: how much its audit records prove, as `mode_of` says.
    """

    number: int
    topic: str
    subscription: str
    mode: Mode


class AuditSince(NamedTuple):
    """Facts about the audit records of a subscription. `since`: result of
    kodo_pipeline.evidence.start_positions.audit_complete_since; `unheard`: ids of the ingests that read messages whose
    audit records may have been deleted unread; `ended`: complete audit trails that have ended, ascending.
    """

    since: int | None
    unheard: set[str]
    ended: Sequence[CompleteTrail]


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Scope of an audit: subscriptions (`families`), coverage of partitions (`parts`), and `lanes`, the rows of
    kodo_pipeline.audit.positions.LANES with the lane's `name`. `sources`: names of the sources of change data.
    """

    families: tuple[AuditedSubscription, ...]
    parts: tuple[PartitionCoverage, ...]
    lanes: tuple[dict[str, Any], ...] = field(repr=False)
    sources: tuple[str, ...] = ()


def audit_scope(
    expansion: Expansion, readings: Mapping[Key, PartitionHistory], left: Mapping[str, str] = MappingProxyType({})
) -> AuditScope:
    """Makes the scope of an audit of a whole topology, with every partition of the topics that the file declares, also
    those beyond the declared number that were read. Readings of other topics get no part and no lane, and neither does
    that of a plain topic (PLAIN) if the file, or another reading, says that its topic has numbered partitions.
    `readings`: history of each partition; `left`: partitions that the last run did not read, by full name, with the
    reason.
    """
    grounds = expansion.topology.spec.topics
    families = {
        (topic, name): AuditedSubscription(number, topic, name, mode_of(spec))
        for number, (topic, name, spec) in enumerate(
            (topic, name, spec) for topic, ground in grounds.items() for name, spec in ground.subscriptions.items()
        )
    }
    proved = {key for key, family in families.items() if family.mode == "wait"}
    looks = {look for reading in readings.values() for look in reading.looks}
    waited: dict[tuple[str, str], set[int]] = defaultdict(set)
    unheard: dict[tuple[str, str], set[str]] = defaultdict(set)
    parts, lanes = [], []
    there: dict[str, int] = defaultdict(int)  # a topic may have more partitions than the file says
    for name, number in readings:
        there[name] = max(there[name], number + 1)
    last = max(looks, default=0)
    topics = sorted(expansion.topics, key=lambda one: one.state is not None)  # audit topics first
    for topic in topics:
        for number in partition_numbers(max(topic.resource.partitions, there.get(topic.name.full, 0))):
            reading = readings.get((topic.name.full, number), PartitionHistory())
            part, covered = _part(expansion, topic, number, reading, last)
            part = replace(part, left=left.get(part.name, ""))
            parts.append(part)
            if topic.state is None:
                whose = (topic.ground, topic.subscription or "")
                if not (covered and part.read) or part.read_before_cursors or part.absent:
                    proved.discard(whose)
                unheard[whose] |= _unheard(reading)
                waited[whose] |= {mark.taken for mark in reading.marks if mark.audit == WAITS}
                continue
            for name in _answering(expansion, topic):
                whose = (topic.ground, name)
                trails = complete_trails(looks, waited[whose])
                since = audit_complete_since(looks, trails)
                heard = AuditSince(since, unheard[whose], trails if since is None else trails[:-1])
                lanes.append(
                    _lane(expansion, topic, families[whose], number, reading, part, heard) | {"covered": covered}
                )
    for at, lane in enumerate(lanes):
        lane["lane"], lane["proved"] = at, (lane["topic"], lane["subscription"]) in proved
    return AuditScope(tuple(families.values()), tuple(parts), tuple(lanes), tuple(expansion.topology.spec.sources))


def mode_of(subscription: Subscription) -> Mode:
    """Audit mode that the file gives a subscription: `wait` (workers acknowledge a message only when its record is
    stored), `best_effort`, or `none`.
    """
    audit = defaults.audit(subscription)
    if audit is None:
        return "none"
    return WAITS if audit.mode == WAITS else "best_effort"


def lane_name(topic: FamilyTopic) -> str:
    """Name of a topic's lane: such as `L1/retrying`, or `dead` for dead letters. Not for audit topics."""
    return f"{topic.level}/{topic.state}" if topic.level else str(topic.state)


def _answering(expansion: Expansion, topic: FamilyTopic) -> list[str]:
    if topic.subscription is not None:
        return [topic.subscription]
    return list(expansion.topology.spec.topics[topic.ground].subscriptions)


def _cursor_name(topic: FamilyTopic, subscription: str) -> str:
    return HOLDER if topic.state is State.DEAD else subscription


def _part(
    expansion: Expansion, topic: FamilyTopic, number: int, reading: PartitionHistory, last: int
) -> tuple[PartitionCoverage, bool]:
    """(coverage of the partition for the verdict, True if every message in its range must have been seen). `last`: time
    of the last run. Each run reads every partition that exists.

    For topics that no producer writes to, an unknown beginning or ranges that may not be contiguous are no problem: a
    record names every message that was moved there, and one that was not read and has no later record is not counted
    as done.
    """
    short = tuple(
        f"entries {_place_text(one.first)} to {_place_text(one.last)}: {one.state}, {one.seen:,} of {one.planned:,} seen"
        for one in reading.ranges
        if not one.full
    )
    short += tuple(f"entries were gone before they were read by ingest {run}" for run in reading.holed)
    if len(made := sorted({mark.created for mark in reading.marks if mark.created is not None})) > 1:
        times = ", ".join(one.isoformat() for one in made)
        short += (f"it was deleted and made again between two readings, or is another cluster's (made {times})",)
    apart = tuple(
        f"between {_place_text(one.last)} and {_place_text(other.first)} something may be missing: the ranges do not continue each other"
        for one, other in pairwise(reading.ranges)
        if not is_contiguous(reading, one, other)
    )
    ready = topic.state is State.READY
    looks = reading.looks
    there = reading.at(looks[-1]) if looks else {}
    names = {_cursor_name(topic, name) for name in _answering(expansion, topic)} if topic.state is not None else set()
    found = PartitionCoverage(
        topic=topic.name.full,
        partition=number,
        entries_planned=sum(one.planned for one in reading.ranges),
        entries_seen=sum(one.seen for one in reading.ranges),
        problems=short + (apart if ready else ()),
        read=bool(reading.ranges or reading.marks or reading.holed),
        from_creation=not ready or _whole(reading),
        read_before_cursors=_lags(reading, there.values()),
        ttl=max((mark.ttl for mark in there.values()), default=0),
        looks=tuple(looks),
        unread=max((after - before for before, after in pairwise(looks)), default=0),
        missing_subscriptions=tuple(sorted(names - there.keys())) if looks or reading.ranges else (),
        audit=topic.state is None,
        unrecorded=_unrecorded_subscription(topic, there),
        absent=bool(looks or reading.ranges) and max(looks, default=0) < last,
    )
    return found, not short and not apart


def _unrecorded_subscription(topic: FamilyTopic, there: Mapping[str, CursorSnapshot]) -> str:
    known = there.get(NAMELESS)
    return topic.subscription or "" if known is not None and known.audit == UNRECORDED else ""


def _place_text(position: Place) -> str:
    return f"{position[0]}:{position[1]}"


def _whole(reading: PartitionHistory) -> bool:
    """True if the partition was read from its creation on: at the first snapshot no ledger had ever been deleted, and
    the first range continues from there.
    """
    looks = sorted(
        {(one.taken, one.run, one.first_ledger, one.rewrites) for one in reading.marks}, key=lambda one: one[0]
    )
    if not looks or not nothing_deleted(0, looks[0][3]):
        return False
    begin = (looks[0][2], -1)
    start = reading.ranges[0] if reading.ranges else None
    if start is not None and start.first[1] != 0:
        return False
    if (start is not None and start.first[0] == begin[0]) or (
        reading.stored_from is not None and reading.stored_from <= begin[0]
    ):
        return True
    run = start.run if start is not None else looks[-1][1]
    if nothing_trimmed(reading, run, begin):
        return True
    until = next((at for at, look in enumerate(looks) if look[1] == run), None)
    if until is None or (start is not None and start.first[0] != looks[until][2]):
        return False
    return all(nothing_deleted(one[3], other[3]) for one, other in pairwise(looks[: until + 1]))


def _lags(reading: PartitionHistory, marks: Iterable[CursorSnapshot]) -> bool:
    """True if a message was acknowledged, or stored, after the end of the positions that were read. A run fixes the
    ends after it reads the cursors, so such a cursor means that a part of the reading is missing in this landing.
    """
    end = reading.ranges[-1].last if reading.ranges else (-1, -1)
    return any(
        place > end and place[1] >= 0 and place[0] >= mark.first_ledger
        for mark in marks
        for place in (mark.mark, *((ledger, first) for ledger, first, _ in mark.acknowledged))
    )


def _unheard(reading: PartitionHistory) -> set[str]:
    """Returns the ingest runs whose audit records may have been deleted unread, for one partition of an audit topic:
    all runs up to the first that read the partition. Empty if the partition was read from its creation on.
    """
    if _whole(reading):
        return set()
    runs = list(reading.runs)
    first = reading.ranges[0].run if reading.ranges else None
    return {*runs[: runs.index(first) + 1]} if first in runs else {*runs, *(one.run for one in reading.ranges)}


def _lane(  # what a row is made of
    expansion: Expansion,
    topic: FamilyTopic,
    family: AuditedSubscription,
    number: int,
    reading: PartitionHistory,
    part: PartitionCoverage,
    heard: AuditSince,
) -> dict[str, Any]:
    spec = expansion.topology.spec.topics[topic.ground]
    subscription = spec.subscriptions[family.subscription]
    name = _cursor_name(topic, family.subscription)
    looks = reading.looks
    there = reading.at(looks[-1]) if looks else {}
    mark, end = there.get(name), there.get(NAMELESS)
    behind = [_start_place(topic, subscription, name, reading)]
    behind += [one.last for one in reading.ranges if one.run in heard.unheard]
    unheard = max(behind, key=lambda at: at or (-1, -1))
    behind += [unproven_before(reading, name, heard.since)] if family.mode == WAITS else []
    started = max(behind, key=lambda at: at or (-1, -1))
    proven = proven_ranges(reading, name, heard.ended, unheard) if family.mode == WAITS else ()
    known = part.from_creation if topic.state is State.READY else _whole(reading)
    first = reading.ranges[0].first if reading.ranges and not known else None
    last = reading.ranges[-1].last if reading.ranges else None
    horizon = defaults.horizon(spec, subscription) + defaults.JITTER + GRACE
    aged = _aged_place(reading, int(horizon))
    return {
        "lane": 0, "family": family.number, "topic": topic.ground, "msg_topic": topic.name.full, "msg_partition": number,
        "subscription": family.subscription, "state": topic.state.value if topic.state else "",
        "mark_ledger": mark.mark[0] if mark else None, "mark_entry": mark.mark[1] if mark else None,
        "acknowledged": [dict(zip(("ledger", "first", "last"), one, strict=True)) for one in mark.acknowledged] if mark else None,
        "aged_ledger": aged[0] if aged else None, "aged_entry": aged[1] if aged else None,
        "started_ledger": started[0] if started else None, "started_entry": started[1] if started else None,
        "proven_ranges": [dict(zip(_PROVEN, (*one.after, *one.last), strict=True)) for one in proven],
        "first_ledger": first[0] if first else None, "first_entry": first[1] if first else None,
        "last_ledger": last[0] if last else None, "last_entry": last[1] if last else None,
        "stored_ledger": end.mark[0] if end else None, "stored_entry": end.mark[1] if end else None,
        "covered": False, "proved": False, "recorded": family.mode == "wait", "horizon": int(horizon),
        "read_at": mark.taken if mark else 0, "name": lane_name(topic),
    }  # fmt: skip


def _aged_place(reading: PartitionHistory, horizon: int) -> Place | None:
    """Last position that was read longer ago than the horizon (ms). It does not depend on the clocks of producers: the
    messages of one run were stored when the next run began.
    """
    runs, looks = reading.runs, reading.looks
    if not looks:  # a run that was cut short reads, and records no cursor
        return None
    following = {run: next((look for look in looks if look > taken), looks[-1]) for run, taken in runs.items()}
    return max(
        (one.last for one in reading.ranges if looks[-1:] > [following.get(one.run, looks[-1]) + horizon]), default=None
    )


def _start_place(topic: FamilyTopic, subscription: Subscription, name: str, reading: PartitionHistory) -> Place | None:
    """First known cursor of a subscription with `start: latest`, on a ready topic of level L1; else None. Messages up
    to it may never have belonged to the subscription.
    """
    if topic.state is not State.READY or topic.level is not Level.L1 or subscription.start != "latest":
        return None
    marks = sorted((mark for mark in reading.marks if mark.subscription == name), key=lambda mark: mark.taken)
    return marks[0].mark if marks else None
