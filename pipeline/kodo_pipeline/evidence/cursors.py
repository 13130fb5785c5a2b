# adapter: reads the broker and the landing
"""Snapshot of the cursors of declared subscriptions, taken before the ends of the ranges to read are fixed. By this
order, every message that the snapshot shows as acknowledged must be in the ranges that are read after it.

`unrecorded_subscriptions` finds consumers of audited subscriptions that do not announce audit records: they were
started before `audit: true`, or are not workers of kodoctl.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.evidence.readings import NAMELESS, mode_of
from kodo_pipeline.evidence.start_positions import UNRECORDED, WAITS
from kodo_pipeline.landing.landing_commits import read_at
from kodo_pipeline.landing.tables import CURSORS
from kodo_pipeline.source.partition_stats import PartitionMetadata, histories, internal_stats, map_concurrently
from kodoctl.protocol.audit_records import RECORDS_METADATA
from kodoctl.pulsar.admin.admin import Admin, must, topic_path
from kodoctl.pulsar.admin.topic_stats import read_stats
from kodoctl.pulsar.binary.message_reader import cursor_of
from kodoctl.topology.names import HOLDER, State, partition_name

if TYPE_CHECKING:
    from kodo_pipeline.landing.landing_store import Landing
    from kodoctl.topology.expand import Expansion, FamilyTopic

_ENDLESS: Final = 2**62  # the last entry of a ledger whose size nobody needs
Row = dict[str, Any]


def read_cursors(admin: Admin, expansion: Expansion, run: str, now: int) -> list[Row]:
    """Reads cursors by the admin API, as rows (dicts) of the table `cursors`: for every existing partition one row with
    its last stored entry (subscription NAMELESS) and one for each subscription of the file that it has, on dead-letter
    topics for their holder.

    Audit topics are read last, because they have the records of everything that is acknowledged elsewhere. `now`: time
    of the rows, ms since the epoch. Raises ClusterError if the cluster does not answer, or refuses an answer that is
    needed.
    """
    unrecorded = unrecorded_subscriptions(admin, expansion)

    def read_topic(topic: FamilyTopic) -> list[Row]:
        names = _declared_subscriptions(expansion, topic)
        found = internal_stats(admin, topic.name)
        if not found:
            return []
        known = histories(admin, topic.name, found)
        fixed = {
            "msg_topic": topic.name.full,
            "topic": topic.ground,
            "ttl_ms": _ttl(admin, topic),
            "audit": _mode(expansion, topic, unrecorded),
            "taken_ts": datetime.fromtimestamp(now / 1000, UTC),
            "ingest_run": run,
        }
        return [
            {**fixed, "created_ts": known[number].created, "rewrites": known[number].rewrites, **row}
            for number, stats in found.items()
            for row in _of_partition(number, stats, names)
        ]

    others = map_concurrently(read_topic, [one for one in expansion.topics if one.state is not None])
    records = map_concurrently(read_topic, [one for one in expansion.topics if one.state is None])
    return [row for rows in (*others, *records) for row in rows]


def last_looks(landing: Landing) -> dict[str, PartitionMetadata]:
    """Metadata of partitions by full name, as the last completed ingest recorded them before it read messages; those
    that did not exist then, or that it left unread, are missing. Empty if there is no such ingest.
    """
    commits = landing.commits()
    at = read_at(commits)
    looked = [one.run for one in commits if one.batch is None and one.at == at and CURSORS.name in one.tables]
    return partition_histories(row for run in looked for row in landing.rows(CURSORS, "ingest_run", run))


def partition_histories(rows: Iterable[Row]) -> dict[str, PartitionMetadata]:
    """Metadata of partitions by full name, from rows of `read_cursors`."""
    return {
        partition_name(row["msg_topic"], row["msg_partition"]): PartitionMetadata(row["created_ts"], row["rewrites"])
        for row in rows
        if row["subscription"] == NAMELESS
    }


def _declared_subscriptions(expansion: Expansion, topic: FamilyTopic) -> Sequence[str]:
    match topic.state:
        case None:
            return ()
        case State.READY:
            return list(expansion.topology.spec.topics[topic.ground].subscriptions)
        case State.DEAD:
            return [HOLDER]
        case _:
            return [topic.subscription] if topic.subscription else ()


def _mode(expansion: Expansion, topic: FamilyTopic, unrecorded: Container[tuple[str, str]]) -> str | None:
    if topic.state is not None or topic.subscription is None:
        return None
    if (topic.ground, topic.subscription) in unrecorded:
        return UNRECORDED
    return mode_of(expansion.topology.spec.topics[topic.ground].subscriptions[topic.subscription])


def _of_partition(number: int, stats: Mapping[str, Any], names: Sequence[str]) -> Iterator[Row]:
    ledgers = sorted(int(one["ledgerId"]) for one in stats.get("ledgers") or ())
    declared = {name: data for name, data in (stats.get("cursors") or {}).items() if name in names}
    stored = {"markDeletePosition": str(stats.get("lastConfirmedEntry", "-1:-1"))}
    for name, data in {NAMELESS: stored, **declared}.items():
        cursor = cursor_of(data)
        yield {
            "msg_partition": number,
            "subscription": name,
            "mark_ledger": cursor.mark[0],
            "mark_entry": cursor.mark[1],
            "acknowledged": [one for first, last in cursor.ranges for one in _by_ledger(first, last, ledgers)],
            "first_ledger": ledgers[0] if ledgers else -1,
        }


def _by_ledger(first: tuple[int, int], last: tuple[int, int], ledgers: Sequence[int]) -> Iterator[Row]:
    """Yields a range of entries, which may span ledgers, as {ledger, first, last} for each ledger. `last` is `_ENDLESS`
    for all ledgers except the last.
    """
    spanned = [
        first[0],
        *(one for one in ledgers if first[0] < one < last[0]),
        *([last[0]] if last[0] > first[0] else []),
    ]
    begin = first[1]
    for ledger, following in pairwise([*spanned, None]):
        yield {"ledger": ledger, "first": begin, "last": last[1] if following is None else _ENDLESS}
        begin = 0


def _ttl(admin: Admin, topic: FamilyTopic) -> int | None:
    """TTL of a topic in ms; None: none, or this role may not read it. Raises AdminError for any other failure, because
    without the TTL expired messages would count as lost.
    """
    reply = admin.call("GET", f"{topic_path(topic.name)}/messageTTL", query={"applied": "true"})
    seconds = None if reply.forbidden or reply.missing else must(reply, f"reading the TTL of {topic.name}")
    return seconds * 1000 or None if isinstance(seconds, int) else None


def unrecorded_subscriptions(admin: Admin, expansion: Expansion) -> set[tuple[str, str]]:
    """Finds subscriptions with the audit mode `wait` to which a consumer is connected that does not announce that it
    waits for its audit records: (ground topic, subscription) of each. Asks the broker, about ready and waiting topics.
    Raises ClusterError if it does not answer.
    """
    grounds = expansion.topology.spec.topics
    audited = {
        (topic, name)
        for topic, ground in grounds.items()
        for name, spec in ground.subscriptions.items()
        if mode_of(spec) == WAITS
    }
    asked = [
        (topic, readers)
        for topic in expansion.topics
        if topic.state not in (None, State.DEAD)
        and (readers := {(ground, name) for ground, name in audited
                         if ground == topic.ground and topic.subscription in (None, name)})
    ]  # fmt: skip
    answers = map_concurrently(partial(read_stats, admin), [topic.name for topic, _ in asked])
    return {
        one
        for (_, readers), stats in zip(asked, answers, strict=True)
        for part in (stats or {}).get("partitions", {}).values()
        for one in readers
        if _is_unrecorded(part, one[1])
    }


def _is_unrecorded(part: Mapping[str, Any], subscription: str) -> bool:
    consumers = ((part.get("subscriptions") or {}).get(subscription) or {}).get("consumers") or ()
    return any((one.get("metadata") or {}).get(RECORDS_METADATA) != WAITS for one in consumers)
