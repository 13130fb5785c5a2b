"""History of a topology's namespace, and drift, as values for the pages: lines as the commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kodoctl.render.drift_text import drift_lines
from kodoctl.render.history_text import apply_head, apply_lines
from kodoctl.text.formatting import many
from kodoctl.ui.first_screen import DriftNews, StoppedApply

if TYPE_CHECKING:
    from kodoctl.plan.history_document import ApplyRow, HistoryDocument
    from kodoctl.plan.plan_document import DriftDocument
    from kodoctl.text.line import Line


@dataclass(frozen=True, slots=True)
class NamespaceHistory:
    """History of a namespace. `document`: that of `kodoctl history`; `command`: command line that prints it; `holder`:
    who holds the lease now, "" for nobody.
    """

    document: HistoryDocument
    command: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class DriftReading:
    """Drift of all topologies of the command, read at `at` (ms since the epoch). `target`: text that says how the
    cluster was reached.
    """

    at: int
    document: DriftDocument
    target: str

    @property
    def lines(self) -> list[Line]:
        """The text of `kodoctl drift`, whose last line is the verdict."""
        return list(drift_lines(self.document, self.target))

    def news(self) -> DriftNews:
        """The verdict as a value for the first screen."""
        return DriftNews(self.at, self.lines[-1].text, self.document["drifted"] or self.document["refused"])


class PlanLookup(Protocol):
    """Reads plans and history for the pages. Methods block, and raise KodoctlError."""

    def history(self, topology: str) -> NamespaceHistory:
        """Reads the history of a topology's namespace, and who holds its lease now. Raises KodoctlError, also for an
        unknown topology.
        """

    def read_drift(self) -> DriftReading:
        """Compares the files, as they are now, with the cluster, keeps the result for `last_drift`, and returns it.
        Blocks for as long as a plan takes, and raises KodoctlError.
        """

    def last_drift(self) -> DriftReading | None:
        """Result of the last `read_drift` that did not fail; None if there was none. Reads nothing."""


def stopped_apply(topology: str, namespace: str, applies: Sequence[ApplyRow], holder: str) -> StoppedApply | None:
    """The last of the applies of a namespace, oldest first, if it did not complete and nobody holds the lease; else
    None. `holder`: who holds the lease now, "" for nobody.
    """
    last = applies[-1] if applies else None
    if last is None or last["state"] == "complete" or holder:
        return None
    done = f"{len(last['done'])} of {many(last['changes'], 'change')} done"
    text = f"{last['verb']} {last['id']} is {last['state']}: {done}"
    return StoppedApply(topology, namespace, text, undo=last["verb"] == "undo")


def apply_views(applies: Sequence[ApplyRow]) -> list[tuple[list[Line], list[Line]]]:
    """(summary, the other lines, with its changes) of each apply as `kodoctl history` prints them, the newest first.
    `applies`: oldest first.
    """
    heads = [list(apply_head(one)) for one in applies]
    wholes = [list(apply_lines(one)) for one in applies]
    return [(head, whole[len(head) + 1 :]) for head, whole in zip(heads, wholes, strict=True)][::-1]
