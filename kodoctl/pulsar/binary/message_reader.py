"""Reader of stored messages that consumes nothing: it reads each partition up to the entry that was
last at the start.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.admin.admin import Admin, AdminError, must, topic_path
from kodoctl.pulsar.binary.message_decoding import content
from kodoctl.pulsar.binary.undeliverable_entries import (
    QUIET_MS,
    EntryRun,
    Expected,
    ledgers_of,
    runs_text,
    stored_of,
    without_end,
    without_message,
)
from kodoctl.pulsar.connection.native_border import NativeMessage
from kodoctl.topology.names import TopicName, partition_number, partition_numbers

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.client import BoundedReader, BrokerClient

_READ_TIMEOUT_MS: Final = 15_000
_REST_MS: Final = 1_000  # how long after the last entry's first message the others of its batch may take
_LONG_S: Final = (_READ_TIMEOUT_MS - QUIET_MS) / 1000
_RANGE: Final = re.compile(r"([\[(])(-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)([\])])")
Place = tuple[int, int]
"""(ledger, entry)."""


class ReadMessage(NamedTuple):
    """Copy of a message of the client library. Times are ms since the epoch, 0: none.

    Args:
        token: acknowledges the message; None if it was read without consuming.
        batch: index in its batch; -1 if it is alone in its entry.
        payload: None: a tombstone.
        broken: text about parts that cannot be decoded (`kodoctl.pulsar.binary.message_decoding`), "" if there are
            none.
        first_chunk: place of the first chunk of a message in chunks, whose own place is that of the last chunk; None
            for other messages, and if nobody looked for chunks (`Expected.met`).
        producer: name of the producer, by which the broker tells repeated messages; "" if it was not read.
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
    first_chunk: Place | None = None
    producer: str = ""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts about one partition, as the broker reports them.

    Args:
        topic: full name of the partition.
        partition: its number; PLAIN for a plain topic.
        first_ledger: the oldest ledger; -1 if there is none.
        last: place of the last entry; its entry is -1 if the last ledger has none.
        deduplicates: the broker drops repeated messages.
        cursors: acknowledgements by subscription, with cursors that are the broker's own.
        ledgers: the stored entries of each ledger that has some.
    """

    topic: str
    partition: int
    first_ledger: int
    last: Place
    deduplicates: bool
    cursors: Mapping[str, Cursor]
    ledgers: tuple[EntryRun, ...] = ()

    def behind(self, after: Place | None) -> list[EntryRun]:
        """Stored entries after the entry `after`, one run for each ledger, oldest first; None: all stored entries."""
        cut = (run._replace(first=after[1] + 1) if after and run.ledger == after[0] else run for run in self.ledgers)
        return [run for run in cut if (after is None or run.ledger >= after[0]) and run.first <= run.last]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Acknowledgements of a subscription: all entries up to `mark` (the mark-delete position), and the entries in
    `ranges` (both ends included).
    """

    mark: Place
    ranges: tuple[tuple[Place, Place], ...]

    def has(self, place: Place) -> bool:
        """True if the entry at `place` is acknowledged as a whole; False for a batch with an unacknowledged message."""
        if place <= self.mark:
            return True
        return bool(self.ranges) and any(first <= place <= last for first, last in self.ranges)


def partitions_of(admin: Admin, topic: TopicName) -> list[str]:
    """Full names of a topic's partitions, or its own name if it has none. Raises UsageError if there is no such topic,
    AdminError if the broker refuses.
    """
    reply = admin.call("GET", f"{topic_path(topic)}/partitions")
    count = 0 if reply.missing else int(must(reply, f"looking for {topic}")["partitions"])
    if not count:
        reply = admin.call("GET", f"{topic_path(topic)}/internalStats")
        if reply.missing:
            raise UsageError(error("K560", "topic not found on the cluster", f"{topic}"))
        must(reply, f"looking for {topic}")
    return [topic.partition(number) for number in partition_numbers(count)]


def read_facts(admin: Admin, part: str) -> PartitionFacts:
    """Reads the stored entries of one partition, and the acknowledgements of each subscription. Raises UsageError if
    there is no such partition, AdminError.
    """
    name = TopicName.parse(part)
    reply = admin.call("GET", f"{topic_path(name)}/internalStats")
    if reply.missing:
        raise UsageError(error("K560", "topic not found on the cluster", part))
    if not reply.ok:
        raise AdminError(reply, f"looking at {part}")
    data = reply.data
    ledgers = [int(one["ledgerId"]) for one in data.get("ledgers") or ()]
    cursors = data.get("cursors") or {}
    return PartitionFacts(
        topic=part,
        partition=partition_number(part),
        first_ledger=min(ledgers, default=-1),
        last=place_of(str(data.get("lastConfirmedEntry", "-1:-1"))),
        deduplicates="pulsar.dedup" in cursors,
        cursors={subscription: cursor_of(cursor) for subscription, cursor in cursors.items()},
        ledgers=ledgers_of(data),
    )


