"""Drift for people: what somebody changed by hand, apart from what the file has not applied yet."""

from __future__ import annotations

from collections.abc import Iterator

from kodoctl.plan import codec
from kodoctl.plan.changes import Change
from kodoctl.plan.drift import Drift
from kodoctl.render.plan_text import Line, change_lines
from kodoctl.render.safe import one_line


def drift_lines(drift: Drift, target: str) -> Iterator[Line]:
    """All groups that are not empty, then one verdict."""
    yield Line(target, "bold")
    yield Line()
    yield from _group("Changed by hand (the next apply puts it back):", drift.by_hand, "bold red")
    yield from _group(
        "Different, by hand or by the file, which changed since its last apply:", drift.either, "bold yellow"
    )
    yield from _group("File not applied yet:", drift.not_applied, "bold")
    if drift.unmanaged and drift.count_unmanaged:
        yield Line("Unmanaged:", "bold yellow")
        yield from (Line(f"    {one_line(name)}") for name in drift.unmanaged)
        yield Line()
    yield Line(_verdict(drift), "bold red" if drift.drifted else "bold green")


def _group(title: str, changes: tuple[Change, ...], style: str) -> Iterator[Line]:
    if changes:
        yield Line(title, style)
        for change in changes:
            yield from change_lines(codec.change_to_json(change))
        yield Line()


def _verdict(drift: Drift) -> str:
    waiting = f"; not applied yet: {', '.join(drift.stale_files)}" if drift.stale_files else ""
    unmanaged = (
        f"; {len(drift.unmanaged)} unmanaged (--unmanaged counts them)"
        if drift.unmanaged and not drift.count_unmanaged
        else ""
    )
    if not drift.drifted:
        return f"No drift{waiting}{unmanaged}."
    counted = len(drift.by_hand) + len(drift.either) + (len(drift.unmanaged) if drift.count_unmanaged else 0)
    return f"Drift: {counted} object{'' if counted == 1 else 's'}{waiting}{unmanaged}."
