"""A frozen choice of dead, waiting or lost messages: to which lane and under which number each is sent, or that it is
discarded. A plan is carried out exactly, or not at all.

Everything that could differ between two attempts is fixed here: the letters, their recall ids, each one's lane (a
partition) and its number there. Shared with the pipeline: nothing here depends on a broker or on Spark.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kodoctl.protocol import properties
from kodoctl.recall.message.recall_headers import recalled_properties, released_properties, resent_properties
from kodoctl.topology.names import HOLDER, PLAIN, State, partition_name

if TYPE_CHECKING:
    from pathlib import Path

    from kodoctl.documents.recall_document import RecallSummary
    from kodoctl.recall.message.stored_message import DeadLetter, Position

Json = dict[str, Any]
SEGMENT: Final = 50_000  # letters of a plan that are in memory at a time
RECALL_ID: Final = 32  # hexadecimal digits


class RecallAction(StrEnum):
    """Action on the chosen messages. Dead letters are sent back or discarded; waiting ones are released (sent to their
    own lane, due at once), moved to another lane, or discarded; lost ones are sent once more from a landing (tables of
    messages).
    """

    SEND = "send"
    DISCARD = "discard"
    RELEASE = "release"
    MOVE = "move"
    RESEND = "resend"

    @property
    def sends(self) -> bool:
        """True if messages are sent before they are acknowledged."""
        return self is not RecallAction.DISCARD


class ExclusionReason(StrEnum):
    """Reason for which a plan does not send or discard a letter, although the condition chose it or it is a lost
    message. Public: plan files contain these words.
    """

    ALREADY = "already"
    UNFINISHED = "unfinished"
    RECALLED = "recalled"
    DONE = "already_done"
    REPEAT = "repeat"
    BEYOND = "beyond"
    UNREADABLE = "unreadable"
    NOT_EDITABLE = "not_editable"
    NOWHERE = "nowhere"
    DUE = "due"
    PART = "part_of_a_batch"
    NOT_LANDED = "not_landed"
    MOVED_ON = "moved_on"


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition to which letters are sent. `topic`: full name; `partition`: its number, PLAIN for a plain topic;
    `ready`: its topic is a ready topic; `partitions`: number of the topic's partitions when the plan was made, 0 for a
    plain topic.
    """

    topic: str
    partition: int
    ready: bool
    partitions: int

    @property
    def part(self) -> str:
        """The partition's full name."""
        return partition_name(self.topic, self.partition)


class LetterRef(NamedTuple):
    """Reference to a letter: its position and its publish time (ms), which together identify it in every cluster."""

    position: Position
    published: int


@dataclass(frozen=True, slots=True)
class PlannedLetter:
    """One letter of a plan.

    Args:
        published: its publish time, ms since the epoch.
        recall_id: see `recall_id` of this module.
        digest: of its payload.
        lane: index into the plan's lanes; 0 for a discard.
        number: its sequence number in that lane, from 1; 0 for a discard.
        repeats: further copies of it, which are acknowledged with it; () if the plan has a table, whose rows they are.
    """

    position: Position
    published: int
    recall_id: str
    digest: str
    lane: int = 0
    number: int = 0
    repeats: tuple[LetterRef, ...] = ()


class UnsentCopy(NamedTuple):
    """A letter that is acknowledged and not sent. `first`: the chosen letter of which it is a copy, which is sent (read
    from a table, its `lane` and `number` are 0); None: it was sent, or discarded, before this plan.
    """

    letter: LetterRef
    first: PlannedLetter | None = None


@dataclass(frozen=True, slots=True)
class LetterTable:
    """Description of the Parquet file with the letters of a plan. The file lies beside the plan's own.

    Args:
        rows: number of all letters in the file.
        letters: number of those to be sent or discarded.
        settled: number of those that an earlier recall sent or discarded; the others are copies.
        by_lane: number of letters to each lane of the plan, by the lane's index; lanes after the last one with letters
            are missing.
        sha256: digest of the file, hexadecimal.
    """

    path: Path
    rows: int
    letters: int
    settled: int
    by_lane: tuple[int, ...]
    sha256: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name


