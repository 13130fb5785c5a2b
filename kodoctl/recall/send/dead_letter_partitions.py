# adapter: reads the broker
"""Partitions of the dead-letter topic in an attempt at a recall: reads the plan's messages that the holder
subscription still has, and acknowledges them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from kodoctl.pulsar.binary.recall_transport import DeadLetterConsumer
from kodoctl.recall.message.stored_message import Position
from kodoctl.topology.names import partition_name

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import ReadMessage
    from kodoctl.recall.cluster import LetterSource, RecallCluster
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.recall.send.sends_in_flight import SendOptions

_CURSOR_READS: Final = 10  # after the last acknowledgement
_PAUSE: Final = 0.5  # seconds between two of them


class MessageSource(Protocol):
    """Source of the messages of a plan: DeadLetterPartitions, or a landing (tables of messages). Call `open`, then
    `messages` once for each partition that it returns. `acknowledged`: number of messages that were acknowledged.
    """

    acknowledged: int

    def open(self, stack: ExitStack, positions: Collection[Position]) -> list[int]:
        """Chooses `positions` for `messages`, and opens the source until `stack` closes, unless it is open. Returns the
        numbers of the partitions in `positions`, in order, even if the source has none of the messages. Later calls
        must name later positions of each partition. Raises LockedError if another attempt keeps the source for 15 s,
        ClusterError for any other failure of the cluster.
        """

    def messages(self, number: int) -> Iterator[tuple[Position, ReadMessage]]:
        """Yields, in order, the messages at the chosen positions of a partition that the source has and that are not
        acknowledged; others may come as well, and a message may come again. After a stop of the attempt it may end
        early. `number`: of a partition that `open` returned. Raises KodoctlError.
        """

    def acknowledged_in_batches(self, expected: Collection[Position]) -> set[Position]:
        """Returns all positions of `expected` that are acknowledged although other messages of their batch are not;
        none if the source cannot find out. `expected`: some of the chosen positions. After a stop of the attempt it may
        also return positions that are not acknowledged. May be called at most once after each `open`, before
        `messages`. Waits for messages. Raises KodoctlError.
        """

    def acknowledge(self, position: Position, token: object) -> None:
        """Acknowledges the message with this token, without waiting for the broker; does nothing if no subscription
        retains the message, or if another process acknowledges the messages. `position`: of the message in the plan,
        whose partition is open. Raises ClusterError.
        """

    def count_unacknowledged(self) -> int:
        """Number of messages that a subscription retains although they were acknowledged, as far as the source can find
        out. May wait for the broker; a stop of the attempt ends the wait. Raises KodoctlError.
        """

    def why_missing(self, position: Position) -> str:
        """The reason why a message did not come, as text; "": the subscription does not retain it any more."""


class DeadLetterPartitions:
    """Source of the plan's messages in its source topic, of dead letters or of a waiting lane (implements
    MessageSource). If `options.holds` is False, another process holds the subscription: then this object only reads,
    and acknowledges nothing.
    """

    def __init__(self, plan: RecallPlan, cluster: RecallCluster, options: SendOptions) -> None:
        self._plan, self._cluster, self._options = plan, cluster, options
        self._positions: Collection[Position] = ()
        self._sources: dict[int, LetterSource] = {}
        self._acknowledged: set[Position] = set()
        self._open: set[Position] = set()  # messages of batches that were handed over and are not acknowledged
        self.acknowledged = 0

    def open(self, stack: ExitStack, positions: Collection[Position]) -> list[int]:
        """Chooses `positions` for `messages`, and opens a source for each partition in `positions`, until `stack`
        closes, unless it is open. Returns the numbers of these partitions, in order. Later calls must name later
        positions of each partition. A missing subscription is created, from the earliest message. Raises LockedError if
        another recall, or a consumer, keeps the subscription for 15 s, other KodoctlErrors if the cluster fails.
        """
        self._positions = positions
        for source in self._sources.values():
            if isinstance(source, DeadLetterConsumer):
                source.forget()
        self._acknowledged = self._still_held(self._countable())  # what is stored need not be kept in mind
        numbers = sorted({position.partition for position in positions})
        for number in numbers:
            if number not in self._sources:
                source = self._open_source(self._part(number))
                stack.callback(source.close)
                self._sources[number] = source
        return numbers

    def _open_source(self, part: str) -> LetterSource:
        if self._options.holds:
            return self._cluster.hold(part, self._plan.holder, self._options.stop)
        return self._cluster.look(part, self._plan.holder)

    def messages(self, number: int) -> Iterator[tuple[Position, ReadMessage]]:
        """Yields the messages of a partition that `open` returned, in order, up to the last one of `positions` whose
        entry is not acknowledged. Others may come as well, and a message may come again after a lost connection; if
        `options.holds` is False, acknowledged ones of a batch may come, too. Once `stop` of the options is set, it may
        end early. Raises ClusterError, also if no message comes for some time (15 or 90 s), UsageError if the topic is
        gone.
        """
        if not (wanted := self._held_entries(number)):
            return
        last = max(wanted)
        for stored in self._sources[number].letters((last.ledger, last.entry), wanted):
            position = Position(number, stored.ledger, stored.entry, stored.batch)
            if self._plan.kind.whole_batches and position.batch >= 0 and self._options.holds:
                self._open.add(position)
            yield position, stored
            wanted.discard(position)
            if not wanted:
                return

    def acknowledged_in_batches(self, expected: Collection[Position]) -> set[Position]:
        """Returns all positions of `expected` that are acknowledged although other messages of their batch are not;
        none if `options.holds` is False, because a reader cannot find out. `expected`: some of the positions that were
        passed to `open`. May be called at most once after each `open`, before `messages`. Waits for messages of each
        partition in question; once `stop` of the options is set, it waits no longer, and may also return positions that
        are not acknowledged. Raises ClusterError, UsageError if the topic is gone.
        """
        found: set[Position] = set()
        for number, source in self._sources.items():
            wanted = self._held_entries(number)
            open_ = wanted.intersection(expected)
            if isinstance(source, DeadLetterConsumer) and any(position.batch >= 0 for position in open_):
                last = max(wanted)
                found |= open_.difference(source.unacknowledged((last.ledger, last.entry), wanted))
        return found

    def acknowledge(self, position: Position, token: object) -> None:
        """Acknowledges the message with this token, without waiting for the broker, and counts its position; does
        nothing if `options.holds` is False. `position`: of a partition that is open. The client may lose the
        acknowledgement: see `count_unacknowledged`. Raises ClusterError.
        """
        if self._options.holds:
            self._sources[position.partition].acknowledge(token)
            self.acknowledged += position not in self._acknowledged
            self._acknowledged.add(position)
            self._open.discard(position)

    def count_unacknowledged(self) -> int:
        """Number of messages that the holder has although they were acknowledged by this object. Reads the cursors up
        to 10 times, with pauses of 0.5 s, until the broker has stored the acknowledgements; `stop` of the options ends
        the wait. Raises ClusterError, UsageError if the topic is gone.

        The cursor describes whole entries only. Therefore this counts messages that are alone in their entry, and
        batches of a waiting lane (whose plans send whole batches) of which every message that came was acknowledged,
        and none is in `settle` of the plan.
        """
        left = self._countable()
        for _ in range(_CURSOR_READS):
            left = self._still_held(left)
            if not left or self._options.stop.wait(_PAUSE):
                break
        return len(left)

    def _countable(self) -> set[Position]:
        parts = {p[:3] for p in (*self._open, *(ref.position for ref in self._plan.settle))}
        return {p for p in self._acknowledged if p.batch < 0 or (self._plan.kind.whole_batches and p[:3] not in parts)}

    def _still_held(self, positions: set[Position]) -> set[Position]:
        left = positions
        for number in {position.partition for position in positions}:
            cursor = self._cluster.facts(self._part(number)).cursors.get(self._plan.holder)
            left = {p for p in left if p.partition != number or (cursor and not cursor.has((p.ledger, p.entry)))}
        return left

    def why_missing(self, position: Position) -> str:  # noqa: ARG002
        """Always "": a missing message was acknowledged by somebody else, or the topic does not have it any more."""
        return ""

    def _held_entries(self, number: int) -> set[Position]:
        """Positions of the plan whose entries are not acknowledged."""
        cursor = self._cluster.facts(self._part(number)).cursors.get(self._plan.holder)
        return {
            p for p in self._positions if p.partition == number and not (cursor and cursor.has((p.ledger, p.entry)))
        }

    def _part(self, number: int) -> str:
        return partition_name(self._plan.source_topic, number)
