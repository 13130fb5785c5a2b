"""Trouble of a relay with its database: why it cannot work with it, and when it tries again."""

from __future__ import annotations

from typing import Final

from kodo_consumer.core.values.infrastructure_faults import FaultKind, fault_of, words

_MOST_PAUSE: Final = 30.0  # seconds between two tries
_MOST_DOUBLED: Final = 16
_WHAT: Final = {
    None: "the database refuses what the relay asks",
    FaultKind.LACKING: "the database lacks what the relay needs",
    FaultKind.AWAY: "the database does not answer",
    FaultKind.BUSY: "the database is busy",
}


class DatabaseTrouble:
    """`text`: what is wrong now, for people; empty: nothing."""

    def __init__(self) -> None:
        self.text = ""
        self._failures = 0

    def failed(self, problem: Exception) -> float:
        """The database raised this. Answers the seconds until the next try."""
        fault = fault_of(problem)
        self.text = f"{_WHAT[fault.kind if fault else None]}: {words(problem)}"
        self._failures += 1
        return min(_MOST_PAUSE, 2.0 ** min(self._failures - 2, _MOST_DOUBLED))

    def works(self) -> bool:
        """Records that the database works. True if the database did not work until now."""
        failed, self._failures, self.text = self._failures > 0, 0, ""
        return failed
