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
    """Events of a letter in one run; of several the later in this order counts. `INTENT`: it is about to be sent;
    `REFUSED`: it is certainly not stored in its lane, and the run does not send it again; `UNCLEAR`: it is unknown if
    it is stored there, and the run does not send it again; `SENT`: it, or the letter of which it is a copy, is
    certainly stored there; `DISCARDED`: it is to be acknowledged and not sent.
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
    """Entry of the recall ledger about one letter: a dead, waiting or lost message. Only the record of a cluster
    (kodoctl.recall.ledger.ledger_clusters) is about none: its `recall_id` is the cluster's UUID, and its `run` "".

    Args:
        run: id of the run of the plan.
        event: step that the letter came to.
        recall_id: `kodoctl.recall.plan.recall_plan.recall_id` of the letter.
        dead_topic: the `ledger_key` of the source, mostly a topic's name.
        position: position of the letter in its source, `ledger:entry:partition:batch`.
        at: ms since the epoch.
        lane: full name of the target partition (of a copy, that of the letter that was sent instead); "" for a discard,
            and for a letter that is only acknowledged because a later dead letter shows that a recall sent it.
        number: the sequence number in that lane of the letter that was sent; 0 if `lane` is "".
        receipt: of SENT, `ledger:entry` where the sent letter is stored, "" if that is not known; "" for other events.
        note: of an intent, the end of the lane when the attempt began, `ledger:entry`; else a text for people.
        who: the user of the attempt, as text; "" if a recovery decided about a doubt.
        published: publish time of the letter in its source, ms since the epoch; 0: not known.
        payload: the original payload, in the intent of a letter whose payload the plan edits; else None, and None in
            entries that a ledger returns.
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
    """State of one recall id according to the recall ledger. The fields are those of the RecallEntry that counts: see
    `latest_status`.
    """

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
        """True if the event is SENT or DISCARDED, so that the letter must not be sent again. It may not be acknowledged
        yet.
        """
        return self.event in SETTLED


class LedgerSlice(NamedTuple):
    """Selection of letters by their recall ids. `since`, `until`: the earliest and the latest publish time of these
    letters, ms since the epoch, so that a table opens few files; entries with another time may be left out.
    """

    recall_ids: frozenset[str]
    since: int
    until: int


class RecallLedger(Protocol):
    """Port to the store of recall entries."""

    def append(self, entries: Sequence[RecallEntry]) -> None:
        """Stores all entries or none, and returns once they are stored. After a KodoctlError they may be stored."""

    def entries(self, dead_topic: str, among: LedgerSlice | None = None) -> list[RecallEntry]:
        """Every entry, of any run, about one source (`dead_topic`: its `ledger_key`), or about its letters `among`, in
        any order, with None for payloads. Raises KodoctlError.
        """

    def highest_numbers(self, dead_topic: str, run: str) -> dict[str, int]:
        """Returns the highest sequence number of a run that is certainly stored, by lane (full name of a partition). A
        lane is absent if no number of the run is certainly stored there. `dead_topic`: the `ledger_key` of the source.
        Raises KodoctlError.
        """


def latest_status(entries: Iterable[RecallEntry]) -> dict[str, LetterStatus]:
    """The status of each recall id, from the one of its entries that counts. In one run that is the entry with the
    furthest event, in the order of RecallEvent; of several intents the earliest, because a recovery reads the lane from
    the end that it has as its note; of other equal events the latest, but one with a receipt before one without. Of
    several runs the one that came furthest counts, where a refusal is less than an intent, and of equal ones the later.
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
    """True if a run may have sent, or has discarded, a letter: if one of its letters came to another event than
    REFUSED.
    """
    statuses = latest_status(entry for entry in entries if entry.run == run)
    return any(one.event is not RecallEvent.REFUSED for one in statuses.values())


def _comes_after(entry: RecallEntry, before: RecallEntry) -> bool:
    """True if an entry replaces the earlier one of the same run and recall id."""
    if entry.event is before.event is RecallEvent.INTENT:
        return entry.at < before.at
    if entry.event is before.event:  # a line that says where is worth more than one that does not
        return (bool(entry.receipt), entry.at) >= (bool(before.receipt), before.at)
    return _RANK[entry.event] > _RANK[before.event]


def highest_booked(known: Mapping[str, LetterStatus], run: str) -> dict[str, int]:
    """Highest sequence number of a run that is certainly stored according to `known`, by lane (full name of a
    partition); lanes without one are absent. `known`: statuses by recall id; those of other runs are ignored.
    """
    highest: dict[str, int] = {}
    for one in known.values():
        if one.run == run and one.settled and one.lane:
            highest[one.lane] = max(highest.get(one.lane, 0), one.number)
    return highest
