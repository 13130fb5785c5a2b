"""Stored messages of a source in one partition, read back from its end: by positions, because clocks may differ."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kodo_consumer.source.identity import PartitionCopies, SourceIdentity
from kodoctl.pulsar.binary.message_reader import Unread, read_all, read_facts
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session

log = logging.getLogger("kodo.source")
_WINDOW: Final = 2_000  # entries at the end that are read first
_GROWTH: Final = 8  # how many times as many are read next
_ALIVE_EVERY: Final = 0.5  # seconds


def read_back(
    session: Session,
    partition: str,
    identity: SourceIdentity,
    is_enough: Callable[[PartitionCopies, int], bool],
    keep_alive: Callable[[], None] = lambda: None,
    start: int = 0,
) -> PartitionCopies:
    """Reads the messages of a source in the last entries of a partition, and in more of them until `is_enough` returns
    True or all of them are read; entries that are stored after the call begins are left out. Raises ClusterError, also
    for entries without a message, unless new readers prove that they have none, and UsageError if there is no such
    partition.

    An entry that is proved to have none is not the source's, which sends what its own client library reads. Whoever may
    produce to the topic may store such entries, and must not keep the source from starting. The last chunks of a
    message in chunks have none if the reading begins behind the first one: more is read, until the entries without a
    message stay the same.

    Args:
        is_enough: Receives the messages, and the publish time of the first one that was read (ms since the epoch, by
            the clock of its sender; 0: none was read).
        keep_alive: Called at most twice a second, between two messages; its exceptions pass.
        start: Position from which on the messages of others are counted.
    """
    facts = read_facts(session.admin, partition)
    window, turned_at = _WINDOW, time.monotonic()
    without_message = dict[str, list[EntryRun]]()
    while True:
        unread = Unread(session.admin, session.client, sure=True)
        copies, began = PartitionCopies(identity, partition, start), 0
        after = place_before(facts.ledgers, window)
        for message in read_all(session.client, facts, unread, after=after, producers=True):
            began = began or message.publish_time
            copies.add(message)
            if time.monotonic() - turned_at >= _ALIVE_EVERY:
                keep_alive()
                turned_at = time.monotonic()
        if after is None or (unread.runs == without_message and is_enough(copies, began)):
            for line in unread.lines():
                log.warning("%s: these count as messages of others", line)
            return copies
        without_message = unread.runs
        window *= _GROWTH


def place_before(runs: Sequence[EntryRun], entries: int) -> tuple[int, int] | None:
    """(ledger, entry) before the last `entries` stored entries; None: there are no more than these."""
    for run in reversed(runs):
        if run.entries > entries:
            return run.ledger, run.last - entries
        entries -= run.entries
    return None
