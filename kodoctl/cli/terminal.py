"""Shows plans and reports: colour, and screens that are drawn again, on a terminal; plain lines everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kodoctl.console import columns, say
from kodoctl.formatting import many

if TYPE_CHECKING:
    from kodoctl.apply.report import ApplyReport, ChangeOutcome, ChangeStatus
    from kodoctl.render.plan_text import Line


def show_lines(lines: Iterable[Line]) -> None:
    """Folded to the screen (80 columns in a pipe); styled on a terminal, plain in a pipe or with NO_COLOR."""
    from kodoctl.render.wrap import fold

    width = columns()
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        for line in lines:
            for part in fold(line.text, width, line.hang):
                say(part)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        for part in fold(line.text, width, line.hang):
            console.print(Text(part, style=line.style))


Screen = Callable[[str, "Iterable[Line]"], None]


@contextmanager
def live_screen(*, plain: bool) -> Iterator[Screen]:
    """Shows a heading and lines again and again: in place on a terminal, which is left as it was found; a block each
    elsewhere, or when `plain`.
    """
    if plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":

        def block(heading: str, lines: Iterable[Line]) -> None:
            say(f"{heading}\n")
            show_lines(lines)
            say()

        yield block
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from kodoctl.render.wrap import fold

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:

        def redraw(heading: str, lines: Iterable[Line]) -> None:
            width = columns()
            text = Text(f"{heading}\n\n")
            for line in lines:
                for part in fold(line.text, width, line.hang):
                    text.append(f"{part}\n", style="" if os.environ.get("NO_COLOR") else line.style)
            live.update(text, refresh=True)

        yield redraw


def report_json(report: ApplyReport) -> dict[str, Any]:
    """The last line of what `apply --format json` streams."""
    from kodoctl.apply.report import ChangeStatus

    return {
        "type": "report",
        "id": report.id,
        "complete": report.complete,
        "interrupted": report.interrupted,
        "writes": report.writes,
        "seconds": round(report.seconds, 3),
        "counts": {status.value: report.count(status) for status in ChangeStatus},
        "outcomes": [
            {"action": o.verb, "address": o.address, "status": o.status.value, "detail": o.detail}
            for o in report.outcomes
        ],
        "notes": list(report.notes),
    }


def show_report(report: ApplyReport) -> None:
    """Done, failed, not started: in that order, with reasons."""
    from kodoctl.apply.report import ChangeStatus
    from kodoctl.render.escaping import one_line

    for status in (ChangeStatus.FAILED, ChangeStatus.SKIPPED, ChangeStatus.NOT_STARTED):
        for first, others in _for_one_reason(report, status):
            more = f", and {others} more" if others else ""
            say(f"  {status.value}: {first.verb} {one_line(first.address)}{more}")
            say_folded(f"      {one_line(first.detail)}")
    for note in report.notes:
        say_folded(f"  note: {one_line(note)}", 4)
    counts = ", ".join(
        f"{report.count(status)} {status.value}"
        for status in ChangeStatus
        if report.count(status) or status is ChangeStatus.DONE
    )
    head = "Applied" if report.complete else "Interrupted" if report.interrupted else "Not complete"
    say(f"{head}: {counts}; {many(report.writes, 'write request')}, {report.seconds:.1f} s.")
    if not report.complete:
        say("Running the same command again continues with what is left.")


def _for_one_reason(report: ApplyReport, status: ChangeStatus) -> Iterator[tuple[ChangeOutcome, int]]:
    """Outcomes to show: each, and how many others it stands for. What was not started is so for one reason, seldom two; told
    one by one it would bury what failed.
    """
    from kodoctl.apply.report import ChangeStatus

    found = [outcome for outcome in report.outcomes if outcome.status is status]
    if status is not ChangeStatus.NOT_STARTED:
        yield from ((outcome, 0) for outcome in found)
        return
    by_reason: dict[str, list[ChangeOutcome]] = {}
    for outcome in found:
        by_reason.setdefault(outcome.detail, []).append(outcome)
    yield from ((some[0], len(some) - 1) for some in by_reason.values())


def say_folded(text: str, hang: int | None = None) -> None:
    """A sentence on standard output, as wide as the screen."""
    from kodoctl.render.wrap import fold

    for part in fold(text, columns(), hang):
        say(part)
