# adapter: draws for people
"""Text of recommendations for people: each change with its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, time_text
from kodoctl.text.line import Line
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodo_pipeline.recommend.recommendation_document import (
        RecommendationDocument,
        RecommendedLevel,
        RecommendedMove,
        RecommendedSetting,
        WaitingTenant,
    )

_NAME: Final = 24  # characters shown of a tenant in a table
_HANG: Final = 2  # column at which folded lines go on, at least


def lines(document: RecommendationDocument) -> Iterator[Line]:
    """Yields the recommendations as text, without the patch, which must be printed unchanged. Lines that are folded go
    on indented, so that no line begins with a word from the name of a tenant: `git apply` may read the text as well,
    and finds patches by the beginnings of lines.
    """
    return (replace(line, hang=max(_HANG, line.hang or 0)) for line in _lines(document))


def _lines(document: RecommendationDocument) -> Iterator[Line]:
    for move in document["moves"]:
        place = f"{one_line(move['topic'])} / {one_line(move['subscription'])}"
        yield Line(f"{place}: {move['action']} {one_line(move['tenant'])}, {move['from']} -> {move['to']}", "bold")
        yield Line(f"  {_why(move, document)}", hang=2)
        if move["victims"]:
            yield from _table(move["victims"])
        yield Line()
    for setting in document["settings"]:
        yield from _setting(setting, document)
        yield Line()
    for level in document["levels"]:
        yield from _level(level)
        yield Line()
    if not (document["moves"] or document["settings"] or document["levels"]):
        yield Line(_nothing(document))
    for note in document["notes"]:
        yield Line(f"note: {one_line(note)}", "dim")


def _nothing(document: RecommendationDocument) -> str:
    if document["notes"]:  # nobody knows of tenants that could not be judged, and one may harm others and stay
        return "Nothing to change by what is known: the notes say what could not be judged, moved or helped."
    goal = Duration(document["goal_ms"])
    return f"Nothing to change: nobody kept others waiting longer than {goal} in three of the newest windows."


def _why(move: RecommendedMove, document: RecommendationDocument) -> str:
    goal, span = Duration(document["goal_ms"]), _span(move["windows"], document["window_ms"])
    if move["action"] == "upgrade":
        return (
            f"calm: {move['share']:.1%} of all messages in {span}, and less than {document['calm_share']:.1%} in each"
        )
    if move["action"] == "return":
        return f"light no more: {move['share']:.1%} of all runs, or of the slot time, in {span}"
    if move["own_goal_ms"] is not None:
        elsewhere = _elsewhere(move["own_late"], move["own_late_else"])
        return (
            f"light: {move['share']:.1%} of all runs, or of the slot time, in {span}; of its own, {move['own_late'] or 0:.0%}"
            f" began later than {Duration(move['own_goal_ms'])}{elsewhere}"
        )
    late, before = move["others_late"], _elsewhere(move["others_late"], move["others_late_else"])
    return f"{move['share']:.0%} of all messages in {span}; of what others had done, {late or 0:.0%} came later than {goal}{before}"


def _elsewhere(late: float | None, late_else: float | None) -> str:
    if late_else is not None:
        return f", in all other windows {late_else:.0%}"
    return "; cannot compare: in no other window was anything done" if late is not None else ""


def _span(windows: Sequence[int], width: int) -> str:
    seconds = width % 60_000 != 0
    first, last = (time_text(at, seconds=seconds, zone=False) for at in (windows[0], windows[-1] + width))
    return f"{many(len(windows), 'window')} from {first} to {last} UTC"


def _setting(setting: RecommendedSetting, document: RecommendationDocument) -> Iterator[Line]:
    place = f"{one_line(setting['topic'])} / {one_line(setting['subscription'])}"
    before = "none" if setting["from"] is None else str(setting["from"])
    by = f" of handlers at once by {one_line(setting['by'])}" if setting["by"] is not None else ""
    load = "what arrived" if setting["action"] == "concurrency" else "what others had to do"
    runs = "their runs" if setting["action"] == "bulkhead" else "all runs"
    yield Line(f"{place}: {setting['action']} {setting['path']}{by}, {before} -> {setting['to']}", "bold")
    yield Line(
        f"  {one_line(setting['who'])} had {setting['busy_slots']:.1f} of {setting['total_slots']} slots of a worker in"
        f" {_span(setting['windows'], document['window_ms'])}; {load} needs {setting['needed_slots']};"
        f" {setting['others_late'] or 0:.0%} of {runs} began later than {Duration(document['goal_ms'])}{_elsewhere(setting['others_late'], setting['others_late_else'])}",
        hang=2,
    )


def _level(level: RecommendedLevel) -> Iterator[Line]:
    tenant = one_line(level["tenant"])
    yield Line(f"{one_line(level['topic'])}: exclusive level {level['level']} for {tenant}", "bold")
    for figures in level["figures"]:
        late = f"; {figures['late']:.0%} of them began later than its goal" if figures["late"] is not None else ""
        yield Line(
            f"  {one_line(figures['subscription'])}: {many(figures['runs'], 'run')} in the newest windows,"
            f" {figures['share']:.1%} of all runs and {figures['slot_share']:.1%} of the slot time{late}",
            hang=2,
        )


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
