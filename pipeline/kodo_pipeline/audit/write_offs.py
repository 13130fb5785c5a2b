"""Write-offs: losses and doubts that a person accepted by name, with author and reason. The verdict leaves them out,
and a note names them; later losses and doubts count. Pure.

A write-off names its loss or doubt so that nothing later has the same name: by the position of a message, the range or
the run of a hole, the highest missing number of a producer, the end of a time in which messages may have expired, or
the number of a kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kodo_pipeline.audit.verdict import is_expiring
from kodo_pipeline.evidence.audit_evidence import RANKS, AuditEvidence, MessageStatus
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_pipeline.audit.unbooked_recalls import UnbookedRecalls
    from kodo_pipeline.evidence.audit_evidence import Misaddressed, PartitionCoverage, SequenceGap, SubscriptionTotals

MESSAGE: Final = "message"
COVERAGE: Final = "coverage"
BEGINNING: Final = "beginning"
TTL: Final = "ttl"
RECORDS: Final = "records"
FORGED: Final = "forged records"
PRODUCER: Final = "producer"
ADDRESSEE: Final = "addressee"
NOWHERE: Final = -1  # the partition of what has none
_SHOWN: Final = 5  # write-offs that notes tell one by one


class WrittenOff(NamedTuple):
    """One loss or doubt. `kind`: a constant of this module, such as MESSAGE; `topic`: full name, but of RECORDS and
    FORGED the ground topic; `partition`: -1 (NOWHERE) if it has none, or on a plain topic; `subscription`: "" if it has
    none. `name`: position of a message (`ledger:entry:partition:batch`), problem of coverage, `RUN:NUMBER` of a
    producer (its run, and the highest number that is missing), or for TTL the time of the last reading (ms since the
    epoch); else "". `number`: how many messages, records or numbers; 0 in an item that is a key of `WriteOffs.counts`.

    Older kodoctls named a producer by RUN alone; such an item settles `number` numbers of the run, whichever they are,
    until an item with a number is booked for the run.
    """

    kind: str
    topic: str
    partition: int
    subscription: str
    name: str
    number: int = 1


@dataclass(frozen=True, slots=True)
class WriteOffs:
    """All write-offs of a landing. `counts`: number that was written off, by item (with its `number` set to 0);
    `notes`: a sentence for each of the five newest applied plans, newest first, and one with the number of the others.
    """

    counts: Mapping[WrittenOff, int]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Makes the write-offs from rows of the table `write_offs`. If the same item was written off several times, the
        largest `number` applies.
        """
        counts: dict[WrittenOff, int] = defaultdict(int)
        booked: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            one = WrittenOff(*(row[name] for name in WrittenOff._fields))
            name = one._replace(number=0)
            counts[name] = max(counts[name], one.number)
            booked[row["run"]].append(row)
        ordered = sorted(booked.values(), key=lambda some: some[0]["at_ts"], reverse=True)
        notes = [_note(some) for some in ordered[:_SHOWN]]
        if (more := len(ordered) - _SHOWN) > 0:
            notes.append(f"… and {more:,} earlier write-offs, in the table `write_offs`")
        return cls(dict(counts), tuple(notes))

    def __bool__(self) -> bool:
        """True if anything was written off."""
        return bool(self.counts)

    @property
    def places(self) -> Iterator[tuple[str, str, str]]:
        """Yields (full name of the topic, subscription, `ledger:entry:partition:batch`) of each written-off place."""
        return ((one.topic, one.subscription, one.name) for one in self.counts if one.kind == MESSAGE)

    @property
    def producers(self) -> Iterator[tuple[str, int, str, int]]:
        """Yields (full name of the topic, partition, run, number) for each write-off that settles all missing numbers
        of a producer's run up to that one. A run may occur several times.
        """
        for one in self.counts:
            if one.kind == PRODUCER and ":" in one.name:
                run, _, highest = one.name.partition(":")
                yield one.topic, one.partition, run, int(highest)

    def count(self, kind: str, topic: str, partition: int = NOWHERE, subscription: str = "", name: str = "") -> int:
        """Number that was written off of the item with these fields; 0 if none."""
        return self.counts.get(WrittenOff(kind, topic, partition, subscription, name, 0), 0)

    def applied(self, evidence: AuditEvidence) -> AuditEvidence:
        """Returns the evidence without the written-off losses and doubts, and with `notes`; of an item that now has a
        greater number than was written off, the difference stays. `missing_records` stays as it is, and
        `records_settled` is set. Messages stay as they are, because the classification has already marked those that
        were written off; so do numbers of a producer whose highest is above the written-off one, because the audit has
        already left out those up to that (kodo_pipeline.audit.completeness.gaps_of). Without write-offs returns
        `evidence` itself.
        """
        if not self.counts:
            return evidence
        until: dict[tuple[str, int, str], int] = {}
        for topic, partition, run, highest in self.producers:
            place = topic, partition, run
            until[place] = max(highest, until.get(place, 0))
        return replace(
            evidence,
            parts=tuple(self._of_part(one) for one in evidence.parts),
            tallies=tuple(self._of_tally(one) for one in evidence.tallies),
            gaps=tuple(one for one in (self._of_gap(gap, until) for gap in evidence.gaps) if one.missing),
            strays=tuple(one for one in map(self._of_stray, evidence.strays) if one.messages),
            write_offs=self.notes,
        )

    def _of_part(self, part: PartitionCoverage) -> PartitionCoverage:
        place = part.topic, part.partition
        problems = tuple(one for one in part.problems if not self.count(COVERAGE, *place, name=one))
        begins = part.from_creation or bool(self.count(BEGINNING, *place))
        ends = [int(one.name) for one in self.counts if one.kind == TTL and (one.topic, one.partition) == place]
        unread = part.unread
        if ends and part.looks:
            unread = max((after - before for before, after in pairwise(part.looks) if after > max(ends)), default=0)
            return replace(part, problems=problems, from_creation=begins, unread=unread, ttl=part.ttl if unread else 0)
        return replace(part, problems=problems, from_creation=begins)

    def _of_tally(self, tally: SubscriptionTotals) -> SubscriptionTotals:
        known = self.count(FORGED, tally.topic, subscription=tally.subscription)
        settled = self.count(RECORDS, tally.topic, subscription=tally.subscription)
        return replace(
            tally,
            contradictions=max(0, tally.contradictions - known),
            records_settled=min(tally.missing_records, settled),
        )

    def _of_gap(self, gap: SequenceGap, until: Mapping[tuple[str, int, str], int]) -> SequenceGap:
        if (highest := until.get((gap.topic, gap.partition, gap.run))) is not None:
            return gap if gap.highest > highest else replace(gap, missing=0)
        settled = self.count(PRODUCER, gap.topic, gap.partition, name=gap.run)
        overdue = max(0, gap.overdue - settled)
        unsigned = max(0, gap.unsigned - max(0, settled - gap.overdue))
        return replace(gap, missing=max(0, gap.missing - settled), overdue=overdue, unsigned=unsigned)

    def _of_stray(self, stray: Misaddressed) -> Misaddressed:
        settled = self.count(ADDRESSEE, stray.topic, subscription=stray.subscription)
        return replace(stray, messages=max(0, stray.messages - settled))


