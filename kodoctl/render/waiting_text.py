"""Waiting messages as text, from the JSON form, with tables of at most 80 columns: lanes, then groups; and the result
of their release: for each lane the released messages, and those that stay, by reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.text.escaping import one_line, printable
from kodoctl.text.formatting import age_text, many
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.documents.waiting_document import (
        LaneReleaseRow,
        WaitingGroupRow,
        WaitingLaneRow,
        WaitingListDocument,
        WaitingReleaseDocument,
    )

_WIDTH: Final = 80
_GAP: Final = "  "
_NARROWEST: Final = 8  # columns of a text
_WHY: Final = {
    "other": "do not meet the condition",
    "due": "are due already: workers get them as soon as they read the lane",
    "unfinished": "belong to another plan that is not finished: run its `waiting apply` again",
    "part_of_a_batch": "are in a batch of which not every message is chosen",
    "already": "were sent before",
    "repeat": "are copies of a released message, acknowledged with it",
    "beyond": "are more than one plan takes: run the same command again",
}


def waiting_lines(document: WaitingListDocument, target: str, most: int) -> Iterator[Line]:
    """Lines of two tables for each subscription: its lanes, and its groups, if it has some, of which the first `most`
    are shown and the others counted. `target`: text that says how the cluster was reached.
    """
    yield Line(target, "bold")
    lanes: dict[tuple[str, str], list[WaitingLaneRow]] = {}
    groups: dict[tuple[str, str], list[WaitingGroupRow]] = {}
    for lane in document.lanes:
        lanes.setdefault((lane.topic, lane.subscription), []).append(lane)
    for group in document.groups:
        groups.setdefault((group.topic, group.subscription), []).append(group)
    for (topic, subscription), rows in lanes.items():
        yield Line()
        yield Line(f"{one_line(topic)} / {one_line(subscription)}", "bold")
        yield from _table(_LANE_HEADS, [_lane_cells(row, document.now) for row in rows], right={1, 2})
        if found := groups.get((topic, subscription)):
            yield Line()
            yield from _groups(found, most)
    yield Line()
    chosen = f"{document.matched:,} of {many(document.read, 'waiting message')}"
    condition = "" if document.where == "true" else f" meet {document.where}"
    yield Line(f"{chosen}{condition}. Nothing was consumed.", "dim")


_LANE_HEADS: Final = ("lane", "messages", "due now", "next due", "oldest")


def _lane_cells(row: WaitingLaneRow, now: int) -> tuple[str, ...]:
    ahead = row.next_due - now
    due = "" if not row.next_due else f"in {age_text(ahead)}" if ahead > 0 else f"{age_text(-ahead)} ago"
    oldest = f"{age_text(max(0, now - row.oldest))} ago" if row.messages else ""
    return row.lane, f"{row.messages:,}", f"{row.overdue:,}", due, oldest


def _groups(rows: list[WaitingGroupRow], most: int) -> Iterator[Line]:
    facts = [{"lane": row.lane, "due": row.due, "tenant": row.tenant, "cause": row.cause} for row in rows]
    names = [name for name, value in facts[0].items() if value is not None]
    cells = [(f"{row.messages:,}", *(str(has[name]) for name in names)) for row, has in zip(rows, facts, strict=True)]
    yield from _table(("messages", *names), cells[:most], right={0})
    if left := rows[most:]:
        count = sum(row.messages for row in left)
        yield Line(f"{_GAP}{count:,} in {many(len(left), 'more group')} (--most, or JSON)", "dim", hang=4)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[Line]:
    """A table whose columns are as wide as their cells. The last two columns share the rest of the screen."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    free = _WIDTH - len(_GAP) * (len(heads) + 1) + 1 - sum(widths[:-2])
    if sum(widths[-2:]) > free:
        widths[-2] = min(widths[-2], max(_NARROWEST, free - widths[-1], free // 3))
        widths[-1] = max(_NARROWEST, free - widths[-2])
    yield Line(_row(heads, widths, right), "dim")
    for row in rows:
        yield Line(_row(row, widths, right))


def _row(cells: Sequence[str], widths: Sequence[int], right: set[int]) -> str:
    shown = [one_line(printable(cell), width) for cell, width in zip(cells, widths, strict=True)]
    fitted = [
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(shown, widths, strict=True))
    ]
    return (_GAP + _GAP.join(fitted)).rstrip()


def release_lines(document: WaitingReleaseDocument, target: str) -> Iterator[Line]:
    """Lines of the result of a release: one for each lane, for each reason why messages stay, and for each problem.
    `target`: text that says how the cluster was reached.
    """
    yield Line(target, "bold")
    yield Line(f"Release of {one_line(document.topic)} / {one_line(document.subscription)}", "bold")
    yield Line(f"  where  {one_line(document.where, 400)}", hang=9)
    for row in document.lanes:
        yield from _lane(row)
    if any(row.released for row in document.lanes):
        yield Line("What is released is due at once; what is over a limit waits again, as the limit now is.", hang=2)
    if not all(row.complete for row in document.lanes):
        yield Line("Not complete: run the same command again, which sends nothing twice.", "bold red", hang=2)


def _lane(row: LaneReleaseRow) -> Iterator[Line]:
    stays = sum(row.stays.values())
    left = f", {stays:,} stay{'s' * (stays == 1)}" if stays else ""
    of = f" by the plan that run {one_line(row.earlier_run)} left" if row.earlier_run else ""
    yield Line(f"  {row.lane}: {many(row.released, 'message')} released{of}{left}", hang=4)
    for why, count in row.stays.items():
        yield Line(f"    {count:,} {_WHY.get(why, why)}", hang=6)
    for problem in row.problems:
        yield Line(f"    {one_line(problem)}", "yellow", hang=6)
