"""Progress bar of Spark: on a terminal below all other lines, during a session; elsewhere there is no bar."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kodoctl.cli.common.console import columns, printing, tell
from kodoctl.cli.common.options import Format
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from kodo_pipeline.spark.spark_session import Session, SparkSettings

STARTS: Final = "Spark takes 5 to 15 s to start."
_WIDE: Final = 24  # columns of the bar


def tell_folded(text: str) -> None:
    """Prints a sentence for people on standard error, folded to the width of the screen."""
    from kodoctl.text.wrap import fold

    for part in fold(text, columns()):
        tell(part)


class Bar:
    """Makes Spark sessions with a progress bar, which is shown on a terminal and for text output only. Print lines for
    people by `tell`, so that they appear above the bar.
    """

    def __init__(self, output: Format) -> None:
        self._wanted = output is Format.TEXT
        self._live: Live | None = None
        self._spark: Session | None = None
        self._doing = "Spark starts"
        self._began = time.monotonic()

    def begin(self, run: str, what: str) -> None:
        """Prints the first line of a command: the run's id and `what` it does. Call it before anything slow."""
        tell_folded(f"Run {run}: {what}. {STARTS}")

    def tell(self, text: str) -> None:
        """Prints a line for people on standard error, above the bar if there is one."""
        if self._live is None:
            tell_folded(text)
            return
        from rich.text import Text

        with printing(sys.stderr):
            self._live.console.print(Text(text))

    @contextmanager
    def session(self, settings: SparkSettings) -> Iterator[Session]:
        """Context with a session, made as by `kodo_pipeline.spark.spark_session.spark_session`. Prints a line while a
        cluster has no executor for it.
        """
        from kodo_pipeline.spark.executor_wait import report_executor_wait
        from kodo_pipeline.spark.spark_session import spark_session

        with self._show(), spark_session(settings) as spark, report_executor_wait(spark, self.tell):
            self._spark, self._doing = spark, "Spark works"
            try:
                yield spark
            finally:
                self._spark, self._doing = None, "Spark ends"

    @contextmanager
    def _show(self) -> Iterator[None]:
        """Context in which the bar is drawn, on a copy of the terminal: while Java starts, both outputs go to a file."""
        if not (self._wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
            yield
            return
        from rich.live import Live

        width = columns()
        with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as screen:
            console = _console(screen, width)
            self._live = Live(console=console, transient=True, get_renderable=self._draw_table, redirect_stdout=False,
                              redirect_stderr=False)  # fmt: skip
            try:
                with self._live:
                    yield
            finally:
                self._live = None

    def _draw_table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        from kodo_pipeline.spark.spark_session import running_tasks

        done, tasks = (0, 0) if self._spark is None else running_tasks(self._spark)
        count = f"{done:,} of {many(tasks, 'task')}" if tasks else ""
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=tasks or None, completed=done, width=_WIDE)
        row.add_row(self._doing, bar, count, f"{time.monotonic() - self._began:.0f} s")
        return row


def _console(screen: object, width: int) -> Console:
    from rich.console import Console

    return Console(file=screen, force_terminal=True, width=width, highlight=False)  # type: ignore[arg-type]
