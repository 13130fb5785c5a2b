"""Two-phase barrier between the applies of several clusters: before the first write, and before the first delete.

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
    """Interface of one apply to the barrier: its reports to the other applies, and its waits for them."""

    def wait_to_begin(self) -> None:
        """Blocks until all applies are ready to write. Raises RefusedError (K549) if one of them refused."""

    def report_built(self, *, done: bool) -> None:
        """Reports that this apply has ended its changes before the deletes. `done`: all of them succeeded."""

    def wait_to_delete(self) -> str:
        """Blocks until all applies have reported. Returns the reason for which deletes may not begin; "" if they may."""


class NoBarrier:
    """Party of an apply of one cluster: no other apply to wait for."""

    def wait_to_begin(self) -> None:
        """Returns at once."""

    def report_built(self, *, done: bool) -> None:
        """Does nothing."""

    def wait_to_delete(self) -> str:
        """Returns "" at once: deletes may begin."""
        return ""


ALONE: Final[BarrierParty] = NoBarrier()


class ClusterBarrier:
    """Barrier of the applies of the clusters `names`. Each apply uses it in a thread of its own."""

    def __init__(self, names: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._missing = {stage: set(names) for stage in (_BEGIN, _DELETE)}
        self._against: dict[str, list[str]] = {_BEGIN: [], _DELETE: []}

    def participant(self, name: str) -> Participant:
        """Returns the party of the apply of one cluster."""
        return Participant(self, name)

    def arrive(self, stage: str, name: str, *, well: bool) -> None:
        """Records that a cluster reached a stage; only its first record counts. `well`: it succeeded."""
        with self._changed:
            if name in self._missing[stage]:
                self._missing[stage].discard(name)
                if not well:
                    self._against[stage].append(name)
                self._changed.notify_all()

    def wait(self, stage: str) -> list[str]:
        """Blocks until all clusters reached a stage. Returns those that did not succeed, sorted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._missing[stage])
            return sorted(self._against[stage])


class Participant:
    """Party of the apply of one cluster at a barrier."""

    def __init__(self, barrier: ClusterBarrier, name: str) -> None:
        self._barrier, self._name = barrier, name

    def wait_to_begin(self) -> None:
        """Blocks until all applies are ready to write. Raises RefusedError (K549) if one of them refused."""
        self._barrier.arrive(_BEGIN, self._name, well=True)
        if refusing := self._barrier.wait(_BEGIN):
            detail = f"{', '.join(refusing)} did; nothing was written to any cluster"
            raise RefusedError(error("K549", "another cluster of the plan refused", detail))

    def report_built(self, *, done: bool) -> None:
        """Reports that this apply has ended its changes before the deletes. `done`: all of them succeeded."""
        self._barrier.arrive(_DELETE, self._name, well=done)

    def wait_to_delete(self) -> str:
        """Blocks until all applies have reported. Returns the reason for which deletes may not begin; "" if they may."""
        behind = self._barrier.wait(_DELETE)
        return f"deletes come last: {', '.join(behind)} did not do all that comes before" if behind else ""

    def leave(self, *, refusing: bool) -> None:
        """Reports the end of this apply, so that no other apply waits for it. `refusing`: it refused before its first
        write. Without effect after a complete apply.
        """
        self._barrier.arrive(_BEGIN, self._name, well=not refusing)
        self._barrier.arrive(_DELETE, self._name, well=False)
