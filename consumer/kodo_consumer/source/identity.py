# pure: every branch is tested
"""Identity of a source: ids of its changes, names of its producers, and the rule which stored messages are its own.

Whoever may produce to a topic may write any property, `kodo-id` and `kodo-covered` included, so that a property proves
nothing. A stored message is the source's own if it has the name of one of its producers and, if there are signing keys,
a signature by one of them. Without keys, that excludes whoever sends by a client library, because the broker gives a
name to one connection at a time; a program that speaks the protocol itself may write any name into a message (measured
with Pulsar 4.2.4). Numbers of such a name rise, because the broker drops a message with any other number (`positions`).
A message out of this order was sent by somebody else, and nothing is decided by it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.source.positions import Position, lsn_text, read_lsn, read_position
from kodoctl.protocol.properties import COVERED, ID, ORIGIN_ID, ROUTING, SEQ
from kodoctl.protocol.sequence_numbers import BrokenNumberError, Number, read_number

if TYPE_CHECKING:
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.binary.message_reader import ReadMessage

_FORK: Final = re.compile(r"^\s*([0-9]+)\s+([0-9A-F]+/[0-9A-F]+)", re.ASCII | re.MULTILINE)
_SPAN: Final = re.compile(r"([0-9A-F]{1,8}/[0-9A-F]{1,8})\.\.([0-9A-F]{1,8}/[0-9A-F]{1,8})", re.ASCII)
_MOST_STRANGERS: Final = 100  # names of them that are kept
_OTHERS: Final = "and others"
_BEGIN: Final = "-begin"  # end of the name of the producer that says which topology begins
UNSIGNED: Final = "a message under its name has no valid signature by the keys that are given"
OUT_OF_ORDER: Final = "somebody else sent under the name of the source's producer: its messages are out of order"


class System(NamedTuple):
    """The database server, as it was when it was asked: its identity, its timeline and the end of its log. `forks`:
    earlier timelines, and the positions at which they ended, ascending: from there on another timeline may have another
    commit at a position.
    """

    id: str
    timeline: int
    end: int
    forks: tuple[tuple[int, int], ...] = ()

    def timeline_at(self, lsn: int) -> int:
        """Timeline to which a position of this server's log belongs."""
        if not self.forks or lsn >= self.forks[-1][1]:
            return self.timeline
        return next(timeline for timeline, end in self.forks if lsn < end)


class Span(NamedTuple):
    """Part of the log, from `start` to before `end`, of which a mark (a message of the source without content) says
    that all its changes are stored. A mark whose `end` is not after `start` covers nothing. `start`: 0: a snapshot
    stands for everything before `end`; `routing`: topology hash (`routing_of`) of the process that sent the mark, "":
    an earlier release wrote none.
    """

    start: int
    end: int
    routing: str = ""


class StoredChange(NamedTuple):
    """Stored message with the id of a change, sent under the name of the source's producer for it. `producer`: this
    name; `doubt`: why nothing can be decided by the message, "": its signature is valid, or nothing is signed. Only
    PartitionCopies tells whether it is the source's own, because that depends on the order of the messages.
    """

    position: Position
    producer: str
    doubt: str = ""


class Stranger(NamedTuple):
    """Stored message with the id of a change, not sent as this source sends: by somebody else, or under an earlier
    topology that SourceIdentity.learn was not given. `producer`: name under which it was sent.
    """

    position: Position
    producer: str


