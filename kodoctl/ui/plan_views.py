"""History of a topology's namespace, and drift, as values for the pages: lines as the commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kodoctl.render.drift_text import drift_lines
from kodoctl.render.history_text import apply_lines, history_lines
from kodoctl.text.formatting import many
from kodoctl.ui.first_screen import DriftNews, StoppedApply

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import RecallRunRow
    from kodoctl.documents.replay_document import ReplayRow
    from kodoctl.plan.history_document import ApplyRow
    from kodoctl.plan.plan_document import DriftDocument
    from kodoctl.text.line import Line


@dataclass(frozen=True, slots=True)
class NamespaceHistory:
    """History of a namespace. `applies`: oldest first; `replays` and `recalls` likewise; `orders`: (ground topic /
    subscription, text) of the last changes of live orders; `foreign`: reasons of entries that kodoctl did not write;
    `holder`: who holds the lease now, "" for nobody; `unread`: reason why the recall ledger cannot be read, "" if it
    was; `recall_list`: command line that shows it; `ledger`: its location.
    """

    namespace: str
    applies: Sequence[ApplyRow]
    replays: Sequence[ReplayRow]
    orders: Sequence[tuple[str, str]]
    foreign: Sequence[str]
    holder: str
    recalls: Sequence[RecallRunRow] = ()
    unread: str = ""
    recall_list: str = ""
    ledger: str = ""


@dataclass(frozen=True, slots=True)
class DriftReading:
    """Drift of all topologies of the command, read at `at` (ms since the epoch)."""

    at: int
    document: DriftDocument
    target: str

    @property
    def lines(self) -> list[Line]:
        """The text of `kodoctl drift`."""
        return list(drift_lines(self.document, self.target))

    def news(self) -> DriftNews:
        """The verdict, for the first screen."""
        return DriftNews(self.at, self.lines[-1].text, self.document["drifted"] or self.document["refused"])


class PlanLookup(Protocol):
    """Reads plans and history for the pages. Methods block, and raise KodoctlError."""

    def history(self, topology: str) -> NamespaceHistory:
        """Reads the journal of a topology's namespace, and its live orders."""

    def read_drift(self) -> DriftReading:
        """Compares the files with the cluster."""

    def last_drift(self) -> DriftReading | None:
        """The drift that was read last, None for none."""


def stopped_apply(topology: str, history: NamespaceHistory) -> StoppedApply | None:
    """The last apply of a namespace if it did not complete and nobody holds the lease; else None."""
    last = history.applies[-1] if history.applies else None
    if last is None or last["state"] == "complete" or history.holder:
        return None
    done = f"{len(last['done'])} of {many(last['changes'], 'change')} done"
    text = f"{last['verb']} {last['id']} is {last['state']}: {done}"
    return StoppedApply(topology, history.namespace, text, undo=last["verb"] == "undo")


def apply_views(history: NamespaceHistory) -> list[tuple[list[Line], list[Line]]]:
    """(summary, text with its changes) of each apply as `kodoctl history` prints them, the newest first."""
    heads = [list(history_lines([one], history.namespace)) for one in history.applies]
    wholes = [list(apply_lines(one)) for one in history.applies]
    return [(head, whole[len(head) + 1 :]) for head, whole in zip(heads, wholes, strict=True)][::-1]
