"""Progress of `kodoctl dev` on standard error: one changing line on a terminal, a plain line from time to time
elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from kodoctl.cli.common.console import tell
from kodoctl.dev.progress import Download, Event, ProgressStep, Tell, WaitProgress
from kodoctl.text.formatting import many

_EVERY_SECONDS = 10.0


@contextmanager
def show_progress() -> Iterator[Tell]:
    """Context with a function that prints progress events on standard error: a step as a line at once, the progress
    within a step in one line that changes (on a terminal) or as a line every 10 seconds (elsewhere).
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield _Living(console, status)
    else:
        yield _Lines()


def words(event: Download | WaitProgress) -> str:
    """Text of a progress event, such as `12 of about 300 MB, 4 files` or `waiting until it is ready: 3 s of at most 120
    s`.
    """
    match event:
        case Download(done, files, total):
            of = f" of about {total}" if total else ""
            return f"{done:.0f}{of} MB, {many(files, 'file')}"
        case WaitProgress(seconds, limit):
            return f"waiting until it is ready: {seconds:.0f} s of at most {limit:.0f} s"


class _Living:
    def __init__(self, console: Console, status: Status) -> None:
        self._console, self._status = console, status

    def __call__(self, event: Event) -> None:
        if isinstance(event, ProgressStep):
            self._console.print(event.text, markup=False, highlight=False)
            self._status.update("")
        else:
            self._status.update(words(event))


class _Lines:
    """Progress as lines: prints a new step at once and a running step every 10 seconds."""

    def __init__(self) -> None:
        self._last_line = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, ProgressStep):
            tell(event.text)
            self._last_line = time.monotonic()
        elif time.monotonic() - self._last_line >= _EVERY_SECONDS:
            tell(f"  {words(event)}")
            self._last_line = time.monotonic()
