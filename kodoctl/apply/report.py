"""Report of an apply as values: outcomes and events, for people, for programs and for the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kodoctl.plan.changes import Change, action_of

if TYPE_CHECKING:
    from kodoctl.topology.resources import Address


class ChangeStatus(StrEnum):
    """Status of a change after an apply: done; failed (all, a part or nothing of it may have been made); skipped (a
    change that it depends on was not done; in an apply of several clusters, a delete also if one of them did not
    complete its other changes); or not started (interrupted, the lease was lost, or its intent could not be written).
    """

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """Result of one change. `detail`: the reason of a status other than done; "" if the change is done."""

    change: Change
    status: ChangeStatus
    detail: str = ""

    @property
    def address(self) -> Address:
        """The address of the changed object."""
        return self.change.address

    @property
    def verb(self) -> str:
        """The change's verb, such as `create`."""
        return action_of(self.change).value


@dataclass(frozen=True, slots=True)
class ApplyEvent:
    """Event of an apply: a step of a change began (`kind` is `started`) or ended (`kind` is its status). `number`:
    steps that have ended; `total`: steps of the whole apply. The update of a namespace can have two steps. A step that
    is skipped, or not started at all, only ends. A step that ended as `done` ends again as `failed` if the cluster then
    does not show it; `number` does not grow with that.
    """

    kind: str
    change: Change
    number: int
    total: int
    detail: str = ""


Listen = Callable[[ApplyEvent], None]


class Listener:
    """Wrapper of a function that receives the events of an apply. If the function raises, it gets no further event, the
    apply continues, and `notes` has the reason.
    """

    def __init__(self, listen: Listen) -> None:
        self._listen: Listen | None = listen
        self.notes: tuple[str, ...] = ()

    def __call__(self, event: ApplyEvent) -> None:
        """Passes one event on. Never raises."""
        if self._listen is None:
            return
        try:
            self._listen(event)
        except Exception as problem:  # noqa: BLE001  # a view's defect, a terminal that is gone
            self._listen = None
            self.notes = (f"what was done was not shown to its end: {type(problem).__name__}: {problem}",)


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """Outcomes of all changes of an apply.

    Args:
        outcomes: one for each change, in the order of the plan.
        notes: problems that concern no single change, such as a ledger that was not written.
        writes: number of writing requests for the changes and the ledgers, redirects and retries included.
        seconds: duration of the changes and waits between them, without the wait for the lease.
        interrupted: a user stopped the apply, perhaps after its last change.
        id: name of the apply in the journal, for history and undo; "" if the plan was not carried out.
        journal: a namespace whose journal has the apply; "" if there is no journal.
    """

    outcomes: tuple[ChangeOutcome, ...]
    notes: tuple[str, ...] = ()
    writes: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    id: str = ""  # its name in the journal: for history and undo
    journal: str = ""

    def count(self, status: ChangeStatus) -> int:
        """Number of changes that ended with this status."""
        return sum(outcome.status is status for outcome in self.outcomes)

    @property
    def complete(self) -> bool:
        """True if every planned change was made."""
        return all(outcome.status is ChangeStatus.DONE for outcome in self.outcomes)
