"""Progress of Spark: a bar on a terminal, below all other lines, and reports of waits for executors, which name the
resource that a full cluster lacks. Spark itself waits for ever, and its warning is not shown.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kodoctl.cli.common.console import columns, printing, tell
from kodoctl.cli.common.options import Format
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from kodo_pipeline.spark.spark_session import Session, SparkSettings


PATIENCE: Final = 15.0
"""Seconds that work waits without an executor before the first report; the start of one takes some seconds."""
_AGAIN: Final = 60.0  # seconds between two words of one wait
_LOOK: Final = 1.0


@contextmanager
def report_executor_wait(spark: SparkSession, tell: Callable[[str], None]) -> Iterator[None]:
    """Context in which `tell` is called, in another thread, with a line if Spark waits for executors longer than
    PATIENCE (15 s), again each minute, and once more when that wait is over. Does nothing in local mode, in which there
    is no such wait.
    """
    context = spark.sparkContext
    master, over = context.master or "", threading.Event()
    waiting = ExecutorWait(master, context.getConf().get("spark.executor.memory") or "1g")
    watching = threading.Thread(target=_watch, args=(context, waiting, tell, over), name="kodo-waiting", daemon=True)
    if not master.startswith("local"):
        watching.start()
    try:
        yield
    finally:
        over.set()
        if watching.is_alive():
            watching.join()


def _watch(context: SparkContext, waiting: ExecutorWait, tell: Callable[[str], None], over: threading.Event) -> None:
    from py4j.protocol import Py4JError

    while not over.wait(_LOOK):
        try:
            word = waiting.look(time.monotonic(), stands=_stands(context))
        except (Py4JError, OSError):  # the context has ended, or Java has
            return
        if word:
            tell(word)


def _stands(context: SparkContext) -> bool:
    """True if a stage is active and no executor is registered; the driver itself counts as one."""
    if not context.statusTracker().getActiveStageIds():
        return False
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) <= 1  # noqa: SLF001 - Python has no other way to ask


class ExecutorWait:
    """Decides when a line about a wait for an executor is to be printed, and makes its text. `memory`: memory that an
    executor requests, as Spark writes it.
    """

    def __init__(self, master: str, memory: str) -> None:
        self._master, self._memory = master, memory
        self._since: float | None = None
        self._last_message: float | None = None

    def look(self, now: float, *, stands: bool) -> str:
        """Line to print now, which is after PATIENCE, again each minute, and when a reported wait is over; else "".
        Call it every second or so: the wait is counted from the first call with `stands`. `now`: seconds of a monotonic
        clock; `stands`: True if work is waiting for an executor now.
        """
        if not stands:
            waited, last_message = now - (self._since or now), self._last_message
            self._since = self._last_message = None
            return (
                f"Executor available on {self._master} after {waited:.0f} s, continuing."
                if last_message is not None
                else ""
            )
        self._since = now if self._since is None else self._since
        if now - (self._since + PATIENCE if self._last_message is None else self._last_message + _AGAIN) < 0:
            return ""
        self._last_message = now
        return (
            f"Waiting for {self._master}: no executor has registered in {now - self._since:.0f} s. Has it a worker with a free "
            f"core and {self._memory} of memory? Its page tells. Goes on as soon as there is one (--conf "
            "spark.executor.memory=… asks for less); Ctrl-C ends it."
        )


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
        """Prints the first line of a command on standard error, with any output format: the run's id and `what` it
        does. Call it before anything slow.
        """
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
        """Context with a session, made as by `kodo_pipeline.spark.spark_session.spark_session`. Prints lines about
        waits for an executor (`report_executor_wait`).
        """
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
