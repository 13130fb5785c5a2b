"""Trouble with a database that a thread uses again and again: the reason in words, and the pause before the next try."""

from __future__ import annotations

from typing import Final

from kodo_consumer.core.values.infrastructure_faults import FaultKind, fault_of, words

_MOST_PAUSE: Final = 30.0  # seconds between two tries
_MOST_DOUBLED: Final = 16
_WHAT: Final = {
    None: "the database refuses a statement",
    FaultKind.LACKING: "the database lacks a table or a right",
    FaultKind.AWAY: "the database does not answer",
    FaultKind.BUSY: "the database is busy",
}


class DatabaseTrouble:
    """Failures of a database since it worked last. One thread calls the methods. `text`: the reason of the last
    failure, for people; "": none came since the last call of `works`.
    """

    def __init__(self) -> None:
        self.text = ""
        self._failures = 0

    def on_failure(self, problem: Exception) -> float:
        """Records an error of the database. Returns the seconds until the next try: 0.5 after the first failure since
        `works`, doubled with each that follows, 30 at most. Does not wait.
        """
        fault = fault_of(problem)
        self.text = f"{_WHAT[fault.kind if fault else None]}: {words(problem)}"
        self._failures += 1
        return min(_MOST_PAUSE, 2.0 ** min(self._failures - 2, _MOST_DOUBLED))

    def works(self) -> bool:
        """Records that the database works, and clears the failures. Returns True if at least one failure came since the
        last call.
        """
        failed, self._failures, self.text = self._failures > 0, 0, ""
        return failed