def place_of(text: str) -> Place:
    """Parses a position `ledger:entry` to (ledger, entry). Raises ValueError for any other text."""
    ledger, _, entry = text.partition(":")
    return int(ledger), int(entry)


def cursor_of(data: Mapping[str, Any]) -> Cursor:
    """Parses one cursor in the JSON of `internalStats`: the mark, up to which every entry is acknowledged, and the
    ranges of entries after it that are acknowledged singly.
    """
    ranges = []
    for opened, ledger, entry, to_ledger, to_entry, closed in _RANGE.findall(
        data.get("individuallyDeletedMessages") or ""
    ):
        first = (int(ledger), int(entry) + (opened == "("))
        last = (int(to_ledger), int(to_entry) - (closed == ")"))
        ranges.append((first, last))
    return Cursor(place_of(str(data.get("markDeletePosition", "-1:-1"))), tuple(ranges))


class Unread:
    """Collector of stored entries for which readers got no message, so that commands report them. `runs`: these entries
    by full name of the partition. `sure`: `add` accepts only entries of which it is proved that no message can come,
    and raises ClusterError for others.
    """

    def __init__(self, admin: Admin, client: BrokerClient, *, sure: bool = False) -> None:
        self._admin, self._client, self._sure = admin, client, sure
        self.runs: dict[str, list[EntryRun]] = {}

    def add(self, part: str, runs: list[EntryRun]) -> None:
        """Adds entries of the partition `part` that a reader passed without a message, except those that are no longer
        stored. Raises ClusterError if `sure` requires a proof and there is none, and the errors of `read_facts`.
        """
        if self._sure and not self.silent(part, runs):
            detail = f"{runs_text(part, runs)}, or it lost its place: try again"
            raise ClusterError(error("K561", "messages cannot be read", detail))
        if runs and (there := stored_of(runs, read_facts(self._admin, part).ledgers)):
            self.runs[part] = sorted({*self.runs.get(part, ()), *there})

    def leave_out(self, part: str, cursor: Cursor) -> None:
        """Removes from `runs` the entries of the partition `part` that the subscription with this cursor has
        acknowledged.
        """
        entries = (
            EntryRun(run.ledger, one, one) for run in self.runs.pop(part, ()) for one in range(run.first, run.last + 1)
        )
        if left := [entry for entry in entries if not cursor.has(entry[:2])]:
            self.runs[part] = left

    def silent(self, part: str, runs: list[EntryRun]) -> bool:
        """True if new readers get no message of these entries either. If a reader gets nothing at all, that is no proof
        with `sure`, and counts as one without. Raises ClusterError, and the errors of `read_facts`.
        """
        import pulsar

        ledgers = read_facts(self._admin, part).ledgers if runs else ()
        try:
            found = [without_message(self._client, part, partition_number(part), run, ledgers) for run in runs]
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K561", "messages cannot be read", f"{part}: {problem}")) from None
        return all(one or (one is None and not self._sure) for one in found)

    def lines(self) -> list[str]:
        """One line of text for each partition that has unread entries."""
        return [runs_text(part, runs) for part, runs in self.runs.items()]

    def check(self) -> None:
        """Raises ClusterError that names all unread entries, if there are any. Call it after all other messages were
        shown.
        """
        if self.runs:
            raise ClusterError(*(error("K561", "messages cannot be read", line) for line in self.lines()))


def read_all(
    client: BrokerClient,
    facts: PartitionFacts,
    unread: Unread,
    *,
    after: Place | None = None,
    since: int | None = None,
    producers: bool = False,
) -> Iterator[ReadMessage]:
    """Yields the messages of one partition in order, up to the last entry of `facts`, without consuming them.

    Begins after the entry `after`, or at a publish time (`since`, ms since the epoch), else with the first stored
    message. Entries without a message are added to `unread` at the end, or when the caller stops. `producers`: also
    reads the names of producers, which the native border does not have. Raises ClusterError, and the errors of
    `Unread.add`.
    """
    runs = without_end(facts.behind(after), unread.runs.get(facts.topic, ()))
    if not runs:
        return
    expected, until = Expected(runs, open_=since is not None), (runs[-1].ledger, runs[-1].last)
    try:
        yield from _read_partition(
            client, facts.topic, until, after=after, since=since, watch=(unread, expected), producers=producers
        )
    except GeneratorExit:
        unread.add(facts.topic, expected.gaps)
        raise
    unread.add(facts.topic, expected.gaps + expected.rest())


