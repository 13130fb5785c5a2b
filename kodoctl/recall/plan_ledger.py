"""Recall ledger as an attempt at one plan uses it: the status of each dead letter, and the entries of the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kodoctl.recall.recall_ledger import LetterStatus, RecallEntry, RecallLedger, latest_status

if TYPE_CHECKING:
    from kodoctl.recall.recall_plan import PlannedLetter


class PlanLedger:
    """Statuses by recall id, as of the last `read` and of what this object appended since. Not for several threads."""

    def __init__(self, ledger: RecallLedger, dead_topic: str) -> None:
        self._ledger, self._dead_topic = ledger, dead_topic
        self.statuses: dict[str, LetterStatus] = {}

    def read(self) -> None:
        """Reads every entry about the dead-letter topic again, because other processes append entries too."""
        self.statuses = latest_status(self._ledger.entries(self._dead_topic))

    def append(self, entries: Sequence[RecallEntry]) -> None:
        """All of them or none; they are stored when this returns."""
        self._ledger.append(entries)
        self.statuses |= latest_status(entries)

    def settled(self, letter: PlannedLetter) -> bool:
        """True if any run sent or discarded the dead letter for certain."""
        status = self.statuses.get(letter.recall_id)
        return status is not None and status.settled
