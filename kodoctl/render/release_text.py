"""Result of a release as text, from the JSON form: for each lane the released messages, and those that stay
with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.escaping import one_line
from kodoctl.formatting import many
from kodoctl.render.line import Line

if TYPE_CHECKING:
    from kodoctl.documents.waiting_document import LaneReleaseRow, WaitingReleaseDocument

_WHY: Final = {
    "other": "do not meet the condition",
    "due": "are due already: workers get them as soon as they read the lane",
    "unfinished": "belong to another plan that is not finished: run its `waiting apply` again",
    "part_of_a_batch": "are in a batch of which not every message is chosen",
    "already": "were sent before",
    "repeat": "are copies of a released message, acknowledged with it",
    "beyond": "are more than one plan takes: run the same command again",
}


def release_lines(document: WaitingReleaseDocument, target: str) -> Iterator[Line]:
    """A line for each lane and each reason; `target` says how the cluster was reached."""
    yield Line(target, "bold")
    yield Line(f"Release of {one_line(document['topic'])} / {one_line(document['subscription'])}", "bold")
    yield Line(f"  where  {one_line(document['where'], 400)}", hang=9)
    for row in document["lanes"]:
        yield from _lane(row)
    if any(row["released"] for row in document["lanes"]):
        yield Line("What is released is due at once; what is over a limit waits again, as the limit now is.", hang=2)
    if not all(row["complete"] for row in document["lanes"]):
        yield Line("Not complete: run the same command again, which sends nothing twice.", "bold red", hang=2)


def _lane(row: LaneReleaseRow) -> Iterator[Line]:
    stays = sum(row["stays"].values())
    left = f", {stays:,} stay{'s' * (stays == 1)}" if stays else ""
    of = f" by the plan that run {one_line(row['earlier_run'])} left" if row["earlier_run"] else ""
    yield Line(f"  {row['lane']}: {many(row['released'], 'message')} released{of}{left}", hang=4)
    for why, count in row["stays"].items():
        yield Line(f"    {count:,} {_WHY.get(why, why)}", hang=6)
    for problem in row["problems"]:
        yield Line(f"    {one_line(problem)}", "yellow", hang=6)
