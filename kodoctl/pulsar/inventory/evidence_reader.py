"""Reader of evidence: figures about objects that a change would destroy (messages in backlogs, their age, clients, age
of stored data).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Admin, must, partition_path, subscription_path
from kodoctl.pulsar.admin.topic_stats import Stats, read_stats
from kodoctl.pulsar.inventory.live_inventory import list_topics
from kodoctl.pulsar.inventory.platform_objects import platform_users
from kodoctl.pulsar.inventory.producer_marks import MANY, Backlog, read_backlog
from kodoctl.pulsar.values.evidence import Evidence
from kodoctl.topology.names import InvalidNameError, TopicName, partition_number
from kodoctl.topology.resources import Address, FunctionResource, PlatformResource, SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live


def read_evidence(
    admin: Admin, live: Live, addresses: Iterable[Address], *, ledgers_of: frozenset[Address]
) -> Mapping[Address, Evidence]:
    """Reads, in several threads, the evidence of the topics, subscriptions, functions and objects of the whole cluster
    among `addresses`. Each address must be in `live.objects`. Other resources, and topics that are gone by now (with
    their subscriptions), are absent from the result; a subscription that alone is gone has no backlog there.
    `ledgers_of`: addresses of topics whose stored ledgers are read as well, by one request for each partition. Raises
    ClusterError, but not for a function whose inputs cannot be read (`Evidence.unread`).
    """
    wanted = sorted(set(addresses))
    with ThreadPoolExecutor(8, thread_name_prefix="evidence") as pool:
        found = pool.map(lambda address: _read_evidence(admin, live, address, ledgers=address in ledgers_of), wanted)
        return {address: evidence for address, evidence in zip(wanted, found, strict=True) if evidence is not None}


def _read_evidence(admin: Admin, live: Live, address: Address, *, ledgers: bool) -> Evidence | None:
    match live.objects[address].resource:
        case TopicResource(name=topic):
            stats = read_stats(admin, topic, getEarliestTimeInBacklog="true")
            return None if stats is None else _of_topic(admin, topic, stats, ledgers=ledgers)
        case SubscriptionResource(topic=topic, name=name):
            stats = read_stats(admin, topic, getEarliestTimeInBacklog="true")
            return None if stats is None else _of_subscription(admin, topic, name, stats)
        case FunctionResource() as function:
            return function_evidence(admin, function)
        case resource if isinstance(resource, PlatformResource):
            return Evidence(users=platform_users(admin, live.identity.cluster, resource))
        case _:
            return None


def _of_topic(admin: Admin, topic: TopicName, stats: Stats, *, ledgers: bool) -> Evidence:
    """Evidence of a topic. Its backlog is that of the worst subscription: others contain the same messages."""
    names = {name for part in _parts(stats).values() for name in part.get("subscriptions") or {}}
    each = [_of_subscription(admin, topic, name, stats) for name in sorted(names)]
    worst = max(each, key=lambda e: (e.entries, e.messages or 0), default=Evidence())
    return Evidence(
        entries=worst.entries,
        messages=worst.messages,
        marks=worst.marks,
        unseen_marks=worst.unseen_marks,
        at_least=worst.at_least,
        bytes=max((e.bytes for e in each), default=0),
        oldest=min((e.oldest for e in each if e.oldest), default=None),
        clients=tuple(sorted({*_producers(stats), *(client for e in each for client in e.clients)})),
        last_publish=max((int(p.get("lastPublishTimeStamp") or 0) for p in _parts(stats).values()), default=0),
        ledgers=tuple(_ledgers(admin, topic, _parts(stats))) if ledgers else (),
    )


def read_inputs(admin: Admin, function: FunctionResource) -> list[TopicName]:
    """Returns the topics that a function reads, sorted: those that it names, whether they exist or not, and, for a
    pattern, those of its namespace that it may match (`list_topics`, two requests). Raises ClusterError.
    """
    found = set(function.input_topics)
    if function.pattern:
        try:
            namespace = TopicName.parse(function.pattern).namespace
        except InvalidNameError as problem:
            detail = f"the topics of the pattern {function.pattern} are not known: {problem}"
            raise ClusterError(error("K561", "messages cannot be read", detail)) from None
        found.update(filter(function.may_match, chain.from_iterable(list_topics(admin, namespace))))
    return sorted(found)


def function_evidence(admin: Admin, function: FunctionResource) -> Evidence:
    """Reads the evidence of the subscription of a function, summed over its inputs; inputs that do not exist are left
    out. If an input cannot be read, or the inputs of its pattern are not known, only `unread` is set. Never raises
    ClusterError.
    """
    each = []
    try:
        for topic in read_inputs(admin, function):
            stats = read_stats(admin, topic, getEarliestTimeInBacklog="true")
            if stats is not None:
                each.append(_of_subscription(admin, topic, function.subscription, stats))
    except ClusterError as problem:
        return Evidence(unread=problem.diagnostics[0].detail)
    counts = [one.messages for one in each if one.entries]
    return Evidence(
        entries=sum(one.entries for one in each),
        messages=sum(one or 0 for one in counts) if counts and None not in counts else None,
        marks=sum(one.marks for one in each),
        unseen_marks=any(one.unseen_marks for one in each),
        at_least=any(one.at_least for one in each),
        bytes=sum(one.bytes for one in each),
        oldest=min((one.oldest for one in each if one.oldest), default=None),
        clients=tuple(sorted({client for one in each for client in one.clients})),
    )


def count_messages(admin: Admin, topic: TopicName, subscription: str, stats: Stats) -> tuple[int, bool]:
    """Returns (number of messages, whether there may be more) for the backlog of a subscription. The broker may stop
    counting early. Marks of producers (messages without content) that were found in the backlog (`read_backlog`) do not
    count; a batch that is acknowledged in part counts in full. The number is 0 if there is no such subscription in
    `stats`, the topic's JSON of `read_stats`. Sends one request for each partition with a backlog, and up to 1,000
    requests to find its marks. Raises ClusterError.
    """
    parts = _subscription_parts(stats, subscription)
    counts = _counts(admin, topic, subscription, parts)
    marks = sum(one.marks for one in _backlogs(admin, topic, subscription, parts))
    return max(0, sum(count for count, _ in counts) - marks), any(aborted for _, aborted in counts)


def _backlogs(admin: Admin, topic: TopicName, name: str, partitions: Mapping[int, Stats]) -> list[Backlog]:
    return [read_backlog(admin, topic, index, name, sub, MANY) for index, sub in partitions.items()]


def _subscription_parts(stats: Stats, name: str) -> dict[int, Stats]:
    return {index: sub for index, part in _parts(stats).items() if (sub := (part.get("subscriptions") or {}).get(name))}


def _counts(admin: Admin, topic: TopicName, name: str, partitions: Mapping[int, Stats]) -> list[tuple[int, bool]]:
    backlogs = {index: int(sub.get("msgBacklog") or 0) for index, sub in partitions.items()}
    return [_analyze(admin, topic, index, name) for index, entries in backlogs.items() if entries]


def _of_subscription(admin: Admin, topic: TopicName, name: str, stats: Stats) -> Evidence:
    partitions = _subscription_parts(stats, name)
    counts = _counts(admin, topic, name, partitions)
    backlogs = _backlogs(admin, topic, name, partitions)
    marks = sum(one.marks for one in backlogs)
    consumers = {
        _client(consumer, "consumerName") for sub in partitions.values() for consumer in sub.get("consumers") or []
    }
    return Evidence(
        entries=sum(int(sub.get("msgBacklog") or 0) for sub in partitions.values()),
        messages=max(0, sum(count for count, _ in counts) - marks) if counts else None,
        marks=marks,
        unseen_marks=not all(one.whole for one in backlogs),
        at_least=any(aborted for _, aborted in counts),
        bytes=sum(int(sub.get("backlogSize") or 0) for sub in partitions.values()),
        oldest=min((one.oldest for one in backlogs if one.oldest), default=None),
        clients=tuple(sorted(consumers)),
    )


def _parts(stats: Stats) -> dict[int, Stats]:
    return {partition_number(name): part for name, part in (stats.get("partitions") or {}).items()}


def _producers(stats: Stats) -> Iterator[str]:
    for part in _parts(stats).values():
        for publisher in part.get("publishers") or []:
            yield _client(publisher, "producerName")


def _client(client: dict[str, Any], name: str) -> str:
    """Text `name@address` of a client as the broker sees it, with its role if the broker reports one."""
    role = f" as {client['appId']}" if client.get("appId") else ""
    return f"{client.get(name) or '?'}@{str(client.get('address') or '?').lstrip('/')}{role}"


def _analyze(admin: Admin, topic: TopicName, index: int, name: str) -> tuple[int, bool]:
    """Returns (messages, whether the broker stopped counting) for one partition of a subscription: its backlog counts
    entries, and this request reads how many messages they contain.

    Measured on 4.2.4: without a body the broker begins after the mark-delete position. With the position -1:-1 it
    begins with the first stored entry, and counts acknowledged entries there as well: 400 messages instead of 290. Of a
    batch that is acknowledged in part it counts all messages; only a consumer learns which of them remain.
    """
    path = f"{subscription_path(topic, name, index)}/analyzeBacklog"
    data = must(admin.call("POST", path), f"counting the backlog of {name} on {topic}")
    return int(data.get("messages") or 0), bool(data.get("aborted"))


def _ledgers(admin: Admin, topic: TopicName, parts: Mapping[int, Stats]) -> Iterator[tuple[int, int]]:
    """Yields (closing time in ms since the epoch, bytes) of every stored ledger. The open ledger has time 0, and the
    bytes of the stats that are in no closed ledger.
    """
    for index, part in parts.items():
        info = must(admin.call("GET", f"{partition_path(topic, index)}/internal-info"), f"reading ledgers of {topic}")
        closed = 0
        for ledger in info.get("ledgers") or []:
            if ledger.get("timestamp"):
                closed += int(ledger.get("size") or 0)
                yield int(ledger["timestamp"]), int(ledger.get("size") or 0)
        yield 0, max(0, int(part.get("storageSize") or 0) - closed)