def read_unacknowledged(
    client: BrokerClient, facts: PartitionFacts, unread: Unread, subscription: str, *, since: int | None = None
) -> Iterator[ReadMessage]:
    """Yields the messages of a partition that a subscription has not acknowledged, as `read_all` does; `unread` may get
    acknowledged entries, too (`Unread.leave_out`). `since`: begins at this publish time, ms since the epoch; None:
    begins after the last entry up to which everything is acknowledged. Raises UsageError if the partition has no such
    subscription, and ClusterError.
    """
    if (cursor := facts.cursors.get(subscription)) is None:
        detail = f"{facts.topic} has no subscription {subscription}"
        raise UsageError(error("K560", "topic not found on the cluster", detail))
    after = cursor.mark if since is None else None
    for stored in read_all(client, facts, unread, after=after, since=since):
        if not cursor.has((stored.ledger, stored.entry)):
            yield stored


def read_stored(
    client: BrokerClient,
    part: str,
    until: Place,
    *,
    after: Place | None = None,
    only: Container[tuple[int, int, int, int]] | None = None,
) -> Iterator[ReadMessage]:
    """Yields the messages of one partition in order, after the entry `after` (None: from the first stored one) up to
    the entry `until` (included), which must have a message. `only`: positions (partition, ledger, entry, batch) to
    yield, None: all. Changes no subscription. Raises ClusterError, also if no message comes for 15 s.
    """
    return _read_partition(client, part, until, after=after, only=only)


def _read_partition(  # noqa: PLR0913
    client: BrokerClient,
    part: str,
    until: Place,
    *,
    after: Place | None,
    since: int | None = None,
    only: Container[tuple[int, int, int, int]] | None = None,
    watch: tuple[Unread, Expected] | None = None,
    producers: bool = False,
) -> Iterator[ReadMessage]:
    import pulsar

    if until[1] < 0:
        return
    number = partition_number(part)
    start = pulsar.MessageId.earliest if after is None else pulsar.MessageId(number, *after, -1)
    try:
        with client.reader(part, start, part, bulk=not producers) as reader:
            if since is not None:
                reader.seek(since)
            for message, place, first in _messages(reader, part, until, watch):
                if after is not None and place[1:3] <= after:
                    continue  # a reader gives a batch that it begins behind once more
                if only is None or place in only:
                    # without a token, because a reader's id must not be used (DeadLetterConsumer)
                    copy = copy_message(message, None, place)
                    if first is not None:
                        copy = copy._replace(first_chunk=first)
                    yield copy._replace(producer=_producer_of(message)) if producers else copy
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K561", "messages cannot be read", f"{part}: {problem}")) from None


def _messages(
    reader: BoundedReader, part: str, until: Place, watch: tuple[Unread, Expected] | None
) -> Iterator[tuple[Any, tuple[int, int, int, int], Place | None]]:
    """Yields the stored messages up to the entry `until`, with their positions and first chunks. The client may report
    more messages and return none: this ends early if `watch` shows that none can come, else raises ClusterError after
    15 s.
    """
    reached, quiet, number, at = False, False, partition_number(part), (-1, -1)
    first: Place | None = None
    while (found := reader.take(_REST_MS / 1000 if reached else _LONG_S if quiet else QUIET_MS / 1000)) is not None:
        if not found:
            if reached or (watch and not quiet and watch[0].silent(part, watch[1].rest())):
                return
            if quiet:
                detail = f"{part}: no message came within {_READ_TIMEOUT_MS // 1000} s, though there are more"
                raise ClusterError(error("K561", "messages cannot be read", detail))
            quiet = True
            continue
        quiet = False
        for message in found:
            where = _position(message, number)
            if watch and where[1:3] != at:  # of the other messages of an entry there is nothing to learn
                first = watch[1].met(where[1:3], message)
            at = where[1:3]
            if at > until:
                return
            reached = at == until
            yield message, where, first


def _position(message: Any, partition: int) -> tuple[int, int, int, int]:
    if isinstance(message, NativeMessage):
        ledger, entry, _ = message.entry
        return partition, ledger, entry, message.batch_index
    return position_of(message.message_id(), partition)


def position_of(token: Any, partition: int) -> tuple[int, int, int, int]:
    """Returns (partition, ledger, entry, batch) of a message id `token` of the client library; `partition` is passed
    through, because the client library's reader of one partition does not know its number.
    """
    return partition, token.ledger_id(), token.entry_id(), token.batch_index()


def _producer_of(message: Any) -> str:
    """Name of a message's producer; "" if it is no text, which no name of ours is."""
    try:
        return str(message.producer_name())
    except UnicodeError:
        return ""


def copy_message(message: Any, token: Any, place: tuple[int, int, int, int]) -> ReadMessage:
    """Copies the values of a message, so that the client's object can be freed. `place`: its (partition, ledger, entry,
    batch).
    """
    if isinstance(message, NativeMessage):
        _, _, payload, properties, key, ordering_key, happened, published, _, broken, _ = message
        return ReadMessage(token, *place, payload, properties, key, ordering_key, happened, published, broken)
    payload, properties, key, ordering_key, happened, published, broken = content(message, alone=place[3] < 0)
    return ReadMessage(token, *place, payload, properties, key, ordering_key, happened, published, broken)
