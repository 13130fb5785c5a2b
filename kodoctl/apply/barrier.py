"""Barrier between the applies of several clusters: they wait for each other before the first write, and before the
first delete.

Creates and updates run in all clusters first, deletes in all clusters last. Waits block the calling thread, without a
timeout. A cluster that refuses before its first write stops all applies; one that cannot be reached, or does not
complete its creates and updates, stops only the deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, Protocol

from kodoctl.errors import RefusedError, error

_BEGIN: Final = "begin"
_DELETE: Final = "delete"


class BarrierParty(Protocol):
    """Interface of the barrier for one apply: the apply reports its progress to the other applies, and waits for
    theirs.
    """

    def wait_to_begin(self) -> None:
        """Reports that this apply is ready to write, and blocks until each other apply is ready, too, or has ended.
        Then raises RefusedError (K549) if one of them ended before its first write because of a refusal, a lease that
        another process has, or an unexpected error.
        """

    def report_built(self, *, done: bool) -> None:
        """Reports that this apply has ended its creates and updates. `done`: all of them succeeded."""

    def wait_to_delete(self) -> str:
        """Blocks until every apply, this one included, has reported its creates and updates (`report_built`) or has
        ended. Returns the reason why no apply may delete (one did not complete them); "" if deletes may begin.
        """


class NoBarrier:
    """BarrierParty of an apply that has no other applies to wait for: no method blocks or raises."""

    def wait_to_begin(self) -> None:
        """Returns at once."""

    def report_built(self, *, done: bool) -> None:
        """Does nothing."""

    def wait_to_delete(self) -> str:
        """Returns "" at once: deletes may begin."""
        return ""


ALONE: Final[BarrierParty] = NoBarrier()


class ClusterBarrier:
    """Barrier for the applies of the clusters `names`, each of which runs in a thread of its own. An apply waits for
    all others before its first write and before its first delete.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._missing = {stage: set(names) for stage in (_BEGIN, _DELETE)}
        self._against: dict[str, list[str]] = {_BEGIN: [], _DELETE: []}

    def participant(self, name: str) -> Participant:
        """Returns the BarrierParty for the apply of the cluster `name`."""
        return Participant(self, name)

    def arrive(self, stage: str, name: str, *, well: bool) -> None:
        """Records that the apply of the cluster `name` reached a stage, or ended before it, and wakes the applies that
        wait. `stage`: `begin` (ready to write) or `delete` (creates and updates have ended); `well`: False if no apply
        may go on after the stage because of this one. A second record of the same stage and cluster is ignored.
        """
        with self._changed:
            if name in self._missing[stage]:
                self._missing[stage].discard(name)
                if not well:
                    self._against[stage].append(name)
                self._changed.notify_all()

    def wait(self, stage: str) -> list[str]:
        """Blocks until the applies of all clusters have reached a stage or ended before it (`arrive`). Returns the
        names of the clusters that were recorded with `well` False, sorted.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._missing[stage])
            return sorted(self._against[stage])


class Participant:
    """BarrierParty of the apply of one cluster of several."""

    def __init__(self, barrier: ClusterBarrier, name: str) -> None:
        self._barrier, self._name = barrier, name

    def wait_to_begin(self) -> None:
        """Reports that this apply is ready to write, and blocks until each other apply is ready, too, or has ended.
        Then raises RefusedError (K549) if one of them ended before its first write because of a refusal, a lease that
        another process has, or an unexpected error.
        """
        self._barrier.arrive(_BEGIN, self._name, well=True)
        if refusing := self._barrier.wait(_BEGIN):
            detail = f"{', '.join(refusing)} did; nothing was written to any cluster"
            raise RefusedError(error("K549", "another cluster of the plan refused", detail))

    def report_built(self, *, done: bool) -> None:
        """Reports that this apply has ended its creates and updates. `done`: all of them succeeded."""
        self._barrier.arrive(_DELETE, self._name, well=done)

    def wait_to_delete(self) -> str:
        """Blocks until every apply, this one included, has reported its creates and updates (`report_built`) or has
        ended. Returns the reason why no apply may delete (one did not complete them); "" if deletes may begin.
        """
        behind = self._barrier.wait(_DELETE)
        return f"deletes come last: {', '.join(behind)} did not do all that comes before" if behind else ""

    def leave(self, *, refusing: bool) -> None:
        """Reports the end of this apply, so that no other apply waits for it. `refusing`: it ended before its first
        write because of a refusal, a lease that another has, or an unexpected error, so that no other apply may begin.
        Without `report_built` before it, no apply may delete. Has no effect on a stage that was reported before.
        """
        self._barrier.arrive(_BEGIN, self._name, well=not refusing)
        self._barrier.arrive(_DELETE, self._name, well=False)
