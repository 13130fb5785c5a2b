"""The applies of a namespace that `kodoctl history` draws as text and writes as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow


class BrokenChange(TypedDict):
    """A change that was not done, or whose outcome is not known; `detail`: why."""

    change: ChangeRow
    detail: str


class ApplyRow(TypedDict):
    """An apply. `began`, `ended`: ms since the epoch, `ended` null if it was cut off; `plan`: the digest of its plan;
    `state`: `complete`, `incomplete` or `cut off`; `changes`: their number in the plan.
    """

    id: str
    verb: str
    who: str
    began: int
    ended: int | None
    commit: str | None
    plan: str
    state: str
    changes: int
    done: list[ChangeRow]
    broken: list[BrokenChange]


class HistoryDocument(TypedDict):
    """Applies, oldest first."""

    namespace: str
    applies: list[ApplyRow]
