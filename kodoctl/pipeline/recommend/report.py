"""Report of a recommendation: one JSON document, and the text lines that are rendered from it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kodoctl.formatting import many, time_text
from kodoctl.pipeline.recommend.noisy_neighbours import CALM, LevelMove
from kodoctl.render.escaping import one_line
from kodoctl.render.plan_text import Line
from kodoctl.topology.units import Duration

FORMAT_VERSION: Final = 1
_NAME: Final = 24  # characters shown of a tenant in a table


class Victim(NamedTuple):
    """A tenant that waited while another was loud: what it had done then, what of it too late, its p95 then and else
    in ms.
    """

    tenant: str
    done: int
    late: int
    p95: float | None
    p95_else: float | None


def document(
    window: int,
    goal: int,
    moves: Sequence[LevelMove],
    victims: Mapping[LevelMove, Sequence[Victim]],
    notes: Sequence[str],
) -> dict[str, Any]:
    """For machines. Times are ms."""
    return {
        "format_version": FORMAT_VERSION,
        "window_ms": window,
        "goal_ms": goal,
        "moves": [
            {
                "topic": one.topic,
                "subscription": one.subscription,
                "tenant": one.tenant,
                "action": one.action,
                "from": one.source,
                "to": one.target,
                "windows": list(one.windows),
                "share": round(one.share, 4),
                "others_late": one.late and round(one.late, 4),
                "others_late_else": one.late_else and round(one.late_else, 4),
                "victims": [victim._asdict() for victim in victims.get(one, ())],
            }
            for one in moves
        ],
        "notes": list(notes),
        "patch": "",
    }


def lines(document: Mapping[str, Any]) -> Iterator[Line]:
    """For people: each move with its evidence. The patch is not among them: it must stay as it is."""
    goal, width = Duration(document["goal_ms"]), document["window_ms"]
    for move in document["moves"]:
        place = f"{one_line(move['topic'])} / {one_line(move['subscription'])}"
        yield Line(f"{place}: {move['action']} {one_line(move['tenant'])}, {move['from']} -> {move['to']}", "bold")
        yield Line(f"  {_why(move, goal, width)}", hang=2)
        if move["victims"]:
            yield from _table(move["victims"])
        yield Line()
    if not document["moves"]:
        yield Line(f"Nothing to move: nobody kept others waiting longer than {goal} in three of the newest windows.")
    for note in document["notes"]:
        yield Line(f"note: {one_line(note)}", "dim")


def _why(move: Mapping[str, Any], goal: Duration, width: int) -> str:
    count = len(move["windows"])
    span = f"{many(count, 'window')} from {time_text(move['windows'][0], zone=False)} to {time_text(move['windows'][-1] + width, zone=False)} UTC"
    if move["action"] == "upgrade":
        return f"calm: {move['share']:.1%} of all messages in {span}, and less than {CALM:.1%} in each"
    late, other = move["others_late"], move["others_late_else"]
    before = f", in all other windows {other:.0%}" if other is not None else ""
    return f"{move['share']:.0%} of all messages in {span}; of what others had done, {late or 0:.0%} came later than {goal}{before}"


def _table(victims: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
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
