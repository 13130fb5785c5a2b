"""History of the applies in a namespace, as text from its JSON form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.render.plan_text import change_lines
from kodoctl.render.plan_words import with_dangers
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, time_text
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.plan.history_document import ApplyRow

_STYLES = {"complete": "green", "incomplete": "yellow", "cut off": "bold red"}


def history_lines(applies: list[ApplyRow], namespace: str) -> Iterator[Line]:
    """Two lines for each apply, in the given order: id, time, result and number of changes; then user and commit."""
    if not applies:
        yield Line(f"Nothing was applied in {one_line(namespace)} yet.")
    for one in applies:
        yield from _head(one)


def _head(one: ApplyRow) -> Iterator[Line]:
    began = time_text(one["began"])
    counted = f"{len(one['done'])} of {many(one['changes'], 'change')} done"
    yield Line(f"{one['id']}  {began}  {one['verb']}: {one['state']}, {counted}", _STYLES[one["state"]])
    commit = f", commit {one['commit'][:12]}" if one["commit"] else ""
    yield Line(f"          by {one_line(one['who'])}{commit}", "dim", 10)


def apply_lines(one: ApplyRow) -> Iterator[Line]:
    """Lines of one apply with its changes, and with changes that failed or whose result is unknown."""
    yield from _head(one)
    yield Line()
    for change in one["done"]:
        yield from change_lines(with_dangers(change, []))
    if one["broken"]:
        yield Line()
        yield Line("Not done, or nobody knows (look at the object, or plan again):", "bold")
    for broken in one["broken"]:
        yield from change_lines(with_dangers(broken["change"], []))
        yield Line(f"      {one_line(broken['detail'])}", "red", 6)
