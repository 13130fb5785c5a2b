"""Evidence of an audit: statuses of messages, coverage of partitions, and holes in the numbers of records and of
producers. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodoctl.topology.names import partition_name


class MessageStatus(StrEnum):
    """Status (fate) of one message for one subscription, as documents print it, from best to worst (`RANKS`). If the
    places of a message have several, the worst counts; but a message with two or more records that it was done,
    discarded or transferred, at one place or at several, is DUPLICATED unless a place has a worse status than DONE.
    """

    MOVING = "moving"  # moved, and the next place was stored after the cut
    NOT_FOR_ME = "not for me"  # meant for another subscription, or a producer's mark
    WRITTEN_OFF = "written off"  # lost, or not proved done, and settled by a person (kodo_pipeline.audit.write_offs)
    DISCARDED = "discarded"
    DONE = "done"
    DUPLICATED = "done twice"
    DEAD = "dead"
    STORED = "in the inbox"  # acknowledged, recorded as stored in the database of its subscription, and not ended yet
    WAITING = "waiting"  # unacknowledged in a waiting state, or in a ready lane until the time that its sender set
    OPEN = "open"  # unacknowledged in a ready lane
    OVERDUE = "overdue"  # unacknowledged, or in the inbox, for longer than its horizon
    UNPROVED = "unproved"  # what was seen does not prove that it was done, or that it was lost
    UNKNOWN = "unknown"  # a record of a message that was never stored where it says
    LOST = "lost"


RANKS: Final[Mapping[MessageStatus, int]] = {fate: rank for rank, fate in enumerate(MessageStatus)}
OPEN_FATES: Final = (MessageStatus.OPEN, MessageStatus.WAITING, MessageStatus.STORED)


class Cause(StrEnum):
    """Reason why a message is LOST or UNPROVED, as a text for people."""

    GONE = "acknowledged without a record and without a next place"
    VANISHED = "its record, or its recall's receipt, names a next place where nothing is stored"
    RELEASED = "a dead letter was released, and neither a recall nor the recall ledger knows it"
    UNCONFIRMED_RECALL = "a recall sent it, says the recall ledger, and nothing that was read shows where"
    NO_RECORDS = "acknowledged, and the subscription keeps no records to prove more"
    NOWHERE = "the next place that its record names cannot have been stored then, or was, and was not read"
    UNRECORDED = "the next place is stored, the record of the move is missing"
    NO_CURSOR = "the subscription is not on this partition, so nothing says what it acknowledged"
    UNCOVERED = "what would prove it was not read completely"
    BEFORE = "the subscription, or what is known of its records, may have begun behind it"
    IDENTITY_MISMATCH = "record and message have different identities"
    SENT_AGAIN = "sent again by a recall, and the ledger of it is not here"


@dataclass(frozen=True, slots=True)
class PartitionCoverage:
    """Coverage of one partition of `topic` (full name) over all ingests. Durations are in ms.

    `entries_planned`, `entries_seen`: numbers of entries to read, and of those that were read or proved unreadable, in
    all ranges. `problems`: texts about ranges that were not read in full, entries that were gone before, a partition
    that was made again, and, on ready topics, ranges that do not continue each other. `read`: an ingest has read the
    partition, or its cursors. `from_creation`: it was read from its creation on; always true except on ready topics.
    `read_before_cursors`: the last cursors show a message, stored or acknowledged, after the end of the ranges. `ttl`:
    time to live of messages, 0: none; `unread`: the longest time between two readings, 0 without two, None: unknown.
    `audit`: it is a partition of an audit topic.
    """

    topic: str
    partition: int
    entries_planned: int = 0
    entries_seen: int = 0
    problems: tuple[str, ...] = ()
    read: bool = True
    from_creation: bool = True
    read_before_cursors: bool = False
    ttl: int = 0
    unread: int | None = 0
    missing_subscriptions: tuple[str, ...] = ()  # subscriptions of the file that are not on it
    audit: bool = False
    absent: bool = False  # it was not there when the last run looked
    looks: tuple[int, ...] = field(default=(), repr=False)  # times of the readings, ms since the epoch
    left: str = ""  # why the last run left it where it was, though it is there
    unrecorded: str = ""  # subscription with a worker that does not say that it records, at the last look

    @property
    def name(self) -> str:
        """Full name of the partition, as reasons and notes print it."""
        return partition_name(self.topic, self.partition)

    @property
    def full(self) -> bool:
        """True if an ingest read the partition, or its cursors, and there are no `problems`."""
        return self.read and not self.problems


@dataclass(frozen=True, slots=True)
class SubscriptionTotals:
    """Counts of one subscription: its messages by status (fate), and the holes and contradictions in its audit records.

    `missing_records`: count of numbers, up to the highest that landed of each worker run, that no record has.
    `contradictions`: count of record numbers with two different records, or that a later record shares with a removed
    one. `runs`: some of the worker runs with missing numbers. `sent_again`: count of messages that were lost, or not
    proved done, and that a recall sent again. `records_settled`: number of the missing records that were written off; a
    missing record may still explain a lost message.
    """

    topic: str
    subscription: str
    audit: Literal["wait", "best_effort", "none"]
    fates: Mapping[MessageStatus, int] = field(default_factory=dict)
    missing_records: int = 0
    contradictions: int = 0
    runs: tuple[str, ...] = ()
    sent_again: int = 0
    records_settled: int = 0

    @property
    def name(self) -> str:
        """Topic and subscription, as reasons and notes print them."""
        return f"{self.topic} / {self.subscription}"

    @property
    def judged(self) -> int:
        """Number of messages of the subscription that have a status."""
        return sum(self.fates.values())

    @property
    def messages(self) -> dict[str, int]:
        """Number of messages by status, in the order of MessageStatus, without statuses that no message has."""
        return {fate.value: self.count(fate) for fate in MessageStatus if self.count(fate)}

    def count(self, fate: MessageStatus) -> int:
        """Number of messages with this status."""
        return self.fates.get(fate, 0)


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Numbers of one producer run on one partition of `topic` (full name) that no message has, and that no mark which
    the audit believes reports as void. `missing`: how many; `overdue`: how many of these the producer would have
    reported as void by now if it had no receipt for them; `unsigned`: how many more would be overdue if marks without a
    verified signature were believed. The rest may still be on their way, or the producer died before it could report
    them. `partition`: PLAIN on a plain topic. `highest`: the largest of these numbers.
    """

    topic: str
    partition: int
    run: str
    missing: int
    overdue: int
    firm: bool = True  # the partition was read completely, from its creation on
    unsigned: int = 0
    highest: int = 0


