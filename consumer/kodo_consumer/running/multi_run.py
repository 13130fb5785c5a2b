"""Runner of several consumers in one process: they start together, drain together and end together."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol

from kodo_consumer.core.values.object_use import misuse_error
from kodo_consumer.runtime.handler_import import refuse_to_run_in_an_import
from kodo_consumer.runtime.log_output import set_up_logging
from kodo_consumer.runtime.settings import read_settings
from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.host.end_signals import ending_on_signals
from kodoctl.host.host_facts import working_folder

log = logging.getLogger("kodo.consumer")
_POLL: Final = 0.5  # seconds: Python runs signal handlers between two waits


class RunnableConsumer(Protocol):
    """The methods of a consumer that `run_all` needs."""

    def start(self) -> None:
        """Connects, starts the worker and returns."""

    def stop(self) -> None:
        """Drains the worker and disconnects; further calls do nothing. Raises the error that broke the worker, if there
        is one.
        """

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the worker broke or was stopped, at most `seconds` (None: without limit). Returns False if the
        time ran out first.
        """

    def lanes(self) -> list[str]:
        """Returns a line of text for each lane."""

    def summary(self) -> list[str]:
        """Lines for people about the work of this consumer."""

    def reload(self) -> None:
        """Reads the consumer's topology file again. Called on any thread, also before the start."""


def run_all(
    *consumers: RunnableConsumer, say: Callable[[str], object] = log.info, ready: Callable[[], object] | None = None
) -> None:
    """Starts consumers one after the other and runs them until SIGTERM or SIGINT, or until one of them ends; then all
    drain at the same time. A second signal, more than half a second after the first, ends the process at once. SIGHUP
    reads their topology files again. Sets up logging by the settings.

    `say` gets a line for each lane of a consumer that has started, and at the end the summaries if all had started.
    `ready`: only for a process of a worker group: called once when all consumers have started; None: no group. In a
    group, further signals are ignored, because the parent, a user and the loss of the parent may each send one; the
    parent kills the process at its own second signal.

    If a consumer cannot start or breaks, the others drain as well, and its error is raised (of several, one), so that a
    process manager starts all of them again; if one is only stopped, nothing is raised. Raises UsageError without
    consumers, outside of the main thread, and while a command imports the program; KodoctlError for invalid settings.
    """
    if threading.current_thread() is not threading.main_thread():
        raise misuse_error("run: signals reach the main thread alone; call start and stop elsewhere")
    refuse_to_run_in_an_import()
    if not consumers:
        raise misuse_error("run_all: no consumer is given")
    settings = read_settings(os.environ, working_folder())
    set_up_logging(settings.log_level, settings.log_format)
    with ending_on_signals(at_once=ready is None) as asked, reloading_on_hangup([one.reload for one in consumers]):
        _run(consumers, asked, say, ready or (lambda: None))


@contextmanager
def reloading_on_hangup(reloads: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Context in which each SIGHUP calls all `reloads`, each on a thread of its own; their exceptions are logged. For
    main threads. Does nothing on systems without this signal.
    """
    if not hasattr(signal, "SIGHUP"):
        yield
        return

    def on_hangup(_number: int, _frame: FrameType | None) -> None:
        for reload in reloads:  # not in the signal's own frame: it may interrupt whoever holds the locks
            begin(reload, "kodo-hangup", log_end)

    before = signal.signal(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _run(
    consumers: Sequence[RunnableConsumer],
    asked: threading.Event,
    say: Callable[[str], object],
    ready: Callable[[], object],
) -> None:
    started: list[RunnableConsumer] = []
    try:
        for consumer in consumers:
            consumer.start()
            started.append(consumer)
            for line in consumer.lanes():
                say(f"lane {line}")
        ready()
        while not asked.is_set() and not any(consumer.wait(_POLL / len(started)) for consumer in started):
            pass
    finally:
        problems = _stop(started)
    for consumer in started:
        for line in consumer.summary():
            say(line)
    if problems:
        raise problems[0]


def _stop(consumers: Sequence[RunnableConsumer]) -> list[BaseException]:
    """Drains all consumers at the same time, each within its own drain time. Returns the errors that they raised."""
    problems: list[BaseException] = []  # of one; the others are to end in order all the same
    threads = [begin(consumer.stop, "kodo-drain", problems.append, daemon=False) for consumer in consumers]
    for thread in threads:
        thread.join()
    return problems
