"""Output on a terminal: coloured lines, and screens that are redrawn; plain lines elsewhere. Also Ctrl-C of long
commands.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kodoctl.cli.common.console import columns, is_screen, say, tell
from kodoctl.errors import ExitCode
from kodoctl.host.end_signals import signals_to

if TYPE_CHECKING:
    from kodoctl.text.line import Line


def show_lines(lines: Iterable[Line]) -> None:
    """Prints lines folded to the width of the screen (80 columns in a pipe): styled on a terminal, elsewhere only with
    FORCE_COLOR; plain on a dumb terminal, and always with NO_COLOR.
    """
    from kodoctl.text.wrap import fold

    width = columns()
    dumb = sys.stdout.isatty() and os.environ.get("TERM") == "dumb"
    styled = is_screen() and not dumb and not os.environ.get("NO_COLOR")
    for line in lines:
        codes = ";".join(_STYLES[word] for word in line.style.split() if word in _STYLES) if styled else ""
        for part in fold(line.text, width, line.hang):
            say(f"\x1b[{codes}m{part}\x1b[0m" if codes else part, styled=styled)


_STYLES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36",
}  # fmt: skip
"""Codes of terminals for the words of a style; rich does the same, and its import costs as much as a short command."""


Screen = Callable[[str, "Iterable[Line]"], None]


@contextmanager
def live_screen(*, plain: bool) -> Iterator[Screen]:
    """Context with a function that shows a heading and lines, for repeated calls. On a terminal each call redraws the
    screen, which is restored at the end; otherwise, or with `plain`, each call prints a block.
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

    from kodoctl.text.wrap import fold

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:

        def redraw(heading: str, lines: Iterable[Line]) -> None:
            width = columns()
            text = Text(f"{heading}\n\n")
            for line in lines:
                for part in fold(line.text, width, line.hang):
                    text.append(f"{part}\n", style="" if os.environ.get("NO_COLOR") else line.style)
            live.update(text, refresh=True)

        yield redraw


def say_folded(text: str, hang: int | None = None) -> None:
    """Prints a text on standard output, folded to the width of the screen. `hang`: column at which further lines begin;
    None: below the first character.
    """
    from kodoctl.text.wrap import fold

    for part in fold(text, columns(), hang):
        say(part)


@contextmanager
def interruptible(first: str, second: str) -> Iterator[threading.Event]:
    """Context with an event that Ctrl-C sets, so that the command can finish its running work. A second Ctrl-C ends the
    process at once. Only the main thread can use it.

    `first`: text that is printed after the first Ctrl-C, about the work still to be done; `second`: text after the
    second.
    """
    stop = threading.Event()

    def interrupt() -> None:
        if stop.is_set():
            try:
                tell(f"Stopped at once. {second}")
            finally:
                os._exit(ExitCode.INTERRUPTED)
        try:
            tell(f"Interrupted: {first}, then stopping. Again to stop at once.")
        finally:
            stop.set()

    with signals_to(interrupt, (signal.SIGINT,)):
        yield stop
