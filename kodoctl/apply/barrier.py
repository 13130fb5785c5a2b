"""Two-phase barrier between the applies of several clusters: before the first write, and before the first delete.

Creates and updates run everywhere first, deletes everywhere last. Waits block the calling thread, without a timeout.
A cluster that refuses stops all of them, before they begin; one that cannot be reached, or does not complete
everything before the deletes, stops only the deletes.
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

    def may_begin(self) -> None:
        """Returns once all are ready to write. Raises RefusedError when one of them refused."""

    def built(self, *, done: bool) -> None:
        """All that comes before deletes is over here; whether it was `done`."""

    def why_not_delete(self) -> str:
        """Waits for all to be so far; "" if deletes may begin."""


class NoBarrier:
    """An apply of one cluster waits for nobody."""

    def may_begin(self) -> None:
        """At once."""

    def built(self, *, done: bool) -> None:
        """Nobody asks."""

    def why_not_delete(self) -> str:
        """Nothing is in the way."""
        return ""


ALONE: Final[BarrierParty] = NoBarrier()


class ClusterBarrier:
    """The places where applies of these clusters, by name, wait for each other."""

    def __init__(self, names: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._missing = {stage: set(names) for stage in (_BEGIN, _DELETE)}
        self._against: dict[str, list[str]] = {_BEGIN: [], _DELETE: []}

    def seat(self, name: str) -> Participant:
        """The place of one cluster."""
        return Participant(self, name)

    def arrive(self, stage: str, name: str, *, well: bool) -> None:
        """A cluster has got so far, well or not; only the first word counts."""
        with self._changed:
            if name in self._missing[stage]:
                self._missing[stage].discard(name)
                if not well:
                    self._against[stage].append(name)
                self._changed.notify_all()

    def wait(self, stage: str) -> list[str]:
        """Until all have got so far: those that did not do well."""
        with self._changed:
            self._changed.wait_for(lambda: not self._missing[stage])
            return sorted(self._against[stage])


class Participant:
    """One cluster's place in a meeting."""

    def __init__(self, meeting: ClusterBarrier, name: str) -> None:
        self._meeting, self._name = meeting, name

    def may_begin(self) -> None:
        """As Seat says."""
        self._meeting.arrive(_BEGIN, self._name, well=True)
        if refusing := self._meeting.wait(_BEGIN):
            detail = f"{', '.join(refusing)} did; nothing was written to any cluster"
            raise RefusedError(error("K549", "another cluster of the plan refused", detail))

    def built(self, *, done: bool) -> None:
        """As Seat says."""
        self._meeting.arrive(_DELETE, self._name, well=done)

    def why_not_delete(self) -> str:
        """As Seat says."""
        behind = self._meeting.wait(_DELETE)
        return f"deletes come last: {', '.join(behind)} did not do all that comes before" if behind else ""

    def leave(self, *, refusing: bool) -> None:
        """This apply is over: nobody waits for it any more. After a complete one this says nothing new."""
        self._meeting.arrive(_BEGIN, self._name, well=not refusing)
        self._meeting.arrive(_DELETE, self._name, well=False)
