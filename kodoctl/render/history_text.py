"""History of a namespace, as text from its JSON form."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING

from kodoctl.render.plan_text import change_lines
from kodoctl.render.plan_words import with_dangers
from kodoctl.render.recall import recall_counts, recall_style
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, time_text
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import RecallRunRow
    from kodoctl.documents.replay_document import ReplayRow
    from kodoctl.plan.history_document import ApplyRow, HistoryDocument, OrderRow

_STYLES = {"complete": "green", "incomplete": "yellow", "cut off": "bold red"}


def history_lines(document: HistoryDocument) -> Iterator[Line]:
    """Two lines for each apply, replay, recall and live order, oldest first: id or kind, time and result; then the
    user, with a reason or commit if there is one. One line instead if there are none. At last a line for each text in
    `unknown`. Each list of the document must be in order of time.
    """
    records = merge(
        ((one["began"], apply_head(one)) for one in document["applies"]),
        ((one["began"], _replay(one)) for one in document.get("replays", ())),
        ((one["began"], _recall(one)) for one in document.get("recalls") or ()),
        ((one["at"], _order(one)) for one in document.get("orders", ())),
        key=itemgetter(0),
    )
    lines = [line for _, record in records for line in record]
    yield from lines or [Line(f"Nothing was done in {one_line(document['namespace'])} yet.")]
    yield from (Line(f"Not known: {one_line(one, 300)}", "yellow", 2) for one in document.get("unknown", ()))


def apply_head(one: ApplyRow) -> Iterator[Line]:
    """Two lines about an apply: id, time, verb, state and number of changes that were done; then user and commit."""
    began = time_text(one["began"])
    counted = f"{len(one['done'])} of {many(one['changes'], 'change')} done"
    yield Line(f"{one['id']}  {began}  {one['verb']}: {one['state']}, {counted}", _STYLES[one["state"]])
    commit = f", commit {one['commit'][:12]}" if one["commit"] else ""
    yield Line(f"          by {one_line(one['who'])}{commit}", "dim", 10)


def _replay(one: ReplayRow) -> Iterator[Line]:
    where = f"{one_line(one['topic'])} / {one_line(one['subscription'])}"
    head = f"{one['run']}  {time_text(one['began'])}  replay of {where}: {many(one['messages'], 'message')}, {one['state']}"
    yield Line(head, "green" if one["state"] == "complete" else "yellow", 10)
    yield _by(one["who"], one["because"])


def _recall(one: RecallRunRow) -> Iterator[Line]:
    head = f"{one_line(one['run'])}  {time_text(one['began'])}  messages of {one_line(one['source'])}: {recall_counts(one)}"
    yield Line(head, recall_style(one), 10)
    yield _by(one["who"])


def _order(one: OrderRow) -> Iterator[Line]:
    where = f"{one_line(one['topic'])} / {one_line(one['subscription'])}"
    what = "taken back: " if one["back"] else ""
    until = "" if one["back"] else f" until {time_text(one['until'])}"
    yield Line(f"order     {time_text(one['at'])}  {where}: {what}{one_line(one['order'])}{until}", hang=10)
    yield _by(one["who"], "" if one["back"] else one["why"])


def _by(who: str, why: str = "") -> Line:
    because = f": {one_line(why)}" if why else ""
    return Line(f"          by {one_line(who) or 'an unknown person'}{because}", "dim", 10)


def apply_lines(one: ApplyRow) -> Iterator[Line]:
    """Lines of one apply: the lines of `apply_head`, an empty one, the changes that were done, and, with the reason,
    changes that failed or whose result is unknown.
    """
    yield from apply_head(one)
    yield Line()
    for change in one["done"]:
        yield from change_lines(with_dangers(change, []))
    if one["broken"]:
        yield Line()
        yield Line("Not done, or nobody knows (look at the object, or plan again):", "bold")
    for broken in one["broken"]:
        yield from change_lines(with_dangers(broken["change"], []))
        yield Line(f"      {one_line(broken['detail'])}", "red", 6)
