"""The history of a namespace, which `kodoctl history` draws as text and writes as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import RecallRunRow
    from kodoctl.documents.replay_document import ReplayRow
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


class OrderRow(TypedDict):
    """A live order that was given or, if `back`, taken back before its end. `topic`: ground topic; `at`, `until`: ms
    since the epoch; `who`: "" if unknown; `order`: text about it.
    """

    topic: str
    subscription: str
    at: int
    who: str
    back: bool
    order: str
    until: int
    why: str


class HistoryDocument(TypedDict):
    """Applies, replays, recalls (releases, moves and discards included) and live orders, each oldest first. With --id
    it has the one apply alone. `recalls`: null if the recall ledger could not be read; `ledger`: its location;
    `unknown`: sentences about records that could not be read, or that are not kept.
    """

    namespace: str
    applies: list[ApplyRow]
    replays: NotRequired[list[ReplayRow]]
    recalls: NotRequired[list[RecallRunRow] | None]
    orders: NotRequired[list[OrderRow]]
    ledger: NotRequired[str]
    unknown: NotRequired[list[str]]
