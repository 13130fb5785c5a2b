"""The recall ledger as one attempt at a plan uses it: statuses of the letters of a segment, and new entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kodoctl.recall.ledger.recall_ledger import (
    LedgerSlice,
    LetterStatus,
    RecallEntry,
    RecallEvent,
    RecallLedger,
    highest_booked,
    latest_status,
)

if TYPE_CHECKING:
    from kodoctl.recall.plan.letter_table import PlanSegment
    from kodoctl.recall.plan.recall_plan import PlannedLetter, RecallPlan


class PlanLedger:
    """View of the recall ledger for one attempt at a plan. Only for one thread.

    `statuses`: by recall id, of any run, from the last `read` or `select`, and from the entries that this object
    appended since, each of which replaces the status of its letter; `begins`: by lane (full name of a partition), the
    ends of the lane (`ledger:entry`) at which attempts at this plan began to send letters of the segment.
    """

    def __init__(self, ledger: RecallLedger, plan: RecallPlan, booked: Mapping[str, int] | None = None) -> None:
        """`booked`: by lane, the highest number that was certainly stored when the attempt began; None: these numbers
        are read from the ledger.
        """
        self._ledger, self._plan, self._booked = ledger, plan, booked
        self._among: LedgerSlice | None = None
        self.statuses: dict[str, LetterStatus] = {}
        self.begins: dict[str, set[str]] = defaultdict(set)

    def select(self, segment: PlanSegment) -> None:
        """Restricts the statuses to the letters of `segment` from now on, also `unsent` ones and the letters of which
        they are copies, and reads these from the ledger. Forgets `statuses` and `begins` of an earlier segment, so that
        memory holds one segment. Raises KodoctlError.
        """
        times = [one.published for one in segment.letters]
        ids = {one.recall_id for one in segment.letters}
        for further in segment.unsent:
            times.append(further.letter.published)
            ids.add(self._plan.recall_id_of(further.letter))
            if further.first is not None:
                times.append(further.first.published)
                ids.add(further.first.recall_id)
        self._among = LedgerSlice(frozenset(ids), min(times, default=0), max(times, default=0))
        self.begins.clear()
        self.read()

    def read(self) -> None:
        """Reads all ledger entries of the selected letters again, because other processes append entries too: replaces
        `statuses`, and adds to `begins`. Before the first `select`, reads the entries of every letter of the source.
        Raises KodoctlError.
        """
        entries = self._ledger.entries(self._plan.ledger_key, self._among)
        self.statuses = latest_status(entries)
        self._note_begins(entries)

    def highest_booked(self) -> dict[str, int]:
        """Highest sequence number of the plan that is certainly stored, by lane (full name of a partition). Lanes
        without one are absent. Of the present segment it counts `statuses`, of all others the state before the first
        call of this method (or `booked` of the constructor). Raises KodoctlError, which only the first call can.
        """
        if self._booked is None:
            self._booked = self._ledger.highest_numbers(self._plan.ledger_key, self._plan.run)
        found = highest_booked(self.statuses, self._plan.run)
        return {lane: max(found.get(lane, 0), self._booked.get(lane, 0)) for lane in {**found, **self._booked}}

    def append(self, entries: Sequence[RecallEntry]) -> None:
        """Stores all entries or none, and returns once they are stored; `statuses` and `begins` then include them.
        Raises KodoctlError: the entries may be stored then, and `statuses` does not include them.
        """
        self._ledger.append(entries)
        self.statuses |= latest_status(entries)
        self._note_begins(entries)

    def settled(self, letter: PlannedLetter) -> bool:
        """True if, by `statuses`, any run certainly sent or discarded the letter; its acknowledgement may still be
        missing. Reads nothing: False also for a letter whose entries were neither read nor appended.
        """
        status = self.statuses.get(letter.recall_id)
        return status is not None and status.settled

    def _note_begins(self, entries: Sequence[RecallEntry]) -> None:
        for one in entries:
            if one.event is RecallEvent.INTENT and one.note and one.run == self._plan.run:
                self.begins[one.lane].add(one.note)
