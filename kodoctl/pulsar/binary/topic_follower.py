"""Topic follower: yields the messages that arrive in topics, for as long as the caller iterates, without consuming
them.

Each partition has a reader. A reader whose broker goes away connects again by itself, at the same position; one that
stays without a connection is replaced. Partitions that are added to a topic are read from their beginning.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.binary.client import CALL_S
from kodoctl.pulsar.binary.message_reader import (
    PartitionFacts,
    ReadMessage,
    Unread,
    copy_message,
    partitions_of,
    position_of,
)
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun, Expected, runs_text
from kodoctl.topology.names import partition_number

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BoundedReader, BrokerClient
    from kodoctl.topology.names import TopicName

_LOOK_EVERY: Final = 0.1  # seconds
_GROWTH_EVERY: Final = 10.0  # seconds between two looks for new partitions
_LOST_AFTER: Final = 1.0  # seconds without a connection; an unload takes less
_REPLACED_AFTER: Final = 30.0  # seconds without a connection
_NO_END: Final = 1 << 62  # as the last entry of a ledger that grows
_WHOLE_ENTRY: Final = (1 << 31) - 1  # as the batch index behind the last message of an entry
Position = tuple[int, int, int, int]
"""(partition, ledger, entry, batch)."""


@dataclass(slots=True)
class _Followed:
    """One partition. `last`: the last message, None: the partition is read from its beginning; `lost`: since when the
    reader has no connection (monotonic seconds), None: it has one; `is_reported`: people know of that.
    """

    topic: TopicName
    part: str
    last: Position | None
    expected: Expected
    stack: ExitStack = field(default_factory=ExitStack)
    reader: BoundedReader | None = None
    lost: float | None = None
    is_reported: bool = False


class TopicFollower:
    """Reader of messages of several topics as they arrive. `admin`: is used to look for new partitions, and should not
    wait for brokers; `unread`: takes entries of which the client library returns no message; `notice`: takes texts for
    people about connections and new partitions.
    """

    def __init__(self, admin: Admin, client: BrokerClient, unread: Unread, notice: Callable[[str], None]) -> None:
        self._admin, self._client, self._unread, self._notice = admin, client, unread, notice
        self._parts: dict[str, _Followed] = {}

    def follow(self, places: Iterable[tuple[TopicName, PartitionFacts]]) -> Generator[tuple[TopicName, ReadMessage]]:
        """Yields (topic, message) for each message that is stored after the facts of its partition were read. Messages
        that arrive together are sorted by publish time. Never ends by itself. Raises UsageError if a topic is deleted,
        ClusterError if a reader cannot be opened at the start, or if the client library does not return.
        """
        for topic, facts in places:
            self._add(topic, facts.topic, facts.ledgers)
        with ExitStack() as stack:
            stack.callback(self._close)
            for one in self._parts.values():
                self._open(one)
            grown = time.monotonic()
            while True:
                found = self._look()
                yield from sorted(found, key=lambda pair: pair[1].publish_time)
                self._watch_connections()
                if time.monotonic() - grown >= _GROWTH_EVERY:
                    self._grow()
                    grown = time.monotonic()
                if not found:
                    time.sleep(_LOOK_EVERY)

    def _add(self, topic: TopicName, part: str, ledgers: Iterable[EntryRun]) -> None:
        """Adds a partition, to be followed after its stored entries."""
        end = max(ledgers, default=None)
        if end is None:
            self._parts[part] = _Followed(topic, part, None, Expected([]))
        else:
            last = partition_number(part), end.ledger, end.last, _WHOLE_ENTRY
            self._parts[part] = _Followed(topic, part, last, _entries_after(end.ledger, end.last))

    def _open(self, one: _Followed) -> None:
        """Opens the reader of a partition behind its last message. Raises ClusterError."""
        import pulsar

        start = pulsar.MessageId.earliest if one.last is None else pulsar.MessageId(*one.last)
        try:
            one.reader = one.stack.enter_context(self._client.reader(one.part, start, one.part, limit=0))
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K561", "messages cannot be read", f"{one.part}: {problem}")) from None

    def _close(self) -> None:
        for one in self._parts.values():
            one.stack.close()

    def _look(self) -> list[tuple[TopicName, ReadMessage]]:
        """Messages that have come to the readers so far."""
        open_ = [(one, one.reader) for one in self._parts.values() if one.reader is not None]
        arrivals = self._client.patience.call(
            lambda: [reader.arrivals() for _, reader in open_], "messages that arrive", CALL_S
        )
        return [
            (one.topic, copied)
            for (one, _), messages in zip(open_, arrivals, strict=True)
            for message in messages
            if (copied := self._copied(one, message)) is not None
        ]

    def _copied(self, one: _Followed, message: Any) -> ReadMessage | None:
        """Copies a message, and reports the entries before it that gave none; if no broker answers now, with a later
        message. None: a reader gives the entry where it begins as a whole, so the message came before.
        """
        position = position_of(message.message_id(), partition_number(one.part))
        if one.last is not None and position <= one.last:
            return None
        if one.last is None or position[1] != one.last[1]:
            unreported, one.expected = one.expected.gaps, _entries_after(position[1], -1)
            one.expected.gaps = unreported
        if one.last is None or position[1:3] != one.last[1:3]:
            one.expected.met(position[1:3], message)
        one.last = position
        if gaps := one.expected.gaps:
            with contextlib.suppress(ClusterError):
                self._unread.add(one.part, gaps)
                one.expected.gaps = []
                self._notice(runs_text(one.part, gaps))
        return copy_message(message, None, position)

    def _watch_connections(self) -> None:
        """Reports partitions whose readers have lost their connection, or have it again. Replaces a reader that has
        been without one for long, one at a time: opening one may take half a minute.
        """
        now = time.monotonic()
        lost, back = [], []
        for one in self._parts.values():
            if one.reader is not None and one.reader.is_connected:
                back += [one] * one.is_reported
                one.lost, one.is_reported = None, False
            elif one.lost is None:
                one.lost = now
            elif not one.is_reported and now - one.lost >= _LOST_AFTER:
                one.is_reported = True
                lost.append(one)
        if lost:
            self._notice(f"Connection lost, waiting for a broker: {_names(lost)}")
        if back:
            self._notice(f"Connected again: {_names(back)}")
        for one in self._parts.values():
            if one.lost is not None and now - one.lost >= _REPLACED_AFTER:
                self._replace(one)
                return

    def _replace(self, one: _Followed) -> None:
        """Opens a new reader of a partition. If that fails, reports why; it is tried again after a while."""
        one.stack.close()
        one.reader, one.lost = None, time.monotonic()
        try:
            self._open(one)
        except ClusterError as problem:
            self._notice(f"No connection, trying again: {problem.diagnostics[0].detail}")

    def _grow(self) -> None:
        """Adds partitions that topics got meanwhile. Raises UsageError if a topic is deleted."""
        for topic in {one.topic for one in self._parts.values()}:
            try:
                names = [name for name in partitions_of(self._admin, topic) if name not in self._parts]
            except ClusterError:  # nobody answers now; the next look may tell
                continue
            for name in names:
                self._notice(f"New partition: {name}")
                self._add(topic, name, ())
                self._replace(self._parts[name])


def _entries_after(ledger: int, last: int) -> Expected:
    """Expectation of every entry of a ledger after the entry `last` (-1: of all)."""
    return Expected([EntryRun(ledger, last + 1, _NO_END)])


def _names(parts: list[_Followed]) -> str:
    return parts[0].part if len(parts) == 1 else f"{parts[0].part} and {len(parts) - 1:,} more"
