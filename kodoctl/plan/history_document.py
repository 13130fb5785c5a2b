"""The history of a namespace, which `kodoctl history` draws as text and writes as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import RecallRunRow
    from kodoctl.documents.replay_document import ReplayRow
    from kodoctl.plan.change_document import ChangeRow


class BrokenChange(TypedDict):
    """A change of which a write failed, or has an unknown outcome; `detail`: why. It may have been made, or a part."""

    change: ChangeRow
    detail: str


class ApplyRow(TypedDict):
    """An apply. `began`, `ended`: ms since the epoch, `ended` null if it was cut off or still runs; `plan`: first
    digits of the digest of its files, "" without files; `state`: `complete`, `incomplete` or `cut off`; `changes`:
    their number in the plan.
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
    """A live order that was given or, if `back`, taken back before its end. `topic`: ground topic; `at`: when, and
    `who`: by whom ("" if unknown) it was given or taken back; `order`: text about it. `until`: end that it was given,
    and `why`: reason for which it was given ("" if none), both also if `back`. Times are ms since the epoch.
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
    it has the namespace and the one apply alone. `recalls`: null if the recall ledger could not be read, or is not
    there; `ledger`: its location; `unknown`: sentences about records that could not be read, or that are not kept.
    """

    namespace: str
    applies: list[ApplyRow]
    replays: NotRequired[list[ReplayRow]]
    recalls: NotRequired[list[RecallRunRow] | None]
    orders: NotRequired[list[OrderRow]]
    ledger: NotRequired[str]
    unknown: NotRequired[list[str]]
