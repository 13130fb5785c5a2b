"""A recommendation for people: each move with its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.formatting import many, time_text
from kodoctl.render.escaping import one_line
from kodoctl.render.line import Line
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodoctl.documents.recommendation_document import RecommendationDocument, RecommendedMove, WaitingTenant

_NAME: Final = 24  # characters shown of a tenant in a table


def lines(document: RecommendationDocument) -> Iterator[Line]:
    """For people: each move with its evidence. The patch is not among them: it must stay as it is."""
    for move in document["moves"]:
        place = f"{one_line(move['topic'])} / {one_line(move['subscription'])}"
        yield Line(f"{place}: {move['action']} {one_line(move['tenant'])}, {move['from']} -> {move['to']}", "bold")
        yield Line(f"  {_why(move, document)}", hang=2)
        if move["victims"]:
            yield from _table(move["victims"])
        yield Line()
    if not document["moves"]:
        yield Line(
            f"Nothing to move: nobody kept others waiting longer than {Duration(document['goal_ms'])} in three of the newest windows."
        )
    for note in document["notes"]:
        yield Line(f"note: {one_line(note)}", "dim")


def _why(move: RecommendedMove, document: RecommendationDocument) -> str:
    goal, width, count = Duration(document["goal_ms"]), document["window_ms"], len(move["windows"])
    span = f"{many(count, 'window')} from {time_text(move['windows'][0], zone=False)} to {time_text(move['windows'][-1] + width, zone=False)} UTC"
    if move["action"] == "upgrade":
        return (
            f"calm: {move['share']:.1%} of all messages in {span}, and less than {document['calm_share']:.1%} in each"
        )
    late, other = move["others_late"], move["others_late_else"]
    before = f", in all other windows {other:.0%}" if other is not None else ""
    return f"{move['share']:.0%} of all messages in {span}; of what others had done, {late or 0:.0%} came later than {goal}{before}"


def _table(victims: Sequence[WaitingTenant]) -> Iterator[Line]:
    heads = ("who waited", "done", "late", "p95 ms", "p95 else")
    rows = [
        (
            one_line(one["tenant"], _NAME),
            f"{one['done']:,}",
            f"{one['late']:,}",
            *(f"{value:,.0f}" if value is not None else "-" for value in (one["p95"], one["p95_else"])),
        )
        for one in victims
    ]
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    for row in (heads, *rows):
        numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield Line(f"  {row[0]:<{widths[0]}}{numbers}", "dim" if row is heads else "")
