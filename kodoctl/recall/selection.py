"""Letters in, a plan's choice out. A pure fold: it holds what is chosen (without payloads) and counts of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kodoctl.formatting import many
from kodoctl.protocol import properties
from kodoctl.recall.payload_patch import Edit, NotEditableError
from kodoctl.recall.recall_ledger import LetterStatus, RecallEvent
from kodoctl.recall.recall_plan import (
    ExclusionReason,
    LetterRef,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    partition_of,
    recall_id,
)

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import LetterSample, RecallSummary
    from kodoctl.recall.destinations import RecallSource
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.stored_message import DeadLetter, Position
    from kodoctl.topology.names import Level

SAMPLES: Final = 3
PREVIEW: Final = 160  # characters of a payload in a sample
MOST_SHOWN: Final = 20  # reasons or tenants that are named; the rest is counted as others
_ASKED_AT_ONCE: Final = 500  # letters whose end the workers' store is asked for
_HELD: Final = 64 * 1024 * 1024  # bytes of payloads that wait for its answer
_AGES: Final = (("under 1 h", 3_600_000), ("1 h to 1 d", 86_400_000), ("1 d to 7 d", 7 * 86_400_000))
OLDEST: Final = "over 7 d"


Done = Callable[[Sequence[str]], Collection[str]]
"""Identities in, those of them out that a worker is done with."""


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """Input of a selection. `known`: recall id -> its state according to the recall ledger; `run` is that of the new
    plan; `done` queries the idempotency store of the workers, None: there is no way to query it.
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


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A letter that may go, before lanes are numbered."""

    position: Position
    published: int
    recall_id: str
    digest: str
    lane: PlannedPartition | None
    reason: str
    cause: str
    tenant: str
    age: str
    sample: LetterSample | None


class LetterSelection:
    """`offer` every letter that the holder still has, oldest first; `finish` once."""

    def __init__(self, asked: SelectionRequest) -> None:
        self._asked = asked
        self.read = 0
        self.matched = 0
        self._candidates: dict[tuple[str, str], _Candidate] = {}
        self._repeats: dict[tuple[str, str], list[LetterRef]] = {}
        self._left_out: Counter[ExclusionReason] = Counter()
        self._why_not: Counter[str] = Counter()
        self._not_landed: list[str] = []
        self._settle: list[LetterRef] = []
        self._seen_recalls: set[str] = set()
        self._batches: Counter[Position] = Counter()  # of a waiting lane: messages read of each batch
        self._asking: list[DeadLetter] = []
        self._asking_size = 0

    def offer(self, letter: DeadLetter) -> None:
        """Counts a dead letter, and chooses it where it is readable and fulfils the condition."""
        self.read += 1
        self.count_entry(letter.position)
        self.consider(letter, chosen=letter.whole and self._asked.condition.chooses(letter))

    def count_entry(self, position: Position) -> None:
        """Counts a message of a waiting lane that is stored there, also one for another subscription: it may be in a
        batch with others that are chosen.
        """
        if position.batch >= 0 and self._asked.family.lane:
            self._batches[_batch_of(position)] += 1

    def consider(self, letter: DeadLetter, *, chosen: bool) -> None:
        """Adds a letter whose condition was evaluated elsewhere, as `chosen`. Letters that are not chosen, have no recall
        id and are not in the ledger need not be added.
        """
        if mark := letter.properties.get(self._asked.family.mark):
            self._seen_recalls.add(mark)
        standing = self._asked.known.get(recall_id(self._asked.family.ledger_key, letter.position, letter.publish_time))
        if standing is not None and standing.settled and not self._asked.again:
            self._settle.append(LetterRef(letter.position, letter.publish_time))
        if not chosen:
            return
        self.matched += 1
        reason = self._left_out_for(letter, standing)
        if reason is not None:
            self._left_out[reason] += 1
        elif self._asked.done is None or self._asked.again or len(self._candidates) >= self._asked.limit:
            self._take(letter)
        else:
            self._asking.append(letter)
            self._asking_size += letter.size
            if len(self._asking) >= _ASKED_AT_ONCE or self._asking_size >= _HELD:
                self._take_those_not_done()

    def leave_out(self, reason: ExclusionReason, name: str) -> None:
        """Counts a message that is looked for and cannot be sent, and keeps the first names of those that were not landed."""
        self._left_out[reason] += 1
        if reason is ExclusionReason.NOT_LANDED and len(self._not_landed) < MOST_SHOWN:
            self._not_landed.append(name)

    def _take_those_not_done(self) -> None:
        """Letters that waited for the answer of the workers' store, in their order."""
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
        """Why a matching letter must stay; None: it may go."""
        asked = self._asked
        if standing is not None and standing.event is not RecallEvent.REFUSED and not asked.again:
            return ExclusionReason.ALREADY if standing.settled else ExclusionReason.UNFINISHED
        if asked.action is RecallAction.DISCARD:
            return None
        if properties.RECALL in letter.properties and not (asked.again or asked.family.lane):
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
        """Copies of one message are one recall: a crash of a worker can leave two."""
        name = (letter.identity, letter.digest)
        if self._asked.action.sends and name in self._candidates:
            self._repeats.setdefault(name, []).append(LetterRef(letter.position, letter.publish_time))
            self._left_out[ExclusionReason.REPEAT] += 1
        elif len(self._candidates) >= self._asked.limit:
            self._left_out[ExclusionReason.BEYOND] += 1
        else:
            unique = name if self._asked.action.sends else (str(letter.position), "")
            self._candidates[unique] = self._candidate(letter)

    def _candidate(self, letter: DeadLetter) -> _Candidate:
        asked = self._asked
        salt = asked.run if asked.again else ""
        return _Candidate(
            position=letter.position,
            published=letter.publish_time,
            recall_id=recall_id(asked.family.ledger_key, letter.position, letter.publish_time, salt),
            digest=letter.digest,
            lane=_lane(asked, letter) if asked.action.sends else None,
            reason=letter.reason or "(none)",
            cause=letter.cause or "(none)",
            tenant=letter.tenant,
            age=age_of(asked.condition.now - letter.publish_time),
            sample=_sample(letter) if len(self._candidates) < SAMPLES else None,
        )

    def finish(
        self,
    ) -> tuple[tuple[PlannedPartition, ...], tuple[PlannedLetter, ...], tuple[LetterRef, ...], RecallSummary]:
        """Lanes, letters with their numbers, what is only to be acknowledged, and the summary."""
        self._take_those_not_done()
        kept = {name: one for name, one in self._candidates.items() if not self._proved_sent(one)}
        sent = [LetterRef(one.position, one.published) for name, one in self._candidates.items() if name not in kept]
        if sent:
            self._left_out[ExclusionReason.ALREADY] += len(sent)
        self._leave_out_parts(kept, {*self._settle, *sent})
        lanes: dict[PlannedPartition, int] = {}
        numbers: Counter[int] = Counter()
        letters = []
        for name, one in sorted(kept.items(), key=lambda item: item[1].position):
            repeats = tuple(sorted(self._repeats.get(name, ())))
            chosen = PlannedLetter(one.position, one.published, one.recall_id, one.digest, repeats=repeats)
            if one.lane is not None:
                lane = lanes.setdefault(one.lane, len(lanes))
                numbers[lane] += 1
                chosen = replace(chosen, lane=lane, number=numbers[lane])
            letters.append(chosen)
        return tuple(lanes), tuple(letters), tuple(sorted({*self._settle, *sent})), self._summary(list(kept.values()))

    def _leave_out_parts(self, kept: dict[tuple[str, str], _Candidate], settle: Collection[LetterRef]) -> None:
        """Keeps of a batch in a waiting lane all messages or none: the broker forgets which messages of a batch were
        acknowledged when it unloads the partition, so what was sent elsewhere would come to a worker again.
        """
        places = {name: self._places(name, one) for name, one in kept.items()}
        planned = Counter(_batch_of(ref.position) for ref in settle)
        planned.update(batch for batches in places.values() for batch in batches)
        while parts := [
            name for name, batches in places.items() if any(planned[b] < self._batches[b] for b in batches)
        ]:
            for name in parts:  # a copy of it elsewhere makes a part of that batch, too
                planned.subtract(places.pop(name))
                del kept[name]
            self._left_out[ExclusionReason.PART] += len(parts)

    def _places(self, name: tuple[str, str], one: _Candidate) -> list[Position]:
        """Batches of a candidate and of its copies."""
        copies = (ref.position for ref in self._repeats.get(name, ()))
        return [_batch_of(position) for position in (one.position, *copies) if position.batch >= 0]

    def _proved_sent(self, one: _Candidate) -> bool:
        """True if a letter was read that has the recall id of this one: it was sent, whatever the ledger has, and died
        again.
        """
        return not self._asked.again and one.recall_id in self._seen_recalls

    def _summary(self, kept: list[_Candidate]) -> RecallSummary:
        made: RecallSummary = {
            "read": self.read,
            "matched": self.matched,
            "chosen": len(kept),
            "by_reason": counted(one.reason for one in kept),
            "by_cause": counted(one.cause for one in kept),
            "by_tenant": counted(one.tenant for one in kept),
            "by_age": _by_age(one.age for one in kept),
            "samples": [one.sample for one in kept if one.sample],
            "left_out": {word.value: self._left_out[word] for word in ExclusionReason if self._left_out[word]},
            "not_editable": dict(self._why_not.most_common(SAMPLES)),
        }
        if self._not_landed:
            made["not_landed"] = self._not_landed
        return made