class SourceIdentity:
    """Identity of one source on one server. `slot`: name of its slot; `system`: the server; `routing`: hash of its
    present topology, see `routing_of`; `signer`: verifies signatures, None: signatures do not count.
    """

    def __init__(self, slot: str, system: System, routing: str, signer: Signer | None = None) -> None:
        self.slot, self.system, self.routing, self._signer = slot, system, routing, signer
        self._id = re.compile(re.escape(f"{slot}:{system.id}") + "(?:@([0-9]{1,10}))?:(.+)", re.ASCII)
        self._covering = {self.coverage_producer(timeline): timeline for timeline, _ in system.forks}
        self._covering[self.coverage_producer()] = system.timeline
        self._covering |= {f"{name}{_BEGIN}": timeline for name, timeline in self._covering.items()}
        self._origins: set[str] = set()
        self.learn([routing])

    def learn(self, routings: Iterable[str]) -> None:
        """Adds the topology hashes (`routing_of`) of earlier processes, as their marks have them, because these
        processes sent under other producer names. Messages under these names count as the source's own from now on.
        "" is ignored.
        """
        timelines = [self.system.timeline, *(timeline for timeline, _ in self.system.forks)]
        self._origins.update(
            self._origin(timeline, routing) for timeline in timelines for routing in routings if routing
        )

    def id_of(self, position: Position) -> str:
        """The `kodo-id` of a change. It has the timeline of the position, unless that is 1, because after a fail-over a
        position may mean another change.
        """
        timeline = self.system.timeline_at(position.lsn)
        return f"{self.slot}:{self.system.id}{'' if timeline == 1 else f'@{timeline}'}:{position}"

    def producer(self, position: Position) -> str:
        """Name of the producer that sends the message of a position now, on the present timeline and with the present
        topology. The number of the position counts within the messages of this name.
        """
        return self._producer(self._origin(self.system.timeline, self.routing), position)

    def coverage_producer(self, timeline: int | None = None) -> str:
        """Name of the producer of marks, each of which names a part of the log that is stored. `timeline`: of the
        server; None: the present one.
        """
        return f"kodo-source-{self.slot}-{self.system.id}-{timeline or self.system.timeline}-covered"

    def begin_producer(self) -> str:
        """Name of the producer of marks that name the topology of a process before its first message."""
        return f"{self.coverage_producer()}{_BEGIN}"

    def has_producer(self, name: str) -> bool:
        """True for a name of this source's producers of changes, and of rows of a snapshot, on any timeline of the
        server, with the present topology or an earlier one that `learn` was given.
        """
        return any(name.startswith(f"kodo-source-{self.slot}-{origin}-") for origin in self._origins)

    def change_of(self, message: ReadMessage, partition: str) -> StoredChange | Stranger | None:
        """Returns the position and the producer of a stored message in `partition` that has the id of a change: a
        StoredChange if it was sent as the source sends (under the producer's name for this position, alone, with a
        number of its partition), else a Stranger. A wrong signature shows only in the `doubt` of a StoredChange. None:
        it has no id of this server's log, or a worker moved it, or a recall sent it.
        """
        properties = message.properties
        found = self._id.fullmatch(properties.get(ID, "")) if ORIGIN_ID not in properties else None
        position = read_position(found[2]) if found else None
        if found is None or position is None or int(found[1] or 1) != self.system.timeline_at(position.lsn):
            return None
        names = {self._producer(origin, position) for origin in self._origins}
        if message.producer not in names or message.batch >= 0 or not _is_numbered(message):
            return Stranger(position, message.producer)
        return StoredChange(position, message.producer, "" if self._is_signed(message, partition) else UNSIGNED)

    def span_of(self, message: ReadMessage, partition: str) -> Span | None:
        """Returns the part of the log that a stored mark of this source covers, which may be empty (see Span); None:
        the message is no such mark, or has no valid signature although there is a signer. Of an earlier timeline the
        part ends at the latest where the timeline ended.
        """
        timeline = self._covering.get(message.producer)
        found = _SPAN.fullmatch(message.properties.get(COVERED, "")) if timeline is not None else None
        if found is None or not self._is_signed(message, partition):
            return None
        end = min([read_lsn(found[2]), *(fork for number, fork in self.system.forks if number == timeline)])
        return Span(read_lsn(found[1]), end, message.properties.get(ROUTING, ""))

    def mark_properties(self, start: int, end: int) -> dict[str, str]:
        """Properties that only a mark of coverage has: it covers the log from `start` to before `end` (nothing if they
        are equal), and has the hash of the present topology.
        """
        return {COVERED: f"{lsn_text(start)}..{lsn_text(end)}", ROUTING: self.routing}

    def _origin(self, timeline: int, routing: str) -> str:
        return _digest([self.system.id, timeline, routing])

    def _producer(self, origin: str, position: Position) -> str:
        return f"kodo-source-{self.slot}-{origin}-{position.group}"

    def _is_signed(self, message: ReadMessage, partition: str) -> bool:
        return self._signer is None or self._signer.genuine(partition, message.payload, message.properties)


class PartitionCopies:
    """Stored messages of a source in one partition. The caller adds them in the order of the broker.

    Args:
        partition: full name of the partition.
        start: position in the log from which on messages that the source did not send count as `strangers`.

    `changes`: number of the source's own messages, by position of their change; without rows of a snapshot. `doubts`:
    position -> reason for which a message with the id of this change proves nothing: it has no valid signature, or is
    out of order. `spans`: parts of the log that the stored marks cover. `strangers`: number of messages with the id of
    a change that were not sent as the source sends (see Stranger), by the name of their producer, for the first hundred
    names; the rest counts as `and others`. `first`: lowest position in `changes`, None while `changes` is empty.
    `highest`: last number in `changes`, by the name of the producer. `impostors`: names of the source's producers under
    which at least one message is stored that is not in `changes`; the producers of a snapshot are among them.
    """

    def __init__(self, identity: SourceIdentity, partition: str, start: int = 0) -> None:
        self.changes: Counter[Position] = Counter()
        self.doubts: dict[Position, str] = {}
        self.spans: list[Span] = []
        self.strangers: Counter[str] = Counter()
        self.first: Position | None = None
        self.highest: dict[str, int] = {}
        self.impostors: set[str] = set()
        self._identity, self._partition, self._start = identity, partition, start

    def add(self, message: ReadMessage) -> None:
        """Adds the next stored message."""
        if (span := self._identity.span_of(message, self._partition)) is not None:
            self.spans.append(span)
            return
        match self._identity.change_of(message, self._partition):
            case StoredChange(position, producer, doubt) if not position.is_snapshot:
                if not doubt and position.number > self.highest.get(producer, 0):
                    self.highest[producer] = position.number
                    self.changes[position] += 1
                    self.first = min(self.first or position, position)
                    return
                self.doubts[position] = doubt or OUT_OF_ORDER
            case Stranger(position, producer) if position.lsn >= self._start:
                is_shown = producer in self.strangers or len(self.strangers) < _MOST_STRANGERS
                self.strangers[producer if is_shown else _OTHERS] += 1
            case _:
                pass
        if self._identity.has_producer(message.producer):
            self.impostors.add(message.producer)


def routing_of(decisive: Any) -> str:
    """Hash (12 hexadecimal digits) of values that decide topic, partition and key of a source's messages, and whether a
    change makes one.
    """
    return _digest(decisive)


def forks_of(history: str) -> tuple[tuple[int, int], ...]:
    """Earlier timelines with the positions at which they ended, from the text of a timeline's history file."""
    return tuple((int(timeline), read_lsn(end)) for timeline, end in _FORK.findall(history))


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _is_numbered(message: ReadMessage) -> bool:
    """True if the message has a number of the partition in which it is stored, as each message of a source."""
    try:
        number = read_number(message.properties.get(SEQ, ""))
    except BrokenNumberError:
        return False
    return isinstance(number, Number) and number.partition == max(0, message.partition)
