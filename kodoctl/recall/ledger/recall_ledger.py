"""Recall ledger: intents, and letters that were stored, discarded, refused or left unclear. Append-only; of a letter's
entries the one that came furthest counts.

A letter is recorded before it is sent and again when its receipt has come, so that after a crash each letter between
the two is in doubt. Recalls with and without Spark share one table with one meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class RecallEvent(StrEnum):
    """Events of a dead letter, in order. `INTENT`: it is about to be sent; `REFUSED`: it was not sent; `UNCLEAR`: it is
    unknown if it was stored, and it was not sent again; `SENT`, `DISCARDED`: done for certain.
    """

    INTENT = "intent"
    REFUSED = "refused"
    UNCLEAR = "unclear"
    SENT = "sent"
    DISCARDED = "discarded"


_RANK = {event: rank for rank, event in enumerate(RecallEvent)}
_WEIGHT = _RANK | {RecallEvent.REFUSED: -1}
"""Ranks of events of different runs: a refusal of one run must not hide an entry of another run."""
SETTLED = frozenset({RecallEvent.SENT, RecallEvent.DISCARDED})
"""Events after which a letter must not be sent again; only its acknowledgement may be missing."""


class RecallEntry(NamedTuple):
    """Entry of the recall ledger about one letter.

    Args:
        run: id of the run of the plan.
        event: step that the letter came to.
        recall_id: `kodoctl.recall.plan.recall_plan.recall_id` of the letter.
        dead_topic: the `ledger_key` of the source, mostly a topic's name.
        position: position of the dead letter, `ledger:entry:partition:batch`.
        at: ms since the epoch.
        lane: full name of the target partition; "" for a discard.
        number: the letter's sequence number in that lane; 0 for a discard.
        receipt: of SENT, `ledger:entry` where the letter was stored, "" if the broker had it already, at an unknown
            position; "" for other events.
        note: of an intent, the end of the lane when the attempt began; else a text for people.
        who: the user of the attempt, as text.
        published: publish time of the dead letter, ms since the epoch.
        payload: the original payload, in the intent of an edited letter; else None, and None in entries that were read.
    """

    run: str
    event: RecallEvent
    recall_id: str
    dead_topic: str
    position: str
    at: int
    lane: str = ""
    number: int = 0
    receipt: str = ""
    note: str = ""
    who: str = ""
    published: int = 0
    payload: bytes | None = None


class LetterStatus(NamedTuple):
    """State of one recall id according to the recall ledger. The fields are those of the RecallEntry that counts."""

    run: str
    event: RecallEvent
    position: str = ""
    lane: str = ""
    number: int = 0
    at: int = 0
    receipt: str = ""
    note: str = ""
    published: int = 0

    @property
    def settled(self) -> bool:
        """True if the letter was certainly sent and stored, or certainly discarded."""
        return self.event in SETTLED


class LedgerSlice(NamedTuple):
    """Selection of letters by their recall ids. `since`, `until`: publish times of the first and the last of them, ms
    since the epoch, so that a table opens few files.
    """

    recall_ids: frozenset[str]
    since: int
    until: int


class RecallLedger(Protocol):
    """Port to the store of recall entries."""

    def append(self, entries: Sequence[RecallEntry]) -> None:
        """Stores all entries or none, and returns once they are stored."""

    def entries(self, dead_topic: str, among: LedgerSlice | None = None) -> list[RecallEntry]:
        """Every entry about one source (`dead_topic`: its `ledger_key`), or about its letters `among`, in any order,
        without payloads.
        """

    def highest_numbers(self, dead_topic: str, run: str) -> dict[str, int]:
        """Returns the highest sequence number of a run that is certainly stored, by lane (full name of a partition). A
        lane is absent if no number of the run is certainly stored there. `dead_topic`: the `ledger_key` of the source.
        """


def latest_status(entries: Iterable[RecallEntry]) -> dict[str, LetterStatus]:
    """The status of each recall id, from one of its entries. In one run the furthest event counts, in the order of
    RecallEvent; of several intents the first, because a recovery reads the lane from the end that it has as its note.
    Of several runs the one that came furthest counts, where a refusal is less than an intent, and of equal ones the
    later.
    """
    every = list(entries)
    found = {entry.recall_id: entry for entry in every}
    if len(found) < len(every):  # else there is nothing to compare, as where an attempt records a batch
        found = _furthest(every)
    return {recall_id: status_of(entry) for recall_id, entry in found.items()}


def _furthest(entries: Iterable[RecallEntry]) -> dict[str, RecallEntry]:
    """The entry of each recall id that counts."""
    runs: dict[tuple[str, str], RecallEntry] = {}
    for entry in entries:
        name = entry.recall_id, entry.run
        before = runs.setdefault(name, entry)
        if before is not entry and _comes_after(entry, before):
            runs[name] = entry
    found: dict[str, RecallEntry] = {}
    for entry in runs.values():
        before = found.setdefault(entry.recall_id, entry)
        if before is not entry and (_WEIGHT[entry.event], entry.at) >= (_WEIGHT[before.event], before.at):
            found[entry.recall_id] = entry
    return found


def status_of(entry: RecallEntry) -> LetterStatus:
    """The status of a letter by one entry of the ledger. The fields are unpacked by position, for speed: a
    recall makes two statuses for each letter.
    """
    run, event, _, _, position, at, lane, number, receipt, note, _, published, _ = entry
    return LetterStatus(run, event, position, lane, number, at, receipt, note, published)


def has_begun(entries: Iterable[RecallEntry], run: str) -> bool:
    """True if a run may have sent, or has discarded, anything. A message that the broker refused was not sent."""
    return any(entry.run == run and entry.event is not RecallEvent.REFUSED for entry in entries)


def _comes_after(entry: RecallEntry, before: RecallEntry) -> bool:
    """True if an entry replaces the earlier one of the same run and recall id."""
    if entry.event is before.event is RecallEvent.INTENT:
        return entry.at < before.at
    if entry.event is before.event:  # a line that says where is worth more than one that does not
        return (bool(entry.receipt), entry.at) >= (bool(before.receipt), before.at)
    return _RANK[entry.event] > _RANK[before.event]


def highest_booked(known: Mapping[str, LetterStatus], run: str) -> dict[str, int]:
    """Highest sequence number of a run that is certainly stored, by lane (full name of a partition). `known`: statuses
    by recall id.
    """
    highest: dict[str, int] = {}
    for one in known.values():
        if one.run == run and one.settled and one.lane:
            highest[one.lane] = max(highest.get(one.lane, 0), one.number)
    return highest
