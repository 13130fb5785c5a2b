"""Shows plans and progress: colour and live tables on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kodoctl.cli.console import columns, say, tell

if TYPE_CHECKING:
    from kodoctl.apply.report import ApplyReport, Event
    from kodoctl.render.plan_text import Line


def show_lines(lines: Iterable[Line]) -> None:
    """Folded to the screen (80 columns in a pipe); styled on a terminal, plain in a pipe or with NO_COLOR."""
    from kodoctl.render.fold import fold

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

    from kodoctl.render.fold import fold

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:

        def redraw(heading: str, lines: Iterable[Line]) -> None:
            width = columns()
            text = Text(f"{heading}\n\n")
            for line in lines:
                for part in fold(line.text, width, line.hang):
                    text.append(f"{part}\n", style="" if os.environ.get("NO_COLOR") else line.style)
            live.update(text, refresh=True)

        yield redraw


class Progress:
    """One line an event; on a terminal the running count is rewritten in place."""

    def __init__(self, *, stream_json: bool = False, cluster: str = "") -> None:
        self._json, self._cluster = stream_json, cluster
        self._live = sys.stderr.isatty() and not stream_json

    def __call__(self, event: Event) -> None:
        """Called for every event of an apply, from several threads."""
        if self._json:
            import json

            of_cluster = {"context": self._cluster} if self._cluster else {}
            say(json.dumps({**event_json(event), **of_cluster}))
        elif event.kind == "started":
            if self._live:
                from kodoctl.render.safe import one_line

                sys.stderr.write(f"\r\x1b[2K{event.number}/{event.total} {one_line(event.change.address)}"[:120])
                sys.stderr.flush()
        else:
            if self._live:
                sys.stderr.write("\r\x1b[2K")
            first, *rest = event_lines(event)
            tell("\n".join([f"{self._cluster} {first}".lstrip(), *rest]))


def event_lines(event: Event) -> list[str]:
    """`[12/40] created topic.…`; what was not done says so, and below it why. The address ends its line: it may be long."""
    from kodoctl.plan.changes import action_of
    from kodoctl.render.fold import fold
    from kodoctl.render.plan_words import DONE
    from kodoctl.render.safe import one_line

    verb = action_of(event.change).value
    what = DONE[verb] if event.kind == "done" else f"{event.kind.upper()}: {verb}"
    lines = [f"[{event.number}/{event.total}] {what} {one_line(event.change.address)}"]
    return [*lines, *(fold(f"    {one_line(event.detail)}", columns()) if event.detail else [])]


def event_json(event: Event) -> dict[str, Any]:
    """One event of the stream that `apply --format json` prints."""
    from kodoctl.plan.changes import action_of

    return {
        "type": "change",
        "status": event.kind,
        "action": action_of(event.change).value,
        "address": event.change.address,
        "number": event.number,
        "total": event.total,
        "detail": event.detail,
    }


def report_json(report: ApplyReport) -> dict[str, Any]:
    """The last line of that stream."""
    from kodoctl.apply.report import Status

    return {
        "type": "report",
        "id": report.id,
        "complete": report.complete,
        "interrupted": report.interrupted,
        "writes": report.writes,
        "seconds": round(report.seconds, 3),
        "counts": {status.value: report.count(status) for status in Status},
        "outcomes": [
            {"action": o.verb, "address": o.address, "status": o.status.value, "detail": o.detail}
            for o in report.outcomes
        ],
        "notes": list(report.notes),
    }


def show_report(report: ApplyReport) -> None:
    """Done, failed, not started: in that order, with reasons."""
    from kodoctl.apply.report import Status
    from kodoctl.render.safe import one_line

    for status in (Status.FAILED, Status.SKIPPED, Status.NOT_STARTED):
        for outcome in report.outcomes:
            if outcome.status is status:
                say(f"  {status.value}: {outcome.verb} {one_line(outcome.address)}")
                _say_folded(f"      {one_line(outcome.detail)}")
    for note in report.notes:
        _say_folded(f"  note: {one_line(note)}", 4)
    counts = ", ".join(
        f"{report.count(status)} {status.value}" for status in Status if report.count(status) or status is Status.DONE
    )
    head = "Applied" if report.complete else "Interrupted" if report.interrupted else "Not complete"
    say(f"{head}: {counts}; {report.writes} write requests, {report.seconds:.1f} s.")
    if not report.complete:
        say("Running the same command again continues with what is left.")


def _say_folded(text: str, hang: int | None = None) -> None:
    from kodoctl.render.fold import fold

    for part in fold(text, columns(), hang):
        say(part)
