"""Duplicates in the lanes of a plan: messages that brokers stored twice although their topic deduplicates.

A broker of Pulsar can open a topic before it has counted the stored messages (apache/pulsar#25954: 4.2.4 lacks the
repair, #25953). The client library sends messages again that had no receipt when the previous broker ended, and they
are then stored a second time: the first copy is at the end of the ended broker's entries, the second at the place in
the receipt. A topic that is opened again begins a new ledger. So the entries between two receipts are read if these are
in different ledgers; if a ledger was only full, there are no entries between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kodoctl.errors import KodoctlError
from kodoctl.pulsar.binary.message_reader import place_of
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEvent
from kodoctl.recall.message.stored_message import Position, digest
from kodoctl.recall.plan.recall_plan import LetterRef, RecallAction, UnsentCopy
from kodoctl.topology.names import partition_number, whole_topic

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import PartitionFacts, Place, ReadMessage
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.plan.recall_plan import PlannedLetter, RecallPlan
    from kodoctl.recall.send.plan_ledger import PlanLedger


class Stretch(NamedTuple):
    """Entries of a lane (`part`: full name of the partition) between two places, both excluded. `until` None: up to the
    end of the lane.
    """

    part: str
    after: Place
    until: Place | None


class Duplicate(NamedTuple):
    """A second copy that a broker stored of a sent message. The first copy is the one in the receipt (if it has no
    place: the last one that was read), so the second one may be stored before it.

    Args:
        letter: the message of the plan.
        part: lane (full name of a partition) with the second copy.
        position: position of the second copy.
        published: publish time of the second copy, ms since the epoch.
        exclusive: only this attempt reads the lane, so that it can acknowledge the copy.
    """

    letter: PlannedLetter
    part: str
    position: Position
    published: int
    exclusive: bool

    @property
    def copy(self) -> UnsentCopy:
        """The second copy as a letter that is acknowledged and not sent. Only for an `exclusive` duplicate, whose lane
        is a partition of the source topic.
        """
        return UnsentCopy(LetterRef(self.position, self.published), self.letter)

    def __str__(self) -> str:
        """Line of a report about a message that stays."""
        place = f"{self.part} {self.position.ledger}:{self.position.entry}"
        return f"{place}: a second copy of {self.letter.position}, stored when a broker took the lane over; workers may get both"


def stretches(
    known: Iterable[LetterStatus], begins: Mapping[str, Collection[str]], exclusive: Collection[str]
) -> list[Stretch]:
    """Returns the stretches of lanes in which duplicates may be stored. A lane without receipts has none.

    In the order of numbers, each receipt whose ledger differs from that of the lane's previous receipt ends a stretch.
    It begins at the previous receipt, or at a later end of the lane at which an attempt began (for the first receipt
    only there); there is no stretch if this place is in the same ledger as the receipt that would end it.

    Args:
        known: statuses of one run.
        begins: by lane, the ends of the lane (`ledger:entry`) at which attempts began to send.
        exclusive: lanes that only this attempt reads: they are also read from the last receipt to their end. If a sent
            message of the lane has no place, one stretch from the earliest begin to the end replaces all others.
    """
    receipts: dict[str, list[tuple[int, Place]]] = defaultdict(list)
    unplaced: set[str] = set()  # lanes with a message that the broker had already, somewhere
    for one in known:
        if one.event is RecallEvent.SENT and one.receipt:
            receipts[one.lane].append((one.number, place_of(one.receipt)))
        elif one.event is RecallEvent.SENT:
            unplaced.add(one.lane)
    found: list[Stretch] = []
    for part, numbered in receipts.items():
        bounds = [place_of(text) for text in begins.get(part, ())]
        places = [place for _, place in sorted(numbered)]
        own: list[Stretch] = []
        for before, place in zip([None, *places], places, strict=False):
            if before is None or before[0] != place[0]:
                after = max((bound for bound in (*bounds, before or place) if bound < place), default=place)
                if after[0] != place[0]:
                    own.append(Stretch(part, after, place))
        if part in exclusive:
            own.append(Stretch(part, places[-1], None))
            if (
                part in unplaced
            ):  # its one copy may be between receipts: only beside all of them is another a second one
                own = [Stretch(part, min(one.after for one in own), None)]
        found += own
    return found


class LaneDuplicates:
    """Finder of the duplicates of one plan. `doubts`: a line of text for each stretch that `find` could not read to its
    end, so that it yielded nothing of it.
    """

    def __init__(self, plan: RecallPlan, cluster: RecallCluster, ledger: PlanLedger) -> None:
        self._plan, self._cluster, self._ledger = plan, cluster, ledger
        self.doubts: list[str] = []

    def find(self, letters: Iterable[PlannedLetter], numbers: Collection[int]) -> Iterator[Duplicate]:
        """Reads the stretches of the lanes, and yields the duplicates of letters that the plan's run sent. Adds a line
        to `doubts` for a stretch that cannot be read, and goes on. `letters`: letters of the plan whose statuses the
        ledger has; `numbers`: numbers of the source topic's partitions that the attempt holds.

        Leaves out messages in batches, and in a lane that only this attempt reads, copies that are acknowledged. In
        any other lane only a copy before the place of the receipt, if it has one, is a duplicate: a worker may have
        moved the message to a place after it.
        """
        chosen = {one.recall_id: one for one in letters}
        run, statuses = self._plan.run, self._ledger.statuses
        known = {name: one for name, one in statuses.items() if one.run == run and name in chosen}
        exclusive = self._exclusive_lanes(known.values(), numbers)
        for stretch in stretches(known.values(), self._ledger.begins, exclusive):
            try:
                yield from self._in_stretch(stretch, known, chosen, exclusive=stretch.part in exclusive)
            except KodoctlError as problem:
                why = problem.diagnostics[0]
                self.doubts.append(
                    f"{stretch.part} behind {stretch.after[0]}:{stretch.after[1]} could not be read, so messages there may be stored twice ({why.summary}: {why.detail})"
                )

    def _exclusive_lanes(self, known: Iterable[LetterStatus], numbers: Collection[int]) -> set[str]:
        """Lanes that only this attempt reads: with a release, the held partitions of the source topic; else none."""
        if self._plan.action is not RecallAction.RELEASE:
            return set()
        return {
            one.lane
            for one in known
            if whole_topic(one.lane) == self._plan.source_topic and partition_number(one.lane) in numbers
        }

    def _in_stretch(
        self,
        stretch: Stretch,
        known: Mapping[str, LetterStatus],
        chosen: Mapping[str, PlannedLetter],
        *,
        exclusive: bool,
    ) -> Iterator[Duplicate]:
        facts = self._cluster.facts(stretch.part)
        cursor = facts.cursors.get(self._plan.holder) if exclusive else None
        copies: dict[str, list[ReadMessage]] = defaultdict(list)
        for stored in self._cluster.read_all(_until(facts, stretch.until), stretch.after):
            name = stored.properties.get(self._plan.kind.mark, "")
            if name in known and stored.batch < 0 and self._is_sent(stored, chosen[name]):
                copies[name].append(stored)
        for name, every in copies.items():
            for one in _second_copies(every, known[name].receipt, exclusive=exclusive):
                if cursor is None or not cursor.has((one.ledger, one.entry)):
                    position = Position(partition_number(stretch.part), one.ledger, one.entry)
                    yield Duplicate(chosen[name], stretch.part, position, one.publish_time, exclusive)

    def _is_sent(self, stored: ReadMessage, letter: PlannedLetter) -> bool:
        """False if its payload shows that somebody wrote the recall id on another message; always True with an edit."""
        return self._plan.edit is not None or digest(stored.payload) == letter.digest


def _until(facts: PartitionFacts, until: Place | None) -> PartitionFacts:
    """The partition without the entries at the place `until` and after it; None: the whole partition."""
    if until is None:
        return facts
    ledger, entry = until
    runs = (
        run._replace(last=min(run.last, entry - 1)) if run.ledger == ledger else run
        for run in facts.ledgers
        if run.ledger <= ledger
    )
    return replace(facts, ledgers=tuple(runs))


def _second_copies(stored: list[ReadMessage], receipt: str, *, exclusive: bool) -> list[ReadMessage]:
    """Copies of one message, except the one of its receipt, or except the last one if the receipt has no place. If
    others read the lane, only the first copy before the receipt is returned: a worker, which keeps the recall id, may
    have moved the message to a place after it.
    """
    if not receipt:
        return stored[:-1]
    place = place_of(receipt)
    if exclusive:
        return [one for one in stored if (one.ledger, one.entry) != place]
    return [one for one in stored if (one.ledger, one.entry) < place][:1]
