"""Selection of a plan's letters: a fold over letters that counts them, and writes the chosen ones (without payloads) to
a temporary file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.protocol import properties
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEvent
from kodoctl.recall.message.payload_patch import Edit, NotEditableError
from kodoctl.recall.plan.candidate_store import CHOSEN, SETTLED, CandidateStore, StoredCandidate
from kodoctl.recall.plan.letter_table import LetterTableWriter, PlanRow
from kodoctl.recall.plan.recall_plan import (
    DEAD,
    SEGMENT,
    ExclusionReason,
    LetterRef,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    recall_id,
)
from kodoctl.text.formatting import many
from kodoctl.topology.names import partition_numbers

if TYPE_CHECKING:
    from pathlib import Path

    from kodoctl.documents.recall_document import LetterSample, RecallSummary
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.message.stored_message import DeadLetter, Position
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.recall.plan.recall_plan import LetterTable
    from kodoctl.topology.names import Level

SAMPLES: Final = 3
PREVIEW: Final = 160  # characters of a payload in a sample
MOST_SHOWN: Final = 20  # reasons or tenants that are named; the rest is counted as others
_ASKED_AT_ONCE: Final = 500  # letters whose end the workers' store is asked for
_HELD: Final = 64 * 1024 * 1024  # bytes of payloads that wait for its answer
_AGES: Final = (("under 1 h", 3_600_000), ("1 h to 1 d", 86_400_000), ("1 d to 7 d", 7 * 86_400_000))
OLDEST: Final = "over 7 d"


Done = Callable[[Sequence[str]], Collection[str]]
"""Receives identities of messages, and returns those that a worker has finished with."""


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """Input of a selection.

    Args:
        family: source of the letters.
        run: id of the new plan.
        to: level to send to; None: each letter's own. Only DeadLetters heed it.
        limit: maximum number of letters to send or discard.
        again: also choose letters that an earlier recall sent, discarded or left in doubt, or that `done` would return,
            which is not called then.
        edit: patch of the payloads; None: payloads are sent as they are.
        known: recall id -> its state by the recall ledger.
        done: queries the idempotency store of the workers; None: no store can be queried.
    """

    action: RecallAction
    family: RecallSource
    condition: Condition
    run: str
    to: Level | None
    limit: int
    again: bool
    edit: Edit | None
    known: Mapping[str, LetterStatus] = field(default_factory=dict)
    done: Done | None = None


class _Labels(NamedTuple):
    """Properties by which a plan counts its letters."""

    reason: str
    cause: str
    tenant: str
    age: str
    died_at_once: bool


class LetterSelection:
    """Selection of a plan's letters. The caller must pass every unacknowledged letter to `offer` or `consider`, oldest
    first in each partition, then call `finish` once. The letters are in a temporary database, of which only a part is
    in memory; the methods raise UsageError if its file cannot be written. `read`, `matched`: numbers of letters that
    were offered, and that the condition chose; `written`: see `finish`.
    """

    def __init__(self, asked: SelectionRequest) -> None:
        self._asked = asked
        self.read = 0
        self.matched = 0
        self._store = CandidateStore()
        self._lanes: dict[PlannedPartition, int] = {}
        self._labels: dict[_Labels, int] = {}
        self._samples: dict[int, LetterSample] = {}  # by number in the store
        self._left_out: Counter[ExclusionReason] = Counter()
        self._why_not: Counter[str] = Counter()
        self._not_landed: list[str] = []
        self._batches: Counter[Position] = Counter()  # of a waiting lane: messages read of each batch
        self._asking: list[DeadLetter] = []
        self._asking_size = 0
        self.written: LetterTable | None = None

    def offer(self, letter: DeadLetter) -> None:
        """Counts an unacknowledged letter, and chooses it if it meets the condition and can be sent on unchanged
        (`DeadLetter.whole`). Some of these are left out nevertheless: see ExclusionReason. Raises the errors of `done`
        of the request.
        """
        self.read += 1
        self.count_entry(letter.position)
        self.consider(letter, chosen=letter.whole and self._asked.condition.chooses(letter))

    def count_entry(self, position: Position) -> None:
        """Counts a stored message of a waiting lane, also one for another subscription, because it may be in a batch
        with chosen ones, and a plan takes whole batches. Does nothing for a message that is alone in its entry, and for
        other sources. Each message must be counted once, before `finish`: `offer` does it itself, `consider` does not.
        """
        if position.batch >= 0 and self._asked.family.kind.whole_batches:
            self._batches[_batch_of(position)] += 1

    def consider(self, letter: DeadLetter, *, chosen: bool) -> None:
        """Adds a letter whose condition was evaluated elsewhere. `chosen`: it meets the condition and can be sent on
        unchanged; some of these are left out nevertheless, as in `offer`. The caller counts the letter in `read`. A
        letter that is not chosen, has no recall id in its headers (`SourceKind.mark`) and is not in the ledger need not
        be added. Raises the errors of `done` of the request.
        """
        if mark := letter.properties.get(self._asked.family.kind.mark):
            self._store.add_seen(mark)
        standing = self._asked.known.get(recall_id(self._asked.family.ledger_key, letter.position, letter.publish_time))
        if standing is not None and standing.settled and not self._asked.again:
            self._store.add_settled(LetterRef(letter.position, letter.publish_time))
        if not chosen:
            return
        self.matched += 1
        reason = self._left_out_for(letter, standing)
        if reason is not None:
            self._left_out[reason] += 1
        elif self._asked.done is None or self._asked.again or self._store.chosen >= self._asked.limit:
            self._take(letter)
        else:
            self._asking.append(letter)
            self._asking_size += letter.size
            if len(self._asking) >= _ASKED_AT_ONCE or self._asking_size >= _HELD:
                self._take_those_not_done()

    def leave_out(self, reason: ExclusionReason, name: str) -> None:
        """Counts a message that cannot be sent, for this reason, but not in `read` and `matched`. `name`: its name; the
        first 20 names (MOST_SHOWN) are kept if the reason is NOT_LANDED.
        """
        self._left_out[reason] += 1
        if reason is ExclusionReason.NOT_LANDED and len(self._not_landed) < MOST_SHOWN:
            self._not_landed.append(name)

    def _take_those_not_done(self) -> None:
        """Asks the workers' store about the letters that wait, and takes those that are not done, in their order."""
        waited, self._asking, self._asking_size = self._asking, [], 0
        if not waited or self._asked.done is None:
            return
        done = self._asked.done(sorted({letter.identity for letter in waited}))
        for letter in waited:
            if letter.identity in done:
                self._left_out[ExclusionReason.DONE] += 1
            else:
                self._take(letter)

    def _left_out_for(self, letter: DeadLetter, standing: LetterStatus | None) -> ExclusionReason | None:
        """The reason for which a matching letter must stay; None: the plan may take it."""
        asked = self._asked
        if standing is not None and standing.event is not RecallEvent.REFUSED and not asked.again:
            return ExclusionReason.ALREADY if standing.settled else ExclusionReason.UNFINISHED
        if asked.action is RecallAction.DISCARD:
            return None
        if asked.family.kind.is_recalled(letter) and not asked.again:
            return ExclusionReason.RECALLED
        if asked.action is RecallAction.RELEASE and (letter.number(properties.DUE) or 0) <= asked.condition.now:
            return ExclusionReason.DUE
        if asked.family.lane_of(letter.level, asked.to) is None:
            return ExclusionReason.NOWHERE
        if asked.edit is not None:
            try:
                asked.edit.apply(letter.payload)
            except NotEditableError as problem:
                self._why_not[str(problem)] += 1
                return ExclusionReason.NOT_EDITABLE
        return None

    def _take(self, letter: DeadLetter) -> None:
        """Adds a letter to the plan, up to the limit. A copy of a chosen letter (a crash of a worker can leave two) is
        not sent, only acknowledged with it.
        """
        name = _name(letter) if self._asked.action.sends else None
        first = None if name is None else self._store.first_of(name)
        if first is not None:
            self._store.add_copy(LetterRef(letter.position, letter.publish_time), first)
            self._left_out[ExclusionReason.REPEAT] += 1
        elif self._store.chosen >= self._asked.limit:
            self._left_out[ExclusionReason.BEYOND] += 1
        else:
            self._choose(letter, name)

    def _choose(self, letter: DeadLetter, name: bytes | None) -> None:
        asked = self._asked
        age = age_of(asked.condition.now - letter.publish_time)
        at_once = asked.family.kind is DEAD and not letter.attempts
        labels = _Labels(letter.reason or "(none)", letter.cause or "(none)", letter.tenant, age, at_once)
        lane = self._lanes.setdefault(_lane(asked, letter), len(self._lanes)) if asked.action.sends else 0
        salt = asked.run if asked.again else ""
        seq = self._store.add(
            LetterRef(letter.position, letter.publish_time),
            recall_id(asked.family.ledger_key, letter.position, letter.publish_time, salt),
            letter.digest,
            lane,
            self._labels.setdefault(labels, len(self._labels)),
            name,
        )
        if self._store.chosen <= SAMPLES:
            self._samples[seq] = _sample(letter)

    def finish(
        self, table: Path | None = None
    ) -> tuple[tuple[PlannedPartition, ...], tuple[PlannedLetter, ...], tuple[LetterRef, ...], RecallSummary]:
        """Returns (lanes, letters with their numbers, letters that are only acknowledged, summary), and closes the
        database. `table`: file for the letters if there are more than SEGMENT (50,000), copies and settled ones
        included; then `written` describes the file, and both sequences of letters are empty. Otherwise, and if `table`
        is None, all letters are in memory, and `written` is None. Raises UsageError if the file cannot be written, and
        the errors of `done` of the request.
        """
        with self._store:
            self._take_those_not_done()
            if not self._asked.again and (sent := self._store.settle_seen()):
                self._left_out[ExclusionReason.ALREADY] += len(sent)
                self._drop_samples(sent)
            self._leave_out_parts()
            lanes: dict[PlannedPartition, int] = {}
            counts: Counter[int] = Counter()
            if table is None or self._store.rows <= SEGMENT:
                letters, settle = _in_memory(self._plan_rows(lanes, counts))
            else:
                letters, settle = (), ()
                share = max(1, SEGMENT // len(partition_numbers(self._asked.family.source_partitions)))
                with LetterTableWriter(table) as writer:
                    for row in self._plan_rows(lanes, counts, share):
                        writer.add(row)
                    self.written = writer.close()
            return tuple(lanes), letters, settle, self._summary(counts)

    def _plan_rows(
        self, lanes: dict[PlannedPartition, int], counts: Counter[int], share: int | None = None
    ) -> Iterator[PlanRow]:
        """Yields the plan's rows in the order in which they are sent: segment by segment, and partition by partition in
        each. Fills lanes in the order of their first letters, and counts by label.
        """
        known, numbers = list(self._lanes), Counter[int]()
        for one in _in_segments(self._store.stored(share)):
            ref = LetterRef(one.position, one.published)
            if one.kind != CHOSEN:
                yield PlanRow(ref, first=None if one.first is None else _letter(one.first))
                continue
            counts[one.labels] += 1
            chosen = _letter(one)
            if known:
                lane = lanes.setdefault(known[one.lane], len(lanes))
                numbers[lane] += 1
                chosen = replace(chosen, lane=lane, number=numbers[lane])
            yield PlanRow(ref, chosen)

    def _leave_out_parts(self) -> None:
        """Keeps all messages of a batch in a waiting lane or none. The broker forgets which messages of a batch
        were acknowledged when it unloads the partition, so messages that were sent elsewhere would come to a
        worker again.
        """
        if not self._batches:
            return
        places: dict[int, list[Position]] = {}
        planned: Counter[Position] = Counter()
        for one in self._store.stored():
            if one.kind == SETTLED:
                planned[_batch_of(one.position)] += 1
            elif one.position.batch >= 0:
                places.setdefault(one.first.seq if one.first else one.seq, []).append(_batch_of(one.position))
        planned.update(batch for batches in places.values() for batch in batches)
        gone: list[int] = []
        while parts := [seq for seq, batches in places.items() if any(planned[b] < self._batches[b] for b in batches)]:
            for seq in parts:  # a copy of it elsewhere makes a part of that batch, too
                planned.subtract(places.pop(seq))
            gone += parts
        if gone:
            self._store.remove(gone)
            self._left_out[ExclusionReason.PART] += len(gone)
            self._drop_samples(gone)

    def _drop_samples(self, numbers: Iterable[int]) -> None:
        for seq in numbers:
            self._samples.pop(seq, None)

    def _summary(self, counts: Counter[int]) -> RecallSummary:
        labels = list(self._labels)
        made: RecallSummary = {
            "read": self.read,
            "matched": self.matched,
            "chosen": counts.total(),
            "by_reason": _count_pairs((labels[one].reason, number) for one, number in counts.items()),
            "by_cause": _count_pairs((labels[one].cause, number) for one, number in counts.items()),
            "by_tenant": _count_pairs((labels[one].tenant, number) for one, number in counts.items()),
            "by_age": _by_age((labels[one].age, number) for one, number in counts.items()),
            "samples": list(self._samples.values()),
            "left_out": {word.value: self._left_out[word] for word in ExclusionReason if self._left_out[word]},
            "not_editable": dict(self._why_not.most_common(SAMPLES)),
        }
        if at_once := sum(number for one, number in counts.items() if labels[one].died_at_once):
            made["died_at_once"] = at_once
        if self._not_landed:
            made["not_landed"] = self._not_landed
        return made


def _name(letter: DeadLetter) -> bytes:
    """Hash that is the same for all copies of a message, and for no other message."""
    named = letter.identity.encode("utf-8", "surrogatepass")
    return hashlib.sha256(letter.digest.encode() + named).digest()[:16]


def _letter(one: StoredCandidate) -> PlannedLetter:
    return PlannedLetter(one.position, one.published, one.recall_id, one.digest)


def _in_segments(rows: Iterator[StoredCandidate]) -> Iterator[StoredCandidate]:
    """Yields the rows of each segment in the order of their positions. A sender carries out one partition of a segment
    after the other, and brokers drop a number that is lower than the last one of its lane.
    """
    while segment := [*islice(rows, SEGMENT)]:
        yield from sorted(segment, key=lambda one: one.position)


def _in_memory(rows: Iterable[PlanRow]) -> tuple[tuple[PlannedLetter, ...], tuple[LetterRef, ...]]:
    """Letters with their copies, and those that were settled before, each in order."""
    letters: dict[Position, PlannedLetter] = {}
    copies: dict[Position, list[LetterRef]] = {}
    settle: list[LetterRef] = []
    for row in rows:
        if row.chosen is not None:
            letters[row.ref.position] = row.chosen
        elif row.first is not None:
            copies.setdefault(row.first.position, []).append(row.ref)
        else:
            settle.append(row.ref)
    for position, refs in copies.items():
        letters[position] = replace(letters[position], repeats=tuple(refs))
    return tuple(letters.values()), tuple(settle)


def _batch_of(position: Position) -> Position:
    return position._replace(batch=0)


def _lane(asked: SelectionRequest, letter: DeadLetter) -> PlannedPartition:
    lane = asked.family.lane_of(letter.level, asked.to)
    assert lane is not None  # else it was left out
    partition = asked.family.kind.partition(letter, lane.partitions)
    return PlannedPartition(lane.topic, partition, lane.ready, lane.partitions)


def _sample(letter: DeadLetter) -> LetterSample:
    text = letter.text
    if text is None:
        text = "(no payload)" if letter.payload is None else f"({many(letter.size, 'byte')}, no text)"
    return {
        "position": str(letter.position),
        "key": letter.key,
        "tenant": letter.tenant,
        "reason": letter.reason or "(none)",
        "error": letter.error or "",
        "dead_at": letter.publish_time,
        "payload": text if len(text) <= PREVIEW else f"{text[: PREVIEW - 1]}…",
    }


def age_of(age: int) -> str:
    """Label of the group that an age in ms belongs to: `under 1 h` (also below 0), `1 h to 1 d`, `1 d to 7 d` or `over
    7 d`; an age of exactly 1 h, 1 d or 7 d is in the older group.
    """
    return next((label for label, below in _AGES if age < below), OLDEST)


def _by_age(labels: Iterable[tuple[str, int]]) -> dict[str, int]:
    found = _sum_pairs(labels)
    return {label: found[label] for label in (*(label for label, _ in _AGES), OLDEST) if found[label]}


def count_values(values: Iterable[str]) -> dict[str, int]:
    """Number of occurrences by value, the most frequent first; the occurrences of all values after the first 20
    (MOST_SHOWN) are counted together under a last key, such as `(5 others)` for five more values.
    """
    return _most(Counter(values))


def _count_pairs(values: Iterable[tuple[str, int]]) -> dict[str, int]:
    return _most(_sum_pairs(values))


def _sum_pairs(values: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for value, number in values:
        found[value] += number
    return found


def _most(found: Counter[str]) -> dict[str, int]:
    top = dict(sorted(found.most_common(MOST_SHOWN), key=lambda item: (-item[1], item[0])))
    rest = found.total() - sum(top.values())
    return {**top, **({f"({len(found) - len(top)} others)": rest} if rest else {})}