NONE: Final = WriteOffs({})


@dataclass(frozen=True, slots=True)
class Bookings:
    """Facts that an audit needs and that no landed message or record has. `unbooked`: recalls that landed and that the
    recall ledger lacks, None if there are none, or if nobody looked; `write_offs`: losses and doubts that a person
    accepted; `delayed`: (full name of a topic, partition, subscription) of each subscription whose unacknowledged
    messages on the partition all wait for the delivery time that their sender set.
    """

    unbooked: UnbookedRecalls | None = None
    write_offs: WriteOffs = NONE
    delayed: frozenset[tuple[str, int, str]] = frozenset()


NO_BOOKINGS: Final = Bookings()


def standing(evidence: AuditEvidence, known: WriteOffs = NONE) -> list[WrittenOff]:
    """Losses and doubts that prevent the verdict *no loss*, that can be written off, and that `known` does not contain
    with at least their number. Messages are not among them: `kodo_pipeline.audit.job.AuditResult.places` returns those
    that can be written off. Missing numbers of a producer are among them even if its messages may still arrive.
    `evidence`: as it is before `known.applied`, so the number of an item includes what was written off before, but of a
    producer only numbers above those that were written off.
    """
    left = {one._replace(number=0) for one in _standing(known.applied(evidence))}
    return [one for one in _standing(evidence) if one._replace(number=0) in left]


