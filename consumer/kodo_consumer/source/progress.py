# pure: every branch is tested
"""Progress of a source: the position up to which every message is stored, which the next mark says."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that is not confirmed yet. `end`: position after its commit, None: it has not come whole; `out`:
    number of its messages without a receipt; `time`: of its commit, in ms since the epoch.
    """

    time: int = 0
    out: int = 0
    end: int | None = None


class Progress:
    """Transactions in the order of their commits. `confirmed`: everything up to this position is stored."""

    def __init__(self) -> None:
        self.confirmed = 0
        self._open: deque[OpenTransaction] = deque()

    def begin(self, time: int) -> OpenTransaction:
        """Adds a transaction, whose messages follow. `time`: of its commit, in ms since the epoch."""
        transaction = OpenTransaction(time)
        self._open.append(transaction)
        return transaction

    def advance(self, server_end: int) -> int:
        """Returns the position up to which all is stored (0: none is known yet), and drops the transactions before it.
        `server_end`: position up to which the server has sent everything, and the caller has read it; 0: not known.
        """
        while self._open and self._open[0].end is not None and not self._open[0].out:
            self.confirmed = self._open.popleft().end or 0
        if not self._open:
            self.confirmed = max(self.confirmed, server_end)
        return self.confirmed