def _batch_of(position: Position) -> Position:
    return position._replace(batch=0)


def _lane(asked: SelectionRequest, letter: DeadLetter) -> PlannedPartition:
    lane = asked.family.lane_of(letter.level, asked.to)
    assert lane is not None  # else it was left out
    if asked.family.lane:
        partition = partition_of(letter.position.partition, letter.key or letter.identity, lane.partitions)
        return PlannedPartition(lane.topic, partition, lane.ready, lane.partitions)
    origin = letter.properties.get(properties.ORIGIN_ID, "").split(":")
    came_from = int(origin[2]) if len(origin) == 4 and origin[2].isdecimal() and len(origin[2]) < 6 else None
    partition = partition_of(came_from, letter.key or letter.identity, lane.partitions)
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
    """A bucket; `age` in ms."""
    return next((label for label, below in _AGES if age < below), OLDEST)


def _by_age(labels: Any) -> dict[str, int]:
    found = Counter(labels)
    return {label: found[label] for label in (*(label for label, _ in _AGES), OLDEST) if found[label]}


def counted(values: Iterable[str]) -> dict[str, int]:
    """Values by number, the most frequent first; of many the rest as one."""
    found = Counter(values)
    top = dict(sorted(found.most_common(MOST_SHOWN), key=lambda item: (-item[1], item[0])))
    rest = found.total() - sum(top.values())
    return {**top, **({f"({len(found) - len(top)} others)": rest} if rest else {})}
