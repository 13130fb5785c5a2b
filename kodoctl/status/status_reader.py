"""Reader of a topology's status: message counts of each lane. It needs only the right to consume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.errors import KodoctlError
from kodoctl.protocol.properties import STEER_PROPERTY
from kodoctl.pulsar.admin.admin import AdminError
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.admin.omitted_partitions import UnknownPartitionsError
from kodoctl.pulsar.admin.topic_stats import Stats, read_stats, replications
from kodoctl.pulsar.inventory.evidence_reader import count_messages
from kodoctl.pulsar.inventory.producer_marks import Backlog, read_backlog
from kodoctl.status.lane_averages import acknowledged_rate, average_rates, estimated_messages, gives_to_one, is_steady
from kodoctl.status.lane_status import LaneStatus, OtherReaders, Replication, TopologyStatus, UnreadTopic
from kodoctl.topology.expand import Expansion, FamilyTopic
from kodoctl.topology.names import HOLDER, State, partition_number
from kodoctl.topology.resources import subscription_address
from kodoctl.topology.slot_ranges import total_slots

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin


def read_status(admin: Admin, expansion: Expansion, *, exact: bool = False) -> tuple[TopologyStatus, list[UnreadTopic]]:
    """Reads the lanes of a topology, undeclared subscriptions and replication, and returns (status, topics that could
    not be read, each with the broker's answer). Lanes are in the order of the expansion's topics. `exact`: also counts
    messages, by reading each backlog.

    Sends one GET for each topic (for a plain one a few), and some for each backlog in a partition of a ready topic, to
    leave out the marks of producers. Blocks; raises KodoctlError if no broker answers, or a right is missing.
    """

    def ask(topic: FamilyTopic) -> _TopicStatus | UnreadTopic:
        try:
            stats = read_stats(admin, topic.name, getEarliestTimeInBacklog="true")
            lanes = tuple(_add_counts(admin, *row, exact=exact) for row in _lanes(expansion, topic, stats))
            return _TopicStatus(topic, stats, lanes, _other_backlogs(admin, expansion, topic, stats))
        except (AdminError, UnknownPartitionsError) as problem:
            if isinstance(problem, AdminError) and problem.reply.forbidden:
                raise
            reason = problem.diagnostics[0].detail
            return UnreadTopic(str(expansion.namespace), topic.ground, topic.name.local, reason)

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="status") as pool:
        answers = list(pool.map(ask, expansion.topics))
    read = [answer for answer in answers if isinstance(answer, _TopicStatus)]
    status = TopologyStatus(
        expansion.name,
        str(expansion.namespace),
        tuple(lane for one in read for lane in one.lanes),
        tuple(_others(read)),
        tuple(_replications(read)),
    )
    return status, [answer for answer in answers if isinstance(answer, UnreadTopic)]


def read_lanes(
    admin: Admin, expansions: Sequence[Expansion], over: Callable[[], bool]
) -> tuple[tuple[TopologyStatus, ...], tuple[UnreadTopic, ...]]:
    """Reads only the lanes of topologies: no exact counts, no undeclared subscriptions, no replication. Returns (status
    of each, unread topics, each with its reason). `over`, called by several threads, returns True when time is up;
    topics whose reading has not begun by then count as unread. Never raises because of the cluster.
    """

    def ask(place: tuple[Expansion, FamilyTopic]) -> list[LaneStatus] | UnreadTopic:
        expansion, topic = place
        reason = "its turn did not come in time"
        try:
            if not over():
                stats = read_stats(admin, topic.name, getEarliestTimeInBacklog="true")
                return [_add_counts(admin, *row, exact=False) for row in _lanes(expansion, topic, stats)]
        except KodoctlError as problem:
            reason = problem.diagnostics[0].detail or problem.diagnostics[0].summary
        return UnreadTopic(str(expansion.namespace), topic.ground, topic.name.local, reason)

    places = [(one, topic) for one in expansions for topic in one.topics]
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="status") as pool:
        answers = list(pool.map(ask, places))
    lanes: dict[str, list[LaneStatus]] = {one.name: [] for one in expansions}
    for (expansion, _), answer in zip(places, answers, strict=True):
        lanes[expansion.name] += [] if isinstance(answer, UnreadTopic) else answer
    statuses = (TopologyStatus(one.name, str(one.namespace), tuple(lanes[one.name]), ()) for one in expansions)
    return tuple(statuses), tuple(answer for answer in answers if isinstance(answer, UnreadTopic))


_Row = tuple[LaneStatus, FamilyTopic, str, Stats]


@dataclass(frozen=True, slots=True)
class _TopicStatus:
    """One topic as it was read. `stats`: None if it does not exist; `others`: entries by undeclared subscription."""

    topic: FamilyTopic
    stats: Stats | None
    lanes: tuple[LaneStatus, ...]
    others: dict[str, int]


def _lanes(expansion: Expansion, topic: FamilyTopic, stats: Stats | None) -> Iterator[_Row]:
    """The lanes of a topic, without their backlogs: `_add_counts` adds these."""
    now = int(time.time() * 1000)
    for reader, label in _readers(expansion, topic):
        there = [
            (part, sub) for part in _parts(stats) if (sub := (part.get("subscriptions") or {}).get(reader)) is not None
        ]
        partitions = [sub for _, sub in there]
        consumers = max((len(sub.get("consumers") or []) for sub in partitions), default=0)
        one_each = any(map(gives_to_one, partitions))
        is_counted = not _has_one_reader(expansion, topic, label)
        lane = LaneStatus(
            topic.ground,
            label,
            topic.level.value if topic.level else "",
            topic.state.value if topic.state else "audit",
            topic.name.local,
            there=bool(partitions),
            delayed=sum(int(sub.get("msgDelayed") or 0) for sub in partitions),
            unacknowledged=sum(int(sub.get("unackedMessages") or 0) for sub in partitions)
            if is_counted and not one_each
            else None,
            rate_in=round(sum(float(part.get("msgRateIn") or 0) for part in _parts(stats)), 1),
            rate_out=round(sum(float(sub.get("msgRateOut") or 0) for sub in partitions), 1),
            rate_acked=acknowledged_rate(partitions) if is_counted else None,
            steady=is_steady(partitions, now),
            messages_about=estimated_messages(partitions),
            delivered=_delivered(partitions),
            before=average_rates(partitions, [part.get("msgInCounter") for part, _ in there], now),
            consumers=consumers,
            blocked=max((sum(map(_is_blocked, sub.get("consumers") or [])) for sub in partitions), default=0),
            idle=max(0, consumers - len(partitions)) if one_each else 0,
            partitions=len(partitions),
            one_each=one_each,
            alone=any(sub.get("type") == "Exclusive" for sub in partitions),
            slots=_slots(expansion, topic.ground, label),
            steered=next(
                filter(None, ((sub.get("subscriptionProperties") or {}).get(STEER_PROPERTY) for sub in partitions)),
                None,
            ),
        )
        yield lane, topic, reader, stats or {}


def _slots(expansion: Expansion, ground: str, subscription: str) -> int | None:
    declared = expansion.topology.spec.topics[ground].subscriptions.get(subscription)
    return None if declared is None else total_slots(declared)


def _has_one_reader(expansion: Expansion, topic: FamilyTopic, subscription: str) -> bool:
    """True for a ready lane whose partitions go to one consumer each by its file, also while none is connected."""
    declared = expansion.topology.spec.topics[topic.ground].subscriptions.get(subscription)
    return topic.state is State.READY and declared is not None and declared.type in ("failover", "exclusive")


def _delivered(subs: Iterable[Stats]) -> int | None:
    """Messages that were delivered to a lane's consumers, those that left included; None if a broker does not count."""
    counts: list[int | None] = [sub.get("msgOutCounter") for sub in subs]
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


def _is_blocked(consumer: Stats) -> bool:
    return bool(consumer.get("blockedConsumerOnUnackedMsgs"))


def _readers(expansion: Expansion, topic: FamilyTopic) -> Iterable[tuple[str, str]]:
    """(subscription on Pulsar, subscription of the topology) for each lane of a topic."""
    match topic.state:
        case State.READY:
            return [(name, name) for name in expansion.topology.spec.topics[topic.ground].subscriptions]
        case State.DEAD:
            return [(HOLDER, topic.subscription or "")]
        case None:
            return []
        case _:
            return [(topic.subscription or "", topic.subscription or "")]


def _add_counts(
    admin: Admin, lane: LaneStatus, topic: FamilyTopic, reader: str, stats: Stats, *, exact: bool
) -> LaneStatus:
    if not lane.there:
        return lane
    backlogs = _backlogs(admin, topic, reader, stats)
    messages, at_least = count_messages(admin, topic.name, reader, stats) if exact else (None, False)
    return replace(
        lane,
        entries=sum(one.entries for one in backlogs),
        oldest=min((one.oldest for one in backlogs if one.oldest), default=None),
        messages=messages,
        messages_at_least=at_least,
    )


def _backlogs(admin: Admin, topic: FamilyTopic, reader: str, stats: Stats | None) -> list[Backlog]:
    """The backlog of each partition that has the subscription."""
    parts = (stats or {}).get("partitions") or {}
    subs = {name: sub for name, part in parts.items() if (sub := (part.get("subscriptions") or {}).get(reader))}
    return [read_backlog(admin, topic.name, partition_number(name), reader, sub) for name, sub in subs.items()]


def _parts(stats: Stats | None) -> list[Stats]:
    return list((stats.get("partitions") or {}).values()) if stats else []


def _other_backlogs(admin: Admin, expansion: Expansion, topic: FamilyTopic, stats: Stats | None) -> dict[str, int]:
    """Entries in the backlogs of the durable subscriptions of a topic that no file declares, by name."""
    expected = {reader for reader, _ in _readers(expansion, topic)}
    subs = [one for part in _parts(stats) for one in (part.get("subscriptions") or {}).items()]
    names = {name for name, sub in subs if name not in expected and sub.get("isDurable", True)}
    names = {name for name in names if subscription_address(topic.name, name) not in expansion.function_subscriptions}
    return {name: sum(one.entries for one in _backlogs(admin, topic, name, stats)) for name in names}


def _by_ground(read: Iterable[_TopicStatus]) -> dict[str, list[_TopicStatus]]:
    found: dict[str, list[_TopicStatus]] = {}
    for one in read:
        found.setdefault(one.topic.ground, []).append(one)
    return found


def _others(read: Iterable[_TopicStatus]) -> Iterator[OtherReaders]:
    for ground, topics in _by_ground(read).items():
        if found := {name for one in topics for name in one.others}:
            yield OtherReaders(ground, tuple(sorted(found)), sum(sum(one.others.values()) for one in topics))


def _replications(read: Iterable[_TopicStatus]) -> Iterator[Replication]:
    for ground, topics in _by_ground(read).items():
        parts = [part for one in topics for part in _parts(one.stats)]
        for cluster, (entries, connected) in replications(parts).items():
            yield Replication(ground, cluster, entries, connected)