@dataclass(frozen=True)
class RecallPlan:
    """A frozen choice of messages and their destinations.

    Args:
        run: id of the run.
        made_at: ms since the epoch.
        cluster: UUID of the Pulsar tenant on the cluster; None: not known.
        topology, path, environment: the topology and its file.
        topic, subscription: ground topic and subscription, by their names in the file.
        source_topic, source_partitions: the topic of the messages, or the one that lost them; its number of partitions
            (0: a plain topic).
        holder: the subscription that retains the messages there.
        where: the condition.
        to: level or lane to which all messages are sent; None: each goes to its own.
        limit: letters at most.
        again: letters that a recall sent before may be chosen.
        because: reason, for the ledger.
        edit: JSON merge patch for the payloads; None: payloads are sent as they are.
        lanes: target partitions.
        letters: messages to send or discard, in order.
        settle: letters that an earlier recall sent or discarded; the plan only acknowledges them.
        summary: counts for people.
        lane: lane of waiting or lost messages; "" for dead letters.
        landing: the tables from which lost messages are read, else "".
        table: has `letters` and `settle` if they are too many for memory; both are empty then.
    """

    action: RecallAction
    run: str
    made_at: int
    cluster: str | None
    topology: str
    path: str
    environment: str | None
    topic: str
    subscription: str
    source_topic: str
    source_partitions: int
    holder: str
    where: str
    to: str | None
    limit: int
    again: bool
    because: str
    edit: Mapping[str, Any] | None
    lanes: tuple[PlannedPartition, ...]
    letters: tuple[PlannedLetter, ...]
    settle: tuple[LetterRef, ...]
    summary: RecallSummary
    lane: str = ""
    landing: str = ""
    table: LetterTable | None = None

    @property
    def size(self) -> int:
        """Number of letters that are to be sent or discarded."""
        return len(self.letters) if self.table is None else self.table.letters

    @property
    def producer(self) -> str:
        """Name of the plan's producer on each lane. The broker stores the highest sequence number of each producer
        name, so that a second attempt under the same name cannot store a message twice.
        """
        return f"kodo-recall-{self.run}"

    @property
    def kind(self) -> SourceKind:
        """Kind of the plan's messages, by its action and its lane: lost messages for a resend, waiting messages if
        there is a lane, else dead letters.
        """
        if self.action is RecallAction.RESEND:
            return LOST
        return WAITING if self.lane else DEAD

    @property
    def ledger_key(self) -> str:
        """Name under which the recall ledger keeps the entries about messages of the plan's source; a RecallSource has
        the same.
        """
        return self.kind.ledger_key(self.source_topic, self.lane, self.holder)

    def reader_of(self, topic: str) -> str:
        """Name on Pulsar of the subscription that must exist on the target topic `topic`, full name; a RecallSource has
        the same.
        """
        return self.kind.reader_of(topic, self.source_topic, self.subscription, lane=self.lane)

    def age(self, now: int) -> int:
        """Ms between the making of the plan and `now` (ms since the epoch); 0 if `now` is earlier."""
        return max(0, now - self.made_at)

    def recall_id_of(self, letter: LetterRef) -> str:
        """Recall id of a letter in this plan, 32 hexadecimal digits; with `again` it differs in each run, so that the
        letter is sent once more.
        """
        return recall_id(self.ledger_key, *letter, self.run if self.again else "")

    @property
    def empty(self) -> bool:
        """True if there is nothing to send, to discard or to acknowledge."""
        return self.table is None and not self.letters and not self.settle


def ledger_key(topic: str, lane: str, holder: str) -> str:
    """Name of a source of messages in the ledger: the topic, full name; for a ready lane (of a backup level)
    `topic/holder`, because several subscriptions read it, each with its own entries.
    """
    return f"{topic}/{holder}" if lane.endswith("/ready") else topic


def lost_key(topic: str, subscription: str) -> str:
    """Key of the ledger for the messages that a topic lost for a subscription. It differs from the key of
    recalled letters.
    """
    return f"{topic}/{subscription}/lost"


def recall_id(source_topic: str, position: Position, published: int, run: str = "") -> str:
    """Recall id of a letter, 32 hexadecimal digits: the same in every plan. `source_topic`: the `ledger_key` of its
    source. With `run`, for a recall with `again`, the id is a new one. The publish time (ms) of the letter is part of
    the id, because every cluster counts positions from the beginning, also a cluster that was set up again.
    """
    return hashlib.sha256(f"{source_topic}|{position}|{published}|{run}".encode()).hexdigest()[:RECALL_ID]


def partition_of(origin_partition: int | None, key: str, partitions: int) -> int:
    """Target partition of a dead letter: its original partition, so that its key stays there; if that is unknown or too
    high, a partition by its key; PLAIN for a plain topic (`partitions` 0).
    """
    if not partitions:
        return PLAIN
    if origin_partition is not None and 0 <= origin_partition < partitions:
        return origin_partition
    return int(hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) % partitions


