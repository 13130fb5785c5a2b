"""Looking at stored messages without consuming them: a reader a partition, bounded by what is stored at the start."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.admin import Admin, AdminError, must, topic_path
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.decoding import as_they_are, content
from kodoctl.topology.names import TopicName

READ_TIMEOUT_MS: Final = 15_000
_RANGE: Final = re.compile(r"([\[(])(-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)([\])])")
Place = tuple[int, int]
"""(ledger, entry)."""


class Stored(NamedTuple):
    """A message copied out of the client. `token` acknowledges it, None where it was only looked at; times are ms since the epoch, 0 = none; `batch` -1: alone
    in its entry; `payload` None: a tombstone; `broken`: what of it cannot be read (kodoctl.pulsar.decoding).
    """

    token: Any
    partition: int
    ledger: int
    entry: int
    batch: int
    payload: bytes | None
    properties: Mapping[str, str]
    key: str
    ordering_key: str
    event_time: int
    publish_time: int
    broken: str


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition as the broker has it. `first` and `last`: what is stored; `deduplicates`: what is sent twice is dropped."""

    topic: str
    partition: int
    first_ledger: int
    last: Place
    deduplicates: bool
    cursors: Mapping[str, Cursor]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a subscription is: everything up to `mark`, and what lies in `ranges` (both ends included), is acknowledged."""

    mark: Place
    ranges: tuple[tuple[Place, Place], ...]

    def has(self, place: Place) -> bool:
        """Whether an entry is acknowledged as a whole (of a batch: all of it)."""
        if place <= self.mark:
            return True
        return bool(self.ranges) and any(first <= place <= last for first, last in self.ranges)


def partitions_of(admin: Admin, topic: TopicName) -> list[str]:
    """Full names of the parts of a topic, itself where it has none. Raises UsageError when there is no such topic."""
    reply = admin.call("GET", f"{topic_path(topic)}/partitions")
    count = 0 if reply.missing else int(must(reply, f"looking for {topic}")["partitions"])
    if count:
        return [topic.partition(index) for index in range(count)]
    if admin.call("GET", f"{topic_path(topic)}/internalStats").missing:
        raise UsageError(error("K560", "no such topic on the cluster", f"{topic}"))
    return [topic.full]


def read_facts(admin: Admin, part: str) -> PartitionFacts:
    """What is stored in one partition, and who has acknowledged how much."""
    name = TopicName.parse(part)
    reply = admin.call("GET", f"{topic_path(name)}/internalStats")
    if reply.missing:
        raise UsageError(error("K560", "no such topic on the cluster", part))
    if not reply.ok:
        raise AdminError(reply, f"looking at {part}")
    data = reply.data
    ledgers = [int(one["ledgerId"]) for one in data.get("ledgers") or ()]
    cursors = data.get("cursors") or {}
    return PartitionFacts(
        topic=part,
        partition=number_of(part),
        first_ledger=min(ledgers, default=-1),
        last=_place(data.get("lastConfirmedEntry", "-1:-1")),
        deduplicates="pulsar.dedup" in cursors,
        cursors={subscription: cursor_of(cursor) for subscription, cursor in cursors.items()},
    )


def number_of(part: str) -> int:
    """The number of a partition by its name; 0 for a topic without partitions."""
    head, _, number = part.rpartition("-partition-")
    return int(number) if head and number.isdigit() else 0


def _place(text: str) -> Place:
    ledger, _, entry = str(text).partition(":")
    return int(ledger), int(entry)


def cursor_of(data: Mapping[str, Any]) -> Cursor:
    """A cursor as `internalStats` tells it."""
    ranges = []
    for opened, ledger, entry, to_ledger, to_entry, closed in _RANGE.findall(
        data.get("individuallyDeletedMessages") or ""
    ):
        first = (int(ledger), int(entry) + (opened == "("))
        last = (int(to_ledger), int(to_entry) - (closed == ")"))
        ranges.append((first, last))
    return Cursor(_place(data.get("markDeletePosition", "-1:-1")), tuple(ranges))


def read_stored(
    client: BrokerClient,
    part: str,
    until: Place,
    *,
    after: Place | None = None,
    since: int | None = None,
    only: Container[tuple[int, int, int, int]] | None = None,
) -> Iterator[Stored]:
    """Messages of one partition in their order, up to the entry `until`; beginning after an entry, or at a publish time
    (`since`, ms since the epoch); `only` these, (partition, ledger, entry, batch). What other subscriptions have is not touched.
    """
    import pulsar

    if until[1] < 0:
        return
    number = number_of(part)
    start = pulsar.MessageId.earliest if after is None else pulsar.MessageId(number, *after, -1)
    try:
        reader = client.get().create_reader(part, start, receiver_queue_size=1000, **as_they_are())
        with contextlib.closing(reader):
            if since is not None:
                reader.seek(since)
            while reader.has_message_available():
                message = reader.read_next(READ_TIMEOUT_MS)
                place = place_of(message.message_id(), number)
                if place[1:3] > until:
                    return
                if only is None or place in only:
                    yield copied(message, None, place)  # a reader's id must not be used: kodoctl.pulsar.letters.Holder
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K561", "messages cannot be read", f"{part}: {problem}")) from None


def place_of(token: Any, partition: int) -> tuple[int, int, int, int]:
    """(partition, ledger, entry, batch) of a message's id."""
    return partition, token.ledger_id(), token.entry_id(), token.batch_index()


def copied(message: Any, token: Any, place: tuple[int, int, int, int]) -> Stored:
    """Everything needed, so that the client's object can go."""
    payload, properties, key, ordering_key, happened, published, broken = content(message, alone=place[3] < 0)
    return Stored(token, *place, payload, properties, key, ordering_key, happened, published, broken)
