"""Reader of a topic by one GET: partitions, marker, subscriptions of each partition, clients, backlog, last publish.

`partitioned-stats?perPartition=true` contains all of this, and is as fast as the bare list of subscriptions, which does
not show that some partitions lack a subscription (docs/explanation/pulsar.md). Partitions that the answer omits are
requested one by one (kodoctl.pulsar.admin.omitted_partitions), so that a reading is complete or raises an error.

For a plain topic, which Pulsar answers in another form, the answer is made the same: its only "partition" has the
topic's name and the number PLAIN. Its marker is one more GET.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.protocol.properties import OWNER_PROPERTY, PREFIX, STEER_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, Reply, must, topic_path
from kodoctl.pulsar.admin.omitted_partitions import NotAwaitedError, ask_each
from kodoctl.pulsar.values.live_objects import SubscriptionFacts, TopicFacts
from kodoctl.topology.names import PLAIN, partition_number, partition_numbers

if TYPE_CHECKING:
    from kodoctl.topology.names import TopicName
    from kodoctl.topology.resources import TopicResource

Stats = dict[str, Any]
COMPACTION: Final = (
    "__compaction"  # the broker's own cursor, there while a topic is compacted: nobody's to declare or delete
)


@dataclass(frozen=True, slots=True)
class SubscriptionReading:
    """One durable subscription, read on all partitions of its topic.

    Args:
        missing_on: numbers of the existing partitions that lack it.
        marker: name of its owner, from any partition that has one; None without a marker.
        facts: backlog and consumers, as evidence.
        properties: properties of all partitions that are not kodoctl's; of different values of a name, one.
        is_replicated: its position is replicated to other clusters, on one partition at least.
    """

    name: str
    missing_on: tuple[int, ...]
    marker: str | None
    facts: SubscriptionFacts
    properties: Mapping[str, str] = field(default_factory=dict)
    is_replicated: bool = False


@dataclass(frozen=True, slots=True)
class TopicReading:
    """One topic, by its metadata and its partitions.

    Args:
        partitions: their number in the metadata, with missing ones; 0 for a plain topic.
        marker: name of the topology that owns it; None without a marker.
        facts: backlog, storage and clients, as evidence.
        subscriptions: durable subscriptions, sorted by name, without the broker's own (COMPACTION).
        missing: numbers of partitions that the metadata counts and that do not exist.
        properties: properties that are not kodoctl's.
    """

    name: TopicName
    partitions: int
    marker: str | None
    facts: TopicFacts
    subscriptions: tuple[SubscriptionReading, ...]
    missing: tuple[int, ...] = ()  # partitions that the metadata counts and that surely are not there
    properties: Mapping[str, str] = field(default_factory=dict)


def read_topic(admin: Admin, topic: TopicName, *, of: Collection[str] | None = None) -> TopicReading | None:
    """Reads a topic; None if there is no such topic. Raises ClusterError if any part of it is unknown.

    `of`: names of topologies that concern the caller, None: all. If the answer omits partitions and the topic's marker
    names none of these topologies, NotAwaitedError is raised at once, and the partitions are not requested. A plain
    topic has none to omit.
    """
    answer = _answer(admin, topic, {})
    if answer is None:
        return None
    if (lacking := _lacking(answer)) and of is not None and _marker(answer) not in of:
        raise NotAwaitedError(topic, lacking, "not in the broker's answer, because it moves or cannot be loaded")
    return parse(topic, _fill_partitions(admin, topic, answer, {}))


def read_plain_topic(admin: Admin, topic: TopicName, *, of: Collection[str] | None = None) -> TopicReading | None:
    """Does the same as `read_topic` for a topic that a list of the namespace names as a plain one, with fewer requests.
    With `of`, NotAwaitedError is raised at once, for any names, if the broker answers with a failure (not 401, 403 or
    Pulsar's 404), because no marker is known yet.
    """
    answer = _plain(admin, topic, {}, is_awaited=of is None)
    return None if answer is None else parse(topic, answer)


def read_same_kind(admin: Admin, topic: TopicResource) -> TopicReading | None:
    """Reads a topic; None if there is no such topic, or if a plain one took the place of a partitioned one or the
    reverse: a client brings a deleted topic back as a plain one. Raises ClusterError.
    """
    found = read_topic(admin, topic.name)
    return found if found is not None and bool(found.partitions) == bool(topic.partitions) else None


def read_stats(admin: Admin, topic: TopicName, **query: str) -> Stats | None:
    """Reads the JSON of `partitioned-stats`, completed with partitions that the answer omits, also of a plain topic;
    None if there is no such topic. Absent partitions are left out. `query`: more query parameters. Raises ClusterError:
    an UnknownPartitionsError if a partition that the metadata counts neither answers nor is absent, as its messages,
    subscriptions and clients are unknown.
    """
    answer = _answer(admin, topic, query)
    return None if answer is None else _fill_partitions(admin, topic, answer, query)


def ask_stats(admin: Admin, topic: TopicName, query: dict[str, str]) -> Reply:
    """Requests the stats of a whole topic once, for a plain topic twice, and returns the reply, which may be a refusal.
    The data of a success have the form of `partitioned-stats`, but may omit partitions, and for a plain topic lack the
    metadata. For figures that are read again and again, so that fewer requests matter more than a complete answer.
    """
    reply = admin.call("GET", f"{topic_path(topic)}/partitioned-stats", query={"perPartition": "true", **query})
    if reply.missing:
        reply = admin.call("GET", f"{topic_path(topic)}/stats", query=query)
        return replace(reply, data={"partitions": {topic.full: reply.data}}) if reply.ok else reply
    return reply


def _answer(admin: Admin, topic: TopicName, query: dict[str, str]) -> Stats | None:
    """Reads the answer about the whole topic, which may omit partitions; None: no such topic."""
    reply = admin.call("GET", f"{topic_path(topic)}/partitioned-stats", query={"perPartition": "true", **query})
    if reply.missing:
        is_plain = not admin.call("GET", f"{topic_path(topic)}/partitions").missing
        return _plain(admin, topic, query) if is_plain else None
    found: Stats = must(reply, f"reading {topic}")
    if not isinstance(found, dict):
        raise ClusterError(error("K580", "part of a topic cannot be read", f"{topic}: {reply} and says nothing of it"))
    parts = (found.get("partitions") or {}).items()
    answered = {name: part for name, part in parts if isinstance(part, dict) and partition_number(name) != PLAIN}
    return {**found, "partitions": answered}


def _plain(admin: Admin, topic: TopicName, query: dict[str, str], *, is_awaited: bool = True) -> Stats | None:
    """The answer about a plain topic, in the form of a partitioned one; None: no such topic."""
    if not is_awaited:
        reply = admin.call("GET", f"{topic_path(topic)}/stats", patient=False)
        if not (reply.ok or reply.missing or reply.forbidden):
            raise NotAwaitedError(topic, (PLAIN,), f"{reply}")
    if not (parts := ask_each(admin, topic, (PLAIN,), "stats", **query)):
        return None
    reply = admin.call("GET", f"{topic_path(topic)}/properties")
    if reply.missing:
        return None
    properties = must(reply, f"reading properties of {topic}")
    return {"metadata": {"partitions": 0, "properties": properties}, "partitions": {topic.full: parts[PLAIN]}}


def _lacking(answer: Stats) -> list[int]:
    known = {partition_number(name) for name in answer["partitions"]}
    return [number for number in partition_numbers(_count(answer)) if number not in known]


def _fill_partitions(admin: Admin, topic: TopicName, answer: Stats, query: dict[str, str]) -> Stats:
    alone = ask_each(admin, topic, _lacking(answer), "stats", **query)
    return {**answer, "partitions": answer["partitions"] | {topic.partition(i): part for i, part in alone.items()}}


def _marker(stats: Stats) -> str | None:
    return _properties(stats).get(OWNER_PROPERTY)


def _properties(stats: Stats) -> dict[str, str]:
    return (stats.get("metadata") or {}).get("properties") or {}


def _of_others(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if not name.startswith((OWNER_PROPERTY, PREFIX))}


def _count(stats: Stats) -> int:
    count = (stats.get("metadata") or {}).get("partitions")
    return int(len(stats.get("partitions") or {}) if count is None else count)


def parse(topic: TopicName, stats: Stats) -> TopicReading:
    """Converts an answer of `read_stats` to our types. A partition that the answer lacks counts as missing."""
    count = _count(stats)
    by_index = {partition_number(name): part for name, part in (stats.get("partitions") or {}).items()}
    missing = tuple(number for number in partition_numbers(count) if number not in by_index)
    there = [number for number in partition_numbers(count) if number in by_index]
    subscriptions = tuple(_subscriptions(by_index, there))
    facts, properties = _topic_facts(stats, by_index), _of_others(_properties(stats))
    return TopicReading(topic, count, _marker(stats), facts, subscriptions, missing, properties)


def _topic_facts(stats: Stats, by_index: dict[int, Stats]) -> TopicFacts:
    parts = by_index or {0: stats}
    consumers = {
        index: sum(len(sub.get("consumers") or []) for sub in _subs(part).values()) for index, part in parts.items()
    }
    producers = {index: len(part.get("publishers") or []) for index, part in parts.items()}
    return TopicFacts(
        storage_bytes=sum(int(part.get("storageSize") or 0) for part in parts.values()),
        backlog_bytes=sum(int(part.get("backlogSize") or 0) for part in parts.values()),
        producers=max(producers.values(), default=0),  # one client's producer shows on every partition
        consumers=max(consumers.values(), default=0),
        busy_partitions=tuple(sorted(index for index in parts if consumers[index] or producers[index])),
        last_publish=max((int(part.get("lastPublishTimeStamp") or 0) for part in parts.values()), default=0),
        idle_bytes=sum(
            int(sub.get("backlogSize") or 0)
            for part in parts.values()
            for sub in _subs(part).values()
            if not sub.get("consumers")
        ),
        roles=_roles(parts.values()),
        unreplicated=tuple(
            (cluster, entries) for cluster, (entries, _) in replications(parts.values()).items() if entries
        ),
    )


def replications(parts: Iterable[Stats]) -> dict[str, tuple[int, bool]]:
    """Replication lag by other cluster, sorted by name: (entries of these partitions that the cluster does not have
    yet, whether all partitions that replicate to it are connected). `parts`: stats of each partition.
    """
    found: dict[str, tuple[int, bool]] = {}
    for part in parts:
        for cluster, there in (part.get("replication") or {}).items():
            entries, connected = found.get(cluster, (0, True))
            behind, is_connected = int(there.get("replicationBacklog") or 0), bool(there.get("connected"))
            found[cluster] = (entries + behind, connected and is_connected)
    return dict(sorted(found.items()))


def _roles(parts: Iterable[Stats]) -> tuple[tuple[str, int], ...]:
    """Returns (role, number of consumers), sorted. Because one client's consumer is counted on every partition, the
    number is that of the partition with most.
    """
    found: dict[str, int] = {}
    for part in parts:
        here = Counter(
            str(consumer["appId"])
            for sub in _subs(part).values()
            for consumer in sub.get("consumers") or []
            if consumer.get("appId")
        )
        for role, count in here.items():
            found[role] = max(found.get(role, 0), count)
    return tuple(sorted(found.items()))


def _subs(part: Stats) -> dict[str, Stats]:
    """Durable subscriptions of one partition, by name. Others come from readers, and retain no messages."""
    return {
        name: sub
        for name, sub in (part.get("subscriptions") or {}).items()
        if sub.get("isDurable", sub.get("durable", True))
    }


def _subscriptions(by_index: dict[int, Stats], there: list[int]) -> Iterator[SubscriptionReading]:
    found_by_name: dict[str, dict[int, Stats]] = {}
    for index, part in by_index.items():
        for name, sub in _subs(part).items():
            if name != COMPACTION:
                found_by_name.setdefault(name, {})[index] = sub
    for name, parts in sorted(found_by_name.items()):
        properties = [sub.get("subscriptionProperties") or {} for sub in parts.values()]
        facts = SubscriptionFacts(
            backlog_entries=sum(int(sub.get("msgBacklog") or 0) for sub in parts.values()),
            backlog_bytes=sum(int(sub.get("backlogSize") or 0) for sub in parts.values()),
            consumers=max((len(sub.get("consumers") or []) for sub in parts.values()), default=0),
            steered=next((p[STEER_PROPERTY] for p in properties if STEER_PROPERTY in p), None),
        )
        marker = next((p[OWNER_PROPERTY] for p in properties if OWNER_PROPERTY in p), None)
        missing = tuple(index for index in there if index not in parts)
        others = {key: value for one in properties for key, value in _of_others(one).items()}
        is_replicated = any(sub.get("isReplicated") for sub in parts.values())
        yield SubscriptionReading(name, missing, marker, facts, others, is_replicated)
