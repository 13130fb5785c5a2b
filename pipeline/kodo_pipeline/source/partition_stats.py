# adapter: reads the admin API
"""Statistics of partitions from the admin API (`internalStats`): one call for all partitions of a topic; and the
position at which a publish time begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kodo_pipeline.source.splits import Place, StoredPartition, nothing_deleted, stored_partition
from kodoctl.errors import UsageError, error
from kodoctl.pulsar.admin.admin import Admin, must, partition_path, topic_path
from kodoctl.pulsar.admin.omitted_partitions import ask_each
from kodoctl.topology.names import PLAIN, TopicName

_AT_ONCE: Final = 8  # more does not make a broker faster
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Part = tuple[TopicName, int]
"""(topic, number of its partition); PLAIN: the topic has no partitions."""


class PartitionMetadata(NamedTuple):
    """Metadata of a partition. `created`: creation time; `rewrites`: number of writes of its metadata, less the number
    of its ledgers; this difference grows if ledgers are deleted. None: the broker does not report it.
    """

    created: datetime | None = None
    rewrites: int | None = None

    def follows(self, earlier: PartitionMetadata) -> bool:
        """True if this is certainly the same partition as in the `earlier` metadata, and none of its ledgers with
        entries was deleted in between. False if a value is unknown.
        """
        same = self.created is not None and self.created == earlier.created
        return same and nothing_deleted(earlier.rewrites, self.rewrites)

    def is_another_than(self, earlier: PartitionMetadata | None) -> bool:
        """True if this partition was created at another time than that of the `earlier` metadata, so it is another one;
        False if a time is unknown.
        """
        return earlier is not None and None not in (earlier.created, self.created) and earlier.created != self.created


def read_stored(admin: Admin, topics: Iterable[TopicName]) -> dict[Part, StoredPartition]:
    """Reads the stored ranges of every partition of the topics, in their order, several topics at a time. Raises
    UsageError (K560) that names every topic that does not exist, and the errors of `internal_stats`.
    """
    asked = list(topics)
    answers = each_internal_stats(admin, asked)
    if absent := [topic for topic, answer in zip(asked, answers, strict=True) if answer is None]:
        raise UsageError(*(error("K560", "topic not found on the cluster", f"{topic}") for topic in absent))
    return {
        (topic, number): stored_partition(stats)
        for topic, answer in zip(asked, answers, strict=True)
        for number, stats in sorted((answer or {}).items())
    }


def each_internal_stats(admin: Admin, topics: Iterable[TopicName]) -> list[dict[int, Any] | None]:
    """`internal_stats` of each topic, in the same order, eight topics at a time; None for a topic that does not exist."""
    return map_concurrently(partial(internal_stats, admin), topics)


def map_concurrently(ask: Callable[[Asked], Answer], asked: Iterable[Asked]) -> list[Answer]:
    """Calls `ask` for each item of `asked`, eight at a time. Returns the answers in the order of the items; raises the
    first error in that order when the calls under way have ended, and makes no further ones.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, asked))


def internal_stats(admin: Admin, topic: TopicName) -> dict[int, Any] | None:
    """Reads the statistics of a topic by partition; the key is PLAIN for a plain topic. None if the topic
    does not exist. Partitions that the topic's metadata counts and that do not exist are left out. Raises ClusterError
    if a partition does not answer, because it may exist.
    """
    reply = admin.call("GET", f"{topic_path(topic)}/partitions")
    count = 0 if reply.missing else int(must(reply, f"looking for {topic}")["partitions"])
    if not count:
        plain = admin.call("GET", f"{topic_path(topic)}/internalStats")
        return None if plain.missing else {PLAIN: must(plain, f"looking at {topic}")}
    found = must(admin.call("GET", f"{topic_path(topic)}/partitioned-internalStats"), f"looking at {topic}")
    parts = found.get("partitions") or {}
    answered = {number: stats for number in range(count) if (stats := parts.get(topic.partition(number)))}
    lacking = [
        number for number in range(count) if number not in answered
    ]  # as all do that are moved to another broker
    return dict(sorted({**answered, **ask_each(admin, topic, lacking, "internalStats")}.items()))


def histories(admin: Admin, topic: TopicName, parts: Iterable[int]) -> dict[int, PartitionMetadata]:
    """Reads the metadata (creation time, number of rewrites) of each partition in `parts`. Partitions of which the
    broker reports none, or refuses it, are included with unknown values. Raises ClusterError if no broker answers.
    """
    reply = admin.call("GET", f"{topic_path(topic)}/internal-info")
    answer = reply.data if reply.ok and isinstance(reply.data, dict) else {}
    each = answer.get("partitions") or {}
    return {part: _history(answer if part == PLAIN else each.get(topic.partition(part)) or {}) for part in parts}


def _history(info: Mapping[str, Any]) -> PartitionMetadata:
    """Metadata from the broker's answer for a partition; without values if these cannot be read. A partition's metadata
    is written when the partition is created, for each ledger that is opened, and when ledgers are deleted: a deleted
    ledger is one ledger less, and one write more. If a broker that loads a partition replaces an empty ledger, that is
    only one write more.
    """
    try:
        return PartitionMetadata(
            datetime.fromisoformat(info["creationDate"]), int(info["version"]) - len(info["ledgers"])
        )
    except (KeyError, TypeError, ValueError):
        return PartitionMetadata()


def seek_by_time(admin: Admin, part: Part, moment: int) -> Place | None:
    """Asks the broker for the position of the first entry published at or after `moment` (ms since the epoch); None if
    there is none, or if the broker refuses to answer. Raises ClusterError if no broker answers.
    """
    topic, number = part
    path = partition_path(topic, number)
    reply = admin.call("GET", f"{path}/messageid/{moment}")
    if not reply.ok or not isinstance(reply.data, dict):
        return None
    found = int(reply.data.get("ledgerId", -1)), int(reply.data.get("entryId", -1))
    return found if found[0] >= 0 else None