@dataclass(frozen=True, slots=True)
class Misaddressed:
    """Count of messages that a producer addressed to a subscription which, by the file, the topic (full name) does not
    have.
    """

    topic: str
    subscription: str
    messages: int


@dataclass(frozen=True, slots=True)
class UndatedMessages:
    """Open messages of a topic (full name) whose publish time is more than a minute later than the last reading.
    `messages`: number, in which a message counts for each subscription; `workers`: runs of the workers that moved some
    of them there; (): no record shows such a move.
    """

    topic: str
    messages: int
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditEvidence:
    """All counts and facts from which the verdict is made.

    `removed_before`: when the counts began, rows of settled messages that were published before this time (ms since the
    epoch) had been removed; these messages are in no count by status, but in those of numbers and in `strays`. None: no
    rows had been removed then.
    """

    parts: tuple[PartitionCoverage, ...]
    tallies: tuple[SubscriptionTotals, ...]
    gaps: tuple[SequenceGap, ...] = ()
    clock: ReadingClock = field(default_factory=ReadingClock)
    undated: tuple[UndatedMessages, ...] = ()
    unnumbered: int = 0  # first hops without a producer's number
    numbered_twice: int = 0  # producers' numbers that two messages have
    strays: tuple[Misaddressed, ...] = ()
    removed_before: int | None = None
    write_offs: tuple[str, ...] = ()  # a note of each
    sources: tuple[str, ...] = ()  # names of the sources of change data
    unbooked: str = ""  # of kodo_pipeline.audit.unbooked_recalls: what was sent again without an entry in the ledger
