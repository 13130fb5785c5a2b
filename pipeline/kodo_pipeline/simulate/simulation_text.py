# adapter: draws for people
"""Text of a simulation: for each subscription the accuracy of the replay, tables of states and tenants, and bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kodo_pipeline.simulate.simulation_charts import TenantRow, tenant_rows
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import duration_text, many, time_text
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodo_pipeline.simulate.simulation_document import (
        SimulatedOutageRow,
        SimulatedRun,
        SimulationDocument,
        SimulationTrial,
    )

_BAR: Final = 40  # columns of the longest bar


def lines(document: SimulationDocument) -> Iterator[Line]:
    """The simulation as text: for each subscription the accuracy of the replay, tables of states and of
    tenants, and bars.
    """
    for trial in document["trials"]:
        yield Line(f"{one_line(trial['topic'])} / {one_line(trial['subscription'])}", "bold")
        yield from _about(trial)
        yield Line()
        yield from _states(_sides(trial))
        yield Line()
        yield from _tenants(tenant_rows(trial))
        yield Line()
        yield from _bars(tenant_rows(trial))
        yield Line()
    for note in document["notes"]:
        yield Line(f"note: {one_line(note)}", "dim")


def _sides(trial: SimulationTrial) -> list[tuple[str, SimulatedRun]]:
    sides = (("today", trial["today"]), ("candidate", trial["candidate"]))
    return [(name, run) for name, run in sides if run is not None]


def _about(trial: SimulationTrial) -> Iterator[Line]:
    span = f"{time_text(trial['since'])}, within {duration_text(trial['until'] - trial['since'])}"
    waiting = f"; {trial['waiting']:,} waited in a state before" if trial["waiting"] else ""
    yield Line(f"  {many(trial['messages'], 'message')} from {span}{waiting}", hang=2)
    for outage in trial["outages"]:
        yield Line(f"  outage: {_outage(outage)}", hang=2)
    sides = _sides(trial)
    now, then = _capacity(sides[0][1]), _capacity(sides[-1][1])
    capacity = f"{now}{f' (candidate: {then})' if now != then else ''}"
    yield Line(
        f"  replayed with {capacity}; a handler takes {duration_text(trial['handler_ms'])}, the middle one of all tenants",
        hang=2,
    )
    if (known := trial["recorded"]["latency_ms"]) is not None and (
        replayed := trial["today"]["all"]["latency_ms"]
    ) is not None:
        shares = ", ".join(f"{name} {duration_text(replayed[name])} ({duration_text(known[name])})" for name in known)
        yield Line(f"  until done, today's file replayed (as recorded): {shares}", hang=2)
    for name, found in sides:
        yield Line(f"  {name}: {_ends(found)}", hang=2)


def _outage(outage: SimulatedOutageRow) -> str:
    ends = "end well" if outage["outcome"] == "done" else "fail"
    length, begin = outage["length_ms"], outage["begin_ms"]
    when = f" after {duration_text(begin)}" if begin else ""
    lasts = "" if length is None else f", for {duration_text(length)}"
    took = f"handlers take {duration_text(outage['duration_ms'])} in {outage['state']} and {ends}"
    return f"of {many(outage['tenants'], 'tenant')}, {took}{when}{lasts}"


def _capacity(run: SimulatedRun) -> str:
    return f"{many(run['workers'], 'worker')}, {many(run['slots'], 'handler')} at once"


def _ends(found: SimulatedRun) -> str:
    figures = found["all"]
    open_ = figures["messages"] - figures["done"] - figures["dead"]
    moved = ", ".join(f"{rule} {times:,}" for rule, times in found["moved"].items())
    opened = f"; the breaker opened {many(found['breaker_opened'], 'time')}" if found["breaker_opened"] else ""
    ends = f"{figures['done']:,} done, {figures['dead']:,} dead, {open_:,} still open a day later"
    return f"{ends}{f'; moved: {moved}' if moved else ''}{opened}"


def _states(sides: Sequence[tuple[str, SimulatedRun]]) -> Iterator[Line]:
    """A table of the time that messages waited for a handler once they were due, by state, for slow and quick tenants."""
    runs = [{(row["state"], row["class"]): row for row in run["states"]} for _, run in sides]
    keys = dict.fromkeys(key for rows in runs for key in rows)
    heads = [head for name, _ in sides for head in (f"{name} p50", "p99")]
    rows: list[tuple[str, ...]] = [("wait for a slot", "runs", *heads)]
    for state, kind in keys:
        found = [one.get((state, kind)) for one in runs]
        waits = [_time(row and row["wait_ms"], share) for row in found for share in ("p50", "p99")]
        rows.append((f"{state}, {kind}", f"{found[0]['runs'] if found[0] else 0:,}", *waits))
    yield from _table(rows)


def _tenants(found: Sequence[TenantRow]) -> Iterator[Line]:
    names = ("today", "candidate")[: len(found[0][1]) if found else 0]
    heads = [head for name in names for head in (f"{name} p50", "p95")]
    rows: list[tuple[str, ...]] = [("until a handler starts", "messages", *heads)]
    for name, sides in found:
        waits = [_time(one["wait_ms"], share) for one in sides for share in ("p50", "p95")]
        rows.append((name, f"{sides[0]['messages']:,}", *waits))
    yield from _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for at, row in enumerate(rows):
        cells = "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield Line(f"  {row[0]:<{widths[0]}}{cells}", "dim" if not at else "")


def _time(percentiles: Mapping[str, float] | None, share: str) -> str:
    return duration_text(percentiles[share]) if percentiles else "-"


def _bars(found: Sequence[TenantRow]) -> Iterator[Line]:
    """Bars of the p95 wait with each file, today and candidate; all bars have one scale."""
    most = max((one["wait_ms"]["p95"] for _, sides in found for one in sides if one["wait_ms"]), default=0) or 1
    width = max((len(name) for name, _ in found), default=0)
    both = any(len(sides) > 1 for _, sides in found)
    yield Line(f"  p95 until a handler starts, today (=){' and with the candidate (#)' if both else ''}", "dim")
    for name, sides in found:
        for sign, one in zip("=#", sides, strict=False):
            value = one["wait_ms"]["p95"] if one["wait_ms"] else 0
            bar = sign * max(round(_BAR * value / most), 1)
            yield Line(f"  {name if sign == '=' else '':<{width}}  {bar} {_time(one['wait_ms'], 'p95')}")