def without_messages(evidence: AuditEvidence, topic: str | None, subscription: str | None) -> AuditEvidence:
    """Returns the evidence without the counts of lost, unknown and unproved messages of a subscription. `topic`: ground
    topic, None: all; `subscription`: None: all. Other losses and doubts stay.
    """

    def settle_tally(tally: SubscriptionTotals) -> SubscriptionTotals:
        if topic not in (None, tally.topic) or subscription not in (None, tally.subscription):
            return tally
        return replace(
            tally,
            fates={fate: count for fate, count in tally.fates.items() if RANKS[fate] < RANKS[MessageStatus.UNPROVED]},
        )

    return replace(evidence, tallies=tuple(settle_tally(one) for one in evidence.tallies))


def _standing(evidence: AuditEvidence) -> Iterator[WrittenOff]:
    for part in evidence.parts:
        place = part.topic, part.partition, ""
        yield from (WrittenOff(COVERAGE, *place, problem) for problem in part.problems)
        if part.read and not part.from_creation:
            yield WrittenOff(BEGINNING, *place, "")
        if is_expiring(part) and part.looks:
            yield WrittenOff(TTL, *place, str(part.looks[-1]))
    for tally in evidence.tallies:
        place = tally.topic, NOWHERE, tally.subscription
        if tally.missing_records > tally.records_settled:
            yield WrittenOff(RECORDS, *place, "", tally.missing_records)
        if tally.contradictions:
            yield WrittenOff(FORGED, *place, "", tally.contradictions)
    for gap in evidence.gaps:
        yield WrittenOff(PRODUCER, gap.topic, gap.partition, "", f"{gap.run}:{gap.highest}", gap.missing)
    for stray in evidence.strays:
        yield WrittenOff(ADDRESSEE, stray.topic, NOWHERE, stray.subscription, "", stray.messages)


def describe_items(items: Sequence[WrittenOff]) -> Iterator[str]:
    """Yields a line of text, sorted, for each combination of kind, topic and subscription among the items, with the sum
    of their numbers.
    """
    groups: dict[tuple[str, str, str], int] = defaultdict(int)
    for one in items:
        groups[one.kind, one.topic, one.subscription] += one.number
    for (kind, topic, subscription), count in sorted(groups.items()):
        where = f"{topic} / {subscription}" if subscription else topic
        yield f"{where}: {many(count, _WORDS[kind][0], _WORDS[kind][1])}"


_WORDS: Final = {
    MESSAGE: ("message lost, or not proved done", "messages lost, or not proved done"),
    COVERAGE: ("hole in what was read", "holes in what was read"),
    BEGINNING: (
        "partition that was not read from its creation on",
        "partitions that were not read from their creation on",
    ),
    TTL: ("partition whose messages may have expired unread", "partitions whose messages may have expired unread"),
    RECORDS: ("missing record of workers", "missing records of workers"),
    FORGED: ("number with two different records", "numbers with two different records"),
    PRODUCER: ("number of a producer that no message has", "numbers of producers that no message has"),
    ADDRESSEE: ("message for a subscription that is not there", "messages for subscriptions that are not there"),
}


def _note(rows: Sequence[Mapping[str, Any]]) -> str:
    """Text of the note about one write-off: its counts, author, date and reason. `rows`: all rows of the write-off."""
    first = rows[0]
    at: datetime = first["at_ts"]
    messages = sum(1 for row in rows if row["kind"] == MESSAGE)
    doubts = len(rows) - messages
    what = " and ".join(
        text for count, text in ((messages, many(messages, "message")), (doubts, many(doubts, "doubt"))) if count
    )
    return f"{what} written off by {first['by']} on {at.date()}: {first['reason']}"
