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
    """Action on the chosen messages. Dead letters are sent back (SEND) or discarded; waiting ones are released (sent to
    their own lane, due at once), moved to another lane, or discarded; lost ones are sent once more from a landing
    (tables of messages; RESEND). A message that is discarded is acknowledged, and not sent.
    """

    SEND = "send"
    DISCARD = "discard"
    RELEASE = "release"
    MOVE = "move"
    RESEND = "resend"

    @property
    def sends(self) -> bool:
        """True for every action but DISCARD, which only acknowledges."""
        return self is not RecallAction.DISCARD


class ExclusionReason(StrEnum):
    """Reason for which a plan does not send or discard a message, although the condition chose it, or although it is a
    lost message. Public: plan files contain these words.

    `ALREADY`: an earlier recall sent or discarded it; `UNFINISHED`: another run has begun it, without a certain end;
    `RECALLED`: a dead letter that a recall sent before, and that died again; `DONE`: the workers' store has it as done;
    `REPEAT`: a copy of a chosen message; `BEYOND`: the limit was reached; `UNREADABLE`: a lost message that cannot be
    sent on unchanged; `NOT_EDITABLE`: it cannot be patched; `NOWHERE`: there is no lane for it; `DUE`: it is due, so
    that a release changes nothing; `PART`: the plan would not have every message of its batch; `NOT_LANDED`: the
    landing does not have its payload; `MOVED_ON`: a lost message that is stored, or was sent, elsewhere.
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
    `ready`: its topic is a ready topic; `partitions`: number of the topic's partitions in the file when the plan was
    made, 0 for a plain topic.
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
    """Reference to a letter of one source: its position and its publish time (ms), which together identify it even if
    the cluster was set up again.
    """

    position: Position
    published: int


@dataclass(frozen=True, slots=True)
class PlannedLetter:
    """One letter of a plan, which is sent or discarded.

    Args:
        published: its publish time, ms since the epoch.
        recall_id: see `RecallPlan.recall_id_of`.
        digest: of its payload, before any edit.
        lane: index into the plan's lanes; 0 for a discard.
        number: its sequence number in that lane, from 1; 0 for a discard.
        repeats: copies of it, which are acknowledged and not sent; () if the plan has a table, in which they have rows
            of their own.
    """

    position: Position
    published: int
    recall_id: str
    digest: str
    lane: int = 0
    number: int = 0
    repeats: tuple[LetterRef, ...] = ()


class UnsentCopy(NamedTuple):
    """A letter that a plan acknowledges and does not send. `first`: the chosen letter of which it is a copy, and which
    has to be sent first (read from a table, its `lane` and `number` are 0); None: an earlier recall sent or discarded
    it.
    """

    letter: LetterRef
    first: PlannedLetter | None = None


@dataclass(frozen=True, slots=True)
class LetterTable:
    """Description of the Parquet file with the letters of a plan. The file lies beside the plan's own.

    Args:
        rows: number of all letters in the file.
        letters: number of the letters to be sent or discarded.
        settled: number of the letters that an earlier recall sent or discarded; all others are copies.
        by_lane: number of `letters` to each lane of the plan, by the lane's index; lanes after the last one with
            letters are missing. A discard, which has no lanes, has all at index 0.
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
        topology, path, environment: name of the topology; its file, and the environment there.
        topic, subscription: ground topic and subscription, by their names in the file.
        source_topic, source_partitions: the topic of the messages, or the one that lost them; its number of partitions
            in the file (0: a plain topic).
        holder: the subscription that retains the messages there; of lost messages, the one that lost them.
        where: the condition.
        to: level or lane to which all messages are sent; None: none was chosen, and each goes to its own.
        limit: maximum number of `letters`.
        again: letters that an earlier recall sent or discarded could be chosen; then `settle` is empty.
        because: reason, for the ledger.
        edit: JSON merge patch for the payloads; None: payloads are sent as they are.
        lanes: target partitions; () for a discard.
        letters: messages to send or discard, in the order of partition and position.
        settle: unacknowledged letters that an earlier recall sent or discarded, also those that the condition does not
            choose; the plan only acknowledges them.
        summary: counts for people.
        lane: lane of waiting or lost messages, such as `L1/retrying`, or `dead`; "" for dead letters.
        landing: the tables from which lost messages are read, else "".
        table: has `letters` and `settle` if they are too many for memory; both are empty then. None: they are here.
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
        """Number of letters that are to be sent or discarded; neither copies nor `settle` count."""
        return len(self.letters) if self.table is None else self.table.letters

    @property
    def producer(self) -> str:
        """Name of the plan's producer on each lane. On a topic with deduplication, the broker drops numbers up to the
        highest one that it remembers of this name, so that a second attempt stores no message twice. A broker forgets
        the name after hours without messages: see kodoctl.recall.ledger.recovery.
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
        """Name under which the recall ledger keeps the entries about messages of the plan's source: see
        `SourceKind.ledger_key`. The RecallSource of the plan has the same.
        """
        return self.kind.ledger_key(self.source_topic, self.lane, self.holder)

    def reader_of(self, topic: str) -> str:
        """Name on Pulsar of the subscription that must exist on the target topic `topic`, full name: see
        `SourceKind.reader_of`. The RecallSource of the plan has the same.
        """
        return self.kind.reader_of(topic, self.source_topic, self.subscription, lane=self.lane)

    def age(self, now: int) -> int:
        """Ms between the making of the plan and `now` (ms since the epoch); 0 if `now` is earlier."""
        return max(0, now - self.made_at)

    def recall_id_of(self, letter: LetterRef) -> str:
        """Recall id of a letter of the plan's source, 32 hexadecimal digits: the same in every plan, but with `again`
        another one in each run, so that the letter is sent once more.
        """
        return recall_id(self.ledger_key, *letter, self.run if self.again else "")

    @property
    def empty(self) -> bool:
        """True if there is nothing to send, to discard or to acknowledge; always False for a plan with a table."""
        return self.table is None and not self.letters and not self.settle


def ledger_key(topic: str, lane: str, holder: str) -> str:
    """Name of a source of dead or waiting messages in the ledger: the topic, full name; for a ready lane (of a backup
    level) `topic/holder`, because several subscriptions read it, each with its own entries. Lost messages have
    `lost_key`.
    """
    return f"{topic}/{holder}" if lane.endswith("/ready") else topic


def lost_key(topic: str, subscription: str) -> str:
    """Name in the ledger of the messages that a topic (full name) lost for a subscription. It differs from
    `ledger_key`, so that entries about lost messages are not mixed with those about stored ones.
    """
    return f"{topic}/{subscription}/lost"


def recall_id(source_topic: str, position: Position, published: int, run: str = "") -> str:
    """Recall id of a letter, 32 hexadecimal digits, the same for the same arguments. `source_topic`: name of its source
    in the ledger, as `SourceKind.ledger_key` returns it; `published`: its publish time (ms), which is part of the id
    because every cluster counts positions from the beginning, also a cluster that was set up again; `run`: id of the
    run for a recall with `again`, so that the id is a new one, "" for any other.
    """
    return hashlib.sha256(f"{source_topic}|{position}|{published}|{run}".encode()).hexdigest()[:RECALL_ID]


def partition_of(origin_partition: int | None, key: str, partitions: int) -> int:
    """Target partition of a message: the partition `origin_partition`, so that its key stays there; if that is None,
    negative or too high, a partition by a hash of the key, which may differ from the one that producers choose; PLAIN
    for a plain topic (`partitions` 0).
    """
    if not partitions:
        return PLAIN
    if origin_partition is not None and 0 <= origin_partition < partitions:
        return origin_partition
    return int(hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) % partitions


class SourceKind(ABC):
    """Kind of the messages of a plan: dead letters, waiting messages or lost messages. It decides which messages a
    recall sent before, to which partition each is sent, and with which headers.

    `name`, `noun`: words for several messages and for one, for people; `mark`: header of a sent message that contains
    its recall id; `whole_batches`: a plan takes all messages of a batch or none.
    """

    name: ClassVar[str]
    noun: ClassVar[str] = "message"
    mark: ClassVar[str] = properties.RELEASE
    whole_batches: ClassVar[bool] = False

    def ledger_key(self, topic: str, lane: str, holder: str) -> str:
        """Name under which the recall ledger keeps the entries about messages of this kind from a source: `ledger_key`
        of this module, for lost messages `lost_key`. `topic`: source topic, full name; `lane`: its lane, "" for dead
        letters; `holder`: subscription that retains the messages, or lost them.
        """
        return ledger_key(topic, lane, holder)

    def reader_of(self, topic: str, source: str, subscription: str, *, lane: str) -> str:  # noqa: ARG002
        """Name on Pulsar of the subscription that must exist on the target `topic` of messages from the topic `source`:
        `subscription`, that of the plan; but the holder of dead letters for lost dead letters that return to their
        topic.
        """
        return subscription

    def is_recalled(self, letter: DeadLetter) -> bool:  # noqa: ARG002
        """True if a recall sent the message before, as its headers show, so that it is not chosen again without
        `again`. Only dead letters are examined; for other kinds this is always False.
        """
        return False

    def partition(self, letter: DeadLetter, partitions: int) -> int:
        """Number of the target partition of a message, on a topic with `partitions` partitions (0: a plain topic,
        result PLAIN): the partition in which it is stored (of a dead letter: in which it was first stored, by its
        headers); if that is unknown or too high, one by a hash of the message's key, or of its identity if it has no
        key.
        """
        return partition_of(letter.position.partition, letter.key or letter.identity, partitions)

    @abstractmethod
    def sent_headers(
        self, plan: RecallPlan, target: PlannedPartition, letter: DeadLetter, recall_id: str, due: int
    ) -> Mapping[str, str]:
        """All properties with which a message of the plan is sent to `target`, not signed. `due`: its due time, in ms
        since the epoch, if it has one that is still to come; 0: none. Only a waiting message that moves to another
        waiting lane, and a lost message that is sent to another topic than a ready one, keep it.
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
