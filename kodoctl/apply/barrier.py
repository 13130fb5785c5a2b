"""Barrier between the applies of several clusters: they wait for each other before the first change, and before the
first delete.

Creates and updates run in all clusters first, deletes in all clusters last. Waits block the calling thread, without a
timeout. A cluster that refuses before its first change stops all applies; one that cannot be reached, or does not
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
        """Reports that this apply is ready to carry out its plan, and blocks until each other apply is ready, too, or
        has ended. Then raises RefusedError (K549) if one of them ended, without being ready before, because of a
        refusal, a lease that another process has or took, or an unexpected error.
        """

    def report_built(self, *, done: bool) -> None:
        """Reports that this apply has ended all its changes but the deletes. `done`: all of these changes succeeded."""

    def wait_to_delete(self) -> str:
        """Blocks until every apply, this one included, has called `report_built` or has ended. Returns the reason why
        no apply may delete (at least one did not complete all its other changes); "" if deletes may begin.
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
    all others before it carries out its plan, and before its first delete. It waits without a limit, so that the
    `participant` of each of the names has to report or leave, also for a cluster that is not applied.
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
        wait. `stage`: `begin` (ready to carry out its plan) or `delete` (all changes but deletes have ended); `well`:
        False if no apply may go on after the stage because of this one. Only the first record of a stage and cluster
        counts.
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
        """Reports that this apply is ready to carry out its plan, and blocks until each other apply is ready, too, or
        has ended. Then raises RefusedError (K549) if one of them ended, without being ready before, because of a
        refusal, a lease that another process has or took, or an unexpected error.
        """
        self._barrier.arrive(_BEGIN, self._name, well=True)
        if refusing := self._barrier.wait(_BEGIN):
            written = "nothing but Pulsar tenants and kodoctl's own records was written to any cluster"
            detail = f"{', '.join(refusing)} did; {written}"
            raise RefusedError(error("K549", "another cluster of the plan refused", detail))

    def report_built(self, *, done: bool) -> None:
        """Reports that this apply has ended all its changes but the deletes. `done`: all of these changes succeeded."""
        self._barrier.arrive(_DELETE, self._name, well=done)

    def wait_to_delete(self) -> str:
        """Blocks until every apply, this one included, has called `report_built` or has ended. Returns the reason why
        no apply may delete (at least one did not complete all its other changes); "" if deletes may begin.
        """
        behind = self._barrier.wait(_DELETE)
        return f"deletes come last: {', '.join(behind)} did not do all that comes before" if behind else ""

    def leave(self, *, refusing: bool) -> None:
        """Reports the end of this apply, so that no other apply waits for it. `refusing`: unless this apply reported
        before that it is ready, no other apply may begin. Without a call of `report_built` before, no apply may delete.
        """
        self._barrier.arrive(_BEGIN, self._name, well=not refusing)
        self._barrier.arrive(_DELETE, self._name, well=False)