class SourceKind(ABC):
    """Kind of the messages of a plan: dead letters, waiting messages or lost messages. It decides which messages may be
    chosen, to which partition each is sent, and with which headers.

    `name`, `noun`: words for several messages and for one, for people; `mark`: header of a sent message that contains
    its recall id; `whole_batches`: a plan takes all messages of a batch or none.
    """

    name: ClassVar[str]
    noun: ClassVar[str] = "message"
    mark: ClassVar[str] = properties.RELEASE
    whole_batches: ClassVar[bool] = False

    def ledger_key(self, topic: str, lane: str, holder: str) -> str:
        """Name under which the recall ledger keeps the entries about messages of this kind from a source. `topic`:
        source topic, full name; `lane`: its lane, "" for dead letters; `holder`: subscription that retains the
        messages.
        """
        return ledger_key(topic, lane, holder)

    def reader_of(self, topic: str, source: str, subscription: str, *, lane: str) -> str:  # noqa: ARG002
        """Name on Pulsar of the subscription that must exist on the target `topic` of messages from the topic `source`:
        here `subscription`, that of the plan.
        """
        return subscription

    def is_recalled(self, letter: DeadLetter) -> bool:  # noqa: ARG002
        """True if the headers show that a recall sent the message before, so that it is not chosen again without
        `again`. Only dead letters have such a header; for other kinds this is False.
        """
        return False

    def partition(self, letter: DeadLetter, partitions: int) -> int:
        """Number of the target partition of a message, on a topic with `partitions` partitions (0: a plain topic,
        result PLAIN): the partition in which it is stored (of a dead letter: in which it was first stored); if that is
        unknown or too high, one by the message's key, or by its identity if it has no key.
        """
        return partition_of(letter.position.partition, letter.key or letter.identity, partitions)

    @abstractmethod
    def sent_headers(
        self, plan: RecallPlan, target: PlannedPartition, letter: DeadLetter, recall_id: str, due: int
    ) -> Mapping[str, str]:
        """Headers with which a message of the plan is sent to `target`. `due`: its due time if it must continue to
        wait, in ms since the epoch; 0: none.
        """


class _DeadLetters(SourceKind):
    name = "dead letters"
    noun = "letter"
    mark = properties.RECALL

    def is_recalled(self, letter: DeadLetter) -> bool:
        return properties.RECALL in letter.properties

    def partition(self, letter: DeadLetter, partitions: int) -> int:
        origin = letter.properties.get(properties.ORIGIN_ID, "").split(":")
        came_from = int(origin[2]) if len(origin) == 4 and origin[2].isdecimal() and len(origin[2]) < 6 else None
        return partition_of(came_from, letter.key or letter.identity, partitions)

    def sent_headers(
        self,
        plan: RecallPlan,
        target: PlannedPartition,
        letter: DeadLetter,
        recall_id: str,
        due: int,  # noqa: ARG002
    ) -> Mapping[str, str]:
        return recalled_properties(letter, recall_id, plan.subscription, ready=target.ready, again=plan.again)


class _WaitingMessages(SourceKind):
    name = "waiting messages"
    whole_batches = True

    def sent_headers(
        self, plan: RecallPlan, target: PlannedPartition, letter: DeadLetter, recall_id: str, due: int
    ) -> Mapping[str, str]:
        waits_on = plan.action is RecallAction.MOVE and not target.ready
        return released_properties(letter, recall_id, plan.subscription, due=due if waits_on else 0, ready=target.ready)


class _LostMessages(SourceKind):
    name = "lost messages"

    def ledger_key(self, topic: str, lane: str, holder: str) -> str:  # noqa: ARG002
        return lost_key(topic, holder)

    def reader_of(self, topic: str, source: str, subscription: str, *, lane: str) -> str:
        """Lost dead letters that return to their topic are for its holder, other messages for `subscription`."""
        return HOLDER if lane == State.DEAD and topic == source else subscription

    def sent_headers(
        self, plan: RecallPlan, target: PlannedPartition, letter: DeadLetter, recall_id: str, due: int
    ) -> Mapping[str, str]:
        revived = plan.lane == State.DEAD and target.topic != plan.source_topic
        due = 0 if target.ready else due
        return resent_properties(letter, recall_id, plan.subscription, due=due, ready=target.ready, revived=revived)


DEAD: Final[SourceKind] = _DeadLetters()
WAITING: Final[SourceKind] = _WaitingMessages()
LOST: Final[SourceKind] = _LostMessages()
