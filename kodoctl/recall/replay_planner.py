# adapter: reads the broker
"""Planner of a replay: reads the stored messages of a subscription's ready lanes without consuming them, and chooses
the acknowledged ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.admin.applied_policy import PolicyUnreadableError, backlog_limits, time_to_live
from kodoctl.pulsar.admin.store_times import closing_times, noted_time
from kodoctl.pulsar.admin.topic_stats import read_stats
from kodoctl.recall.cluster import check_partitions, letter_of
from kodoctl.recall.plan.replay_counts import PartitionCounts, PublishTimes, ReplayCounts, duration_of
from kodoctl.recall.plan.replay_plan import sealed
from kodoctl.recall.plan.store_times import (
    CLOCK_ERROR,
    StoredSpan,
    first_by_majority,
    first_noted,
    ledgers_between,
    open_at,
)
from kodoctl.recall.recall_planner import held_letters
from kodoctl.text.formatting import many, size_text, time_text
from kodoctl.topology.names import TopicName, partition_name, partition_numbers
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodoctl.documents.replay_document import ReplayDuration, ReplayPartition, ReplayPlanDocument
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.message_reader import PartitionFacts, Place, ReadMessage
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.message.stored_message import Position
    from kodoctl.recall.plan.ready_lanes import ReadyLane, ReplaySource
    from kodoctl.recall.plan.selection import Done


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Request for a replay plan.

    Args:
        span: times of the messages.
        message: position of the first message: only its partition of its lane is replayed, from its entry on, and
            before the end of `span`; None: by time alone.
        rate: messages a second that workers handle; None: as measured.
        done: queries the workers' store; None: no store can be queried.
        now: ms since the epoch.
        run: id of the run.
        path, environment: topology file.
        because: reason, for the plan.
    """

    source: ReplaySource
    span: PublishTimes
    message: Position | None
    rate: float | None
    done: Done | None
    now: int
    run: str
    path: str
    environment: str | None
    because: str


@dataclass(slots=True)
class _Notes:
    """Facts of the plan that are gathered lane by lane (`ReplayPlanDocument`)."""

    clocks: Literal["broker", "producers"] = "broker"
    gone: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def prepare_replay(request: ReplayRequest, admin: Admin, cluster: RecallCluster) -> ReplayPlanDocument:
    """Makes the plan, and changes nothing on the cluster. A plan may have no partitions, because no message was chosen,
    and `refusals`: reasons for which it must not be carried out. `unread` of `cluster` is cleared, and then has the
    entries of the ready lanes without a message.

    Raises UsageError if no ready lane has the message of the request (K594) or there is no such topic (K560);
    RefusedError if a lane, or the topic of a waiting lane or of the dead letters, has other partitions than the file;
    ClusterError, also if a partition of a lane lacks the subscription, or one of the dead letters its holder; and the
    errors of `done`.
    """
    source, notes = request.source, _Notes()
    check_partitions(cluster, {lane.topic: lane.partitions for lane in source.lanes})
    if request.message is not None and not _has(source, request.message, cluster):
        detail = f"no ready lane of {source.ground} / {source.subscription} stores {request.message}"
        raise UsageError(
            error("K594", "first message of the replay not found", f"{detail}: `kodoctl peek` shows positions")
        )
    elsewhere = frozenset(_identities(source, cluster, notes))
    counts = ReplayCounts(source.subscription, request.span, elsewhere, request.done)
    rows: list[ReplayPartition] = []
    for lane in source.lanes:
        rows += _lane_rows(request, admin, cluster, lane, counts, notes)
        counts.end_lane()
    summary = counts.summary()
    coming = sum(summary[name] for name in ("again", "done", "unfinished"))
    return sealed(
        {
            "run": request.run,
            "made_at": request.now,
            "cluster": cluster.identity(source.namespace.tenant),
            "topology": source.name,
            "path": request.path,
            "environment": request.environment,
            "namespace": str(source.namespace),
            "topic": source.ground,
            "subscription": source.subscription,
            "since": request.span.since,
            "until": request.span.until,
            "message": None if request.message is None else str(request.message),
            "because": request.because,
            "ordered": source.ordered,
            "store": request.done is not None,
            "clocks": notes.clocks,
            "partitions": rows,
            "summary": summary,
            "duration": _duration(request, admin, coming),
            "unread": cluster.unread.lines(),
            "gone": notes.gone,
            "unknown": notes.unknown,
            "refusals": notes.refusals,
        }
    )


