"""Live progress of an apply: a table on a terminal, one line per event elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kodoctl.cli.common.console import columns, printing, say, tell

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from kodoctl.apply.report import ApplyEvent, Listen

_MOST: Final = 8  # changes in the table; the rest is counted
_DOING: Final = {
    "create": "creating", "update": "updating", "delete": "deleting", "adopt": "adopting", "forget": "forgetting",
}  # fmt: skip


class ApplyProgress:
    """Context that shows the progress of an apply. It prints the lines of each end of a step (`event_lines`) on
    standard error, or with `stream_json` only a JSON line for each event on standard output. If standard error is a
    terminal (but no dumb one), a table below the lines shows the running changes until the context ends.

    Events may come from any thread. Several clusters are shown together (`of`).
    """

    def __init__(self, *, stream_json: bool = False) -> None:
        self._json = stream_json
        self._running: dict[tuple[str, str], tuple[str, float]] = {}  # cluster and address -> verb and since when
        self._counts: dict[str, tuple[int, int]] = {}  # by cluster: over, of how many
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, transient=True, get_renderable=self._table, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with printing(sys.stderr):
                self._live.stop()

    def of(self, cluster: str) -> Listen:
        """Returns the listener for the apply of one cluster. `cluster`: its context, "" for the only cluster."""
        return lambda event: self._hear(event, cluster)

    def _hear(self, event: ApplyEvent, cluster: str) -> None:
        if self._json:
            of_cluster = {"context": cluster} if cluster else {}
            say(json.dumps({**event_json(event), **of_cluster}))
            return
        place = cluster, event.change.address
        with self._lock:
            self._counts[cluster] = event.number, event.total
            if event.kind == "started":
                self._running[place] = _DOING[_verb(event)], time.monotonic()
                return
            self._running.pop(place, None)
        first, *rest = event_lines(event)
        text = "\n".join([f"{cluster} {first}".lstrip(), *rest])
        if self._live is None:
            tell(text)
        else:
            from rich.text import Text

            with printing(sys.stderr):
                self._live.console.print(Text(text), soft_wrap=True)  # a long address stays in one piece, to be copied

    def _table(self) -> Table:
        from rich.table import Table

        now = time.monotonic()
        with self._lock:
            running = sorted(self._running.items(), key=lambda one: one[1][1])
            counts = dict(self._counts)
        table = Table(box=None, show_header=False, pad_edge=False, expand=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        several = len(counts) > 1
        for (cluster, address), (verb, since) in running[:_MOST]:
            what = f"{cluster} {verb}" if several else verb
            table.add_row(what, _tail(address, columns() - len(what) - 12), f"{now - since:.1f} s")
        for cluster, (over, total) in counts.items():
            waiting = f", {len(running) - _MOST} more running" if len(running) > _MOST and not several else ""
            table.add_row(f"{cluster} {over}/{total}".lstrip(), f"finished{waiting}", f"{now - self._began:.1f} s")
        return table


def _tail(address: str, width: int) -> str:
    """The end of an address, at most `width` columns wide: the end distinguishes one address from another."""
    from kodoctl.text.escaping import one_line

    text = one_line(address)
    return text if len(text) <= width else f"…{text[len(text) - max(1, width - 1) :]}"


def _verb(event: ApplyEvent) -> str:
    from kodoctl.plan.changes import action_of

    return action_of(event.change).value


def event_lines(event: ApplyEvent) -> list[str]:
    """Lines that show the end of a step, such as `[12/40] created topic.…`. If the status is not done, they have it
    and, in further lines folded to the width of the screen, the reason.
    """
    from kodoctl.render.plan_words import DONE
    from kodoctl.text.escaping import one_line
    from kodoctl.text.wrap import fold

    verb = _verb(event)
    what = DONE[verb] if event.kind == "done" else f"{event.kind.upper()}: {verb}"
    lines = [f"[{event.number}/{event.total}] {what} {one_line(event.change.address)}"]
    return [*lines, *(fold(f"    {one_line(event.detail)}", columns()) if event.detail else [])]


def event_json(event: ApplyEvent) -> dict[str, Any]:
    """JSON of one event. Applying commands with `--format json` print it as one line, and add the context if there are
    several clusters. `status`: kind of the event; `action`: the change's verb, such as `create`; `number`: steps of the
    apply that have ended, of `total`.
    """
    return {
        "type": "change",
        "status": event.kind,
        "action": _verb(event),
        "address": event.change.address,
        "number": event.number,
        "total": event.total,
        "detail": event.detail,
    }
