"""A simulation for people: of each subscription how true the replay is, a table of tenants, and bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.formatting import duration_text, many, time_text
from kodoctl.render.escaping import one_line
from kodoctl.render.line import Line
from kodoctl.render.simulation_charts import Pair, pairs

if TYPE_CHECKING:
    from kodoctl.documents.simulation_document import SimulatedFigures, SimulationDocument, SimulationTrial

_BAR: Final = 40  # columns of the longest bar


def lines(document: SimulationDocument) -> Iterator[Line]:
    """For people: of each subscription how true the replay is, a table of tenants, and bars."""
    for trial in document["trials"]:
        yield Line(f"{one_line(trial['topic'])} / {one_line(trial['subscription'])}", "bold")
        yield from _about(trial)
        yield Line()
        yield from _table(pairs(trial))
        yield Line()
        yield from _bars(pairs(trial))
        yield Line()
    for note in document["notes"]:
        yield Line(f"note: {one_line(note)}", "dim")


def _about(trial: SimulationTrial) -> Iterator[Line]:
    span = f"{time_text(trial['since'])}, within {duration_text(trial['until'] - trial['since'])}"
    yield Line(f"  {many(trial['messages'], 'message')} from {span}", hang=2)
    slots, other = trial["today"]["slots"], trial["candidate"]["slots"]
    handlers = f"{many(slots, 'handler')} at once{f' (candidate: {other:,})' if other != slots else ''}"
    yield Line(
        f"  replayed with {handlers}, of {duration_text(trial['handler_ms'])}: the middle one of all tenants", hang=2
    )
    if (known := trial["recorded"]["latency_ms"]) is not None and (
        replayed := trial["today"]["all"]["latency_ms"]
    ) is not None:
        shares = ", ".join(f"{name} {duration_text(replayed[name])} ({duration_text(known[name])})" for name in known)
        yield Line(f"  until done, today's file replayed (as recorded): {shares}", hang=2)
    for name, found in (("today", trial["today"]), ("candidate", trial["candidate"])):
        moved = ", ".join(f"{rule} {times:,}" for rule, times in found["moved"].items())
        open_ = found["all"]["messages"] - found["all"]["done"] - found["all"]["dead"]
        ends = f"{found['all']['done']:,} done, {found['all']['dead']:,} dead, {open_:,} still open a day later"
        yield Line(f"  {name}: {ends}{f'; moved: {moved}' if moved else ''}", hang=2)


def _table(pairs: Sequence[Pair]) -> Iterator[Line]:
    rows: list[tuple[str, ...]] = [("until a handler starts", "messages", "today p50", "p95", "candidate p50", "p95")]
    for name, today, then in pairs:
        waits = [_wait(one, share) for one in (today, then) for share in ("p50", "p95")]
        rows.append((name, f"{today['messages']:,}", *waits))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for at, row in enumerate(rows):
        cells = "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield Line(f"  {row[0]:<{widths[0]}}{cells}", "dim" if not at else "")


def _wait(figures: SimulatedFigures, share: str) -> str:
    return duration_text(figures["wait_ms"][share]) if figures["wait_ms"] else "-"


def _bars(pairs: Sequence[Pair]) -> Iterator[Line]:
    """Bars of the p95 wait with each file, today and candidate; all bars have one scale."""
    most = max((one["wait_ms"]["p95"] for _, *both in pairs for one in both if one["wait_ms"]), default=0) or 1
    width = max((len(name) for name, *_ in pairs), default=0)
    yield Line("  p95 until a handler starts, today (=) and with the candidate (#)", "dim")
    for name, *both in pairs:
        for sign, one in zip("=#", both, strict=True):
            value = one["wait_ms"]["p95"] if one["wait_ms"] else 0
            bar = sign * max(round(_BAR * value / most), 1)
            yield Line(f"  {name if sign == '=' else '':<{width}}  {bar} {_wait(one, 'p95')}")