def _identities(source: ReplaySource, cluster: RecallCluster, notes: _Notes) -> Iterator[str]:
    """Identities of the subscription's messages that wait or are dead letters now. Notes those that cannot be read."""
    for lane in source.elsewhere:
        with closing(held_letters(lane, cluster)) as letters:
            yield from (letter.identity for letter in letters)
    notes.unknown += cluster.unread.lines()
    cluster.unread.runs.clear()  # they are not what is replayed


def _lane_rows(
    request: ReplayRequest, admin: Admin, cluster: RecallCluster, lane: ReadyLane, counts: ReplayCounts, notes: _Notes
) -> list[ReplayPartition]:
    ttl, quota_size, quota_age = _policies(admin, lane, notes)
    rows: list[ReplayPartition] = []
    begins: dict[int, int | None] = {}  # publish time of the oldest stored message, by partition
    for number in partition_numbers(lane.partitions):
        part = partition_name(lane.topic, number)
        if request.message is not None and request.message.partition != number:
            continue
        facts = cluster.facts(part)
        cursor = facts.cursors.get(request.source.subscription)
        if cursor is None:
            detail = f"{request.source.subscription} on {part}: `kodoctl apply FILE` creates it"
            raise ClusterError(error("K711", "subscription not found", detail))
        first = _first(facts)
        if first is None:
            begins[number] = None
        read, span = _read_span(request, admin, cluster, facts, notes)
        found = PartitionCounts(cursor, counts, request.now - ttl if ttl else None, span, facts.ledgers)
        for stored in _read(cluster, read):
            letter = letter_of(stored, lane.topic, request.source.fair_by)
            if (stored.ledger, stored.entry) == first:
                begins[number] = letter.publish_time
            found.add(letter, stored.first_chunk)
        if quota_size and found.size > quota_size:
            notes.refusals.append(
                f"{part}: {size_text(found.size)} would be unread, more than the backlog quota of"
                f" {size_text(quota_size)}: the broker would hold up producers or drop messages"
            )
        if quota_age and found.first is not None and found.first < request.now - quota_age:
            notes.refusals.append(
                f"{part}: its oldest message would be older than the backlog quota of {Duration(quota_age)} allows:"
                " the broker would hold up producers or drop messages"
            )
        if (row := found.row(lane, number)) is not None:
            rows.append(row)
    notes.gone += _gone(lane, request.span.since, begins)
    return rows


def _gone(lane: ReadyLane, since: int | None, begins: Mapping[int, int | None]) -> Iterator[str]:
    """Lines about the part of the span that a lane does not store. `begins`: publish time of the oldest message, by
    partition; None: nothing is stored.
    """
    if since is None:
        return
    late = [begin for begin in begins.values() if begin is not None and begin > since]
    for count, what in (
        (len(late), f"nothing published before {time_text(max(late, default=0), seconds=True)}"),
        (sum(begin is None for begin in begins.values()), "nothing at all"),
    ):
        if count:
            parts = f"{many(count, 'partition')} of {lane.topic}" if lane.partitions else lane.topic
            yield f"{parts}: {what}"


def _first(facts: PartitionFacts) -> tuple[int, int] | None:
    return (facts.ledgers[0].ledger, facts.ledgers[0].first) if facts.ledgers else None


