"""Reports of waits for Spark executors: they name the resource that a full cluster lacks. Spark itself waits for ever,
and its warning is not shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PATIENCE: Final = 15.0
"""Seconds that work waits without an executor before the first report; the start of one takes some seconds."""
_AGAIN: Final = 60.0  # seconds between two words of one wait
_LOOK: Final = 1.0


@contextmanager
def report_executor_wait(spark: SparkSession, tell: Callable[[str], None]) -> Iterator[None]:
    """Context in which `tell` is called, in another thread, with a line when Spark waits for executors, and with
    another when the wait is over. Does nothing in local mode, in which there is no such wait.
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
    """Decides when to print a line about a wait for an executor, and which. `memory`: memory that an executor requests,
    as Spark writes it.
    """

    def __init__(self, master: str, memory: str) -> None:
        self._master, self._memory = master, memory
        self._since: float | None = None
        self._last_message: float | None = None

    def look(self, now: float, *, stands: bool) -> str:
        """Line to print now; "" if there is none. `now`: seconds of a monotonic clock; `stands`: True if work is
        waiting for an executor now.
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