def _read_span(
    request: ReplayRequest, admin: Admin, cluster: RecallCluster, facts: PartitionFacts, notes: _Notes
) -> tuple[PartitionFacts, StoredSpan]:
    """The stored ledgers of a partition to read, and the entries that were stored in the time of the request. Messages
    of producers whose clocks are wrong by up to CLOCK_ERROR are in these ledgers.
    """
    message, (since, until) = request.message, request.span
    known = closing_times(admin, facts.topic)
    closed = known or {}
    if known is None:
        notes.unknown.append(f"{facts.topic}: when its ledgers were closed: this role may not read it; all is read")

    def first(at: int) -> Place | None:
        run = open_at(facts.ledgers, closed, at)
        if run is None:
            return None
        runs = facts.ledgers if known is None else (run,)
        later = ((other.ledger, other.first) for other in facts.ledgers if other > runs[-1])
        return _first_stored(admin, cluster, replace(facts, ledgers=runs), at, notes) or next(later, None)

    end = None if until is None or until > request.now else first(until)
    last = None if until is None else until + CLOCK_ERROR
    if message is None:
        begin = first(since or 0)
        runs = ledgers_between(facts.ledgers, closed, (since or 0) - CLOCK_ERROR, last)
    else:
        begin = (message.ledger, message.entry)
        first_read = max((run.ledger for run in facts.ledgers if run.ledger < message.ledger), default=0)
        runs = ledgers_between(tuple(run for run in facts.ledgers if run.ledger >= first_read), closed, 0, last)
        runs = runs if _stores(facts, message) else ()
    return replace(facts, ledgers=runs), StoredSpan(begin, end)


def _first_stored(admin: Admin, cluster: RecallCluster, facts: PartitionFacts, at: int, notes: _Notes) -> Place | None:
    """The first entry in the ledgers of `facts` that was stored at a time (ms since the epoch) or later; None: none
    was.
    """
    for run in facts.ledgers:
        entry, is_noted = first_noted(run, at, lambda place: noted_time(admin, facts.topic, place))
        if not is_noted:
            notes.clocks = "producers"
            with closing(_read(cluster, facts)) as stored:
                return first_by_majority((((one.ledger, one.entry), one.publish_time) for one in stored), at)
        if entry is not None:
            return run.ledger, entry
    return None


def _read(cluster: RecallCluster, facts: PartitionFacts) -> Generator[ReadMessage]:
    """Messages in the ledgers of `facts`."""
    if facts.ledgers:
        yield from cluster.read_all(facts, (facts.ledgers[0].ledger, facts.ledgers[0].first - 1), cluster.unread)


def _stores(facts: PartitionFacts, message: Position) -> bool:
    return any(run.ledger == message.ledger and run.first <= message.entry <= run.last for run in facts.ledgers)


def _has(source: ReplaySource, message: Position, cluster: RecallCluster) -> bool:
    """True if a ready lane stores the message."""
    return any(
        _stores(cluster.facts(partition_name(lane.topic, message.partition)), message)
        for lane in source.lanes
        if message.partition in partition_numbers(lane.partitions)
    )


def _policies(admin: Admin, lane: ReadyLane, notes: _Notes) -> tuple[int, int, int]:
    """Time to live (ms) and backlog quota (bytes, ms) of a lane, 0 where there is none or it is unknown."""
    topic, ttl, quota = TopicName.parse(lane.topic), 0, (0, 0)
    try:
        ttl = time_to_live(admin, topic)
        quota = backlog_limits(admin, topic)
    except PolicyUnreadableError as problem:
        notes.unknown.append(f"time to live and backlog quota of {lane.topic}: {problem}")
    return ttl, *quota


def _duration(request: ReplayRequest, admin: Admin, coming: int) -> ReplayDuration:
    """Estimate of the duration: at the rate of the request, else at the rate of the last minute if
    workers were busy.
    """
    arriving = leaving = 0.0
    backlog = 0
    for lane in request.source.lanes:
        stats = read_stats(admin, TopicName.parse(lane.topic)) or {}
        for part in (stats.get("partitions") or {}).values():
            sub = (part.get("subscriptions") or {}).get(request.source.subscription) or {}
            arriving += float(part.get("msgRateIn") or 0)
            leaving += float(sub.get("msgRateOut") or 0)
            backlog += int(sub.get("msgBacklog") or 0)
    busy = leaving if backlog > leaving >= 1 else None
    rate = request.rate if request.rate is not None else busy
    return duration_of(coming, rate, measured=request.rate is None and busy is not None, arriving=arriving)
