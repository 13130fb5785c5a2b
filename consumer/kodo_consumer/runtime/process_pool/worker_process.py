"""Process of the pool: imports the handler, handles one message after the other, and reports each result.

Memory that is shared with the worker has the numbers of started and finished messages, written at each step. If the
process dies, however suddenly, the worker finds the one message that was at work, and no other is handled twice.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import parent_process
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from kodo_consumer.core.payloads.codec import Payloads, model_of
from kodo_consumer.core.values.exceptions import Unavailable
from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome
from kodo_consumer.runtime.dependencies import inject
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.handler_import import import_failure
from kodo_consumer.runtime.handler_results import SingleResult, check_results
from kodo_consumer.runtime.lifespans import lifespans_of
from kodo_consumer.runtime.log_output import LogSetup, traceback_text
from kodo_consumer.runtime.process_pool.wire_format import pack_frame, pack_outcome, read_frame, unpack_message
from kodo_consumer.runtime.stray_errors import redact_stray_errors
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import KodoctlError
from kodoctl.host.programs import imports_as_before

if TYPE_CHECKING:
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.policy import Lane
    from kodo_consumer.message import Check, Message

BEGAN, STARTED, FINISHED, RECALLED, SPENT = range(5)
"""Cells: monotonic ns at which the message at work began; number of started messages; number of finished messages;
number of the last bundle whose unstarted messages were taken back; ns spent in the handler so far.
"""
CELLS: Final = 5
_REPORT_EVERY: Final = 2_000_000  # ns between two reports of a bundle that is done fast


class Cells(Protocol):
    """Whole numbers in shared memory."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """Task of a process: `module` and qualified name of the handler (`function`), the lanes of its messages, the check
    of payloads, the reader of error texts, and the names of the consumer's lifespans. `log`: log output that the
    process sets up as the worker has; None: it leaves that to the program.
    """

    module: str
    function: str
    lanes: tuple[Lane, ...]
    check: Check | None
    texts: ErrorTextReader | None = None
    lifespans: tuple[str, ...] = ()
    log: LogSetup | None = None


def main(job: ProcessTask, line: socket.socket, cells: Cells, lock: AbstractContextManager[Any]) -> None:
    """Body of the process: handles messages until the worker closes its end of `line`, and ends at once if the worker
    dies; ignores SIGINT and SIGTERM. If the handler cannot be imported, or its providers or lifespans fail, reports
    that to the worker and returns. `cells`: shared numbers, by the indices BEGAN, STARTED, FINISHED, RECALLED and
    SPENT; `lock`: each end holds it while it sets which messages have started or are taken back.
    """
    imports_as_before()
    redact_stray_errors(job.texts, sys.modules[__name__])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # both reach the whole group; the worker drains, then closes the line
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin(_end_with_parent, "kodo-parent", lambda _: os._exit(1))
    with ExitStack() as resources:
        try:
            found = _find_handler(job)
            if job.log is not None:  # after the import, which sets up the program's own logging
                job.log.apply()
            lifespans = lifespans_of(found)
            lifespans.check_names(job.lifespans)
            inject(found, lifespans.values)
            lifespans.check(is_async=False)
            lifespans.enter()
            resources.callback(lifespans.leave)
        except BaseException as problem:  # noqa: BLE001  # whatever a module does when it is imported
            text = problem.diagnostics[0].detail if isinstance(problem, KodoctlError) else import_failure(problem)
            line.sendall(pack_frame(("broken", text)))
            return
        _work(job, found, lifespans.values, line, cells, lock)


def _work(
    job: ProcessTask,
    handler: Callable[..., Any],
    lasting: Mapping[Callable[..., Any], Any],
    line: socket.socket,
    cells: Cells,
    lock: AbstractContextManager[Any],
) -> None:
    known: dict[str, Any] = {}
    if isinstance(job.check, Payloads):
        job = replace(job, check=job.check.with_model(model_of(handler), partial(_definition, known)))
    with suppress(OSError):  # the worker has closed its end
        line.sendall(pack_frame(("ready",)))
        result = SingleResult(f"{job.module}:{job.function}", lambda text: line.sendall(pack_frame(("warning", text))))
        handler = inject(handler, lasting, call=check_results(handler, result))
        _Work(job, handler, known, line, cells, lock).run()


def _find_handler(job: ProcessTask) -> Callable[[Message], object]:
    module = sys.modules["__main__"] if job.module == "__main__" else import_module(job.module)
    handler: Callable[[Message], object] = attrgetter(job.function)(module)
    return handler


def _definition(known: Mapping[str, Any], version: str) -> Any:
    """Definition of a schema version that the worker has sent. Raises Unavailable for one that the worker could not
    read: with another definition the message might become a dead letter.
    """
    try:
        return known[version]
    except KeyError:
        raise Unavailable("schemas of the broker") from None


def _end_with_parent() -> None:
    """Ends this process when the worker dies, because the broker then gives its messages to other workers."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class _Work:
    def __init__(
        self,
        job: ProcessTask,
        handler: Callable[[Message], object],
        schemas: dict[str, Any],
        line: socket.socket,
        cells: Cells,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._schemas = schemas  # definitions by version
        self._job, self._handler, self._line, self._cells, self._lock = job, handler, line, cells, lock
        self._trace: tuple[str, str, str] | None = None
        self._complaints = ExceptionReporter(job.texts, self._keep_trace)

    def run(self) -> None:
        stream = self._line.makefile("rb")
        with stream:
            while (bundle := read_frame(stream.read)) is not None:
                self._bundle(*bundle)

    def _bundle(
        self,
        number: int,
        first: int,
        messages: list[tuple[Any, ...]],
        schemas: dict[str, Any],
        carriers: list[dict[str, str]] | None,
    ) -> None:
        job, cells, lock, now = self._job, self._cells, self._lock, time.monotonic_ns
        self._schemas.update(schemas)
        reported = began = now()
        for sequence, values in enumerate(messages, first):
            with lock:  # the worker takes back what has not started: both must agree on what has
                if cells[RECALLED] >= number:
                    break
                cells[BEGAN] = began
                cells[STARTED] = sequence + 1
            message = unpack_message(values, job.lanes, job.check)
            outcome = (
                self._handle(message)
                if carriers is None
                else self._handle_in_trace(message, carriers[sequence - first])
            )
            if outcome is not DONE:
                self._line.sendall(pack_frame(("outcome", sequence, _pack_or_fail(outcome), self._trace)))
                self._trace = None
            ended = now()
            cells[SPENT] += ended - began
            cells[FINISHED] = sequence + 1
            began = ended
            if began - reported > _REPORT_EVERY:
                self._line.sendall(pack_frame(("finished",)))
                reported = began
        self._line.sendall(pack_frame(("finished",)))
        for version in [one for one, definition in schemas.items() if definition is None]:
            del self._schemas[version]  # senders choose versions: none that there is not is kept

    def _handle_in_trace(self, message: Message, carrier: dict[str, str]) -> Outcome:
        """Handles a message in the trace of the worker's span."""
        from kodo_consumer.adapters.tracing.propagation import within

        with within(carrier):
            return self._handle(message)

    def _handle(self, message: Message) -> Outcome:
        try:
            copy_context().run(self._handler, message)  # what it leaves there is not for the next message
        except BaseException as problem:  # noqa: BLE001  # a handler that calls sys.exit has failed as well
            return self._complaints.outcome(problem, message)
        return DONE

    def _keep_trace(self, text: str, problem: BaseException | None, fields: Mapping[str, object]) -> None:
        trace = "" if problem is None else traceback_text(problem, problem.__traceback__)
        self._trace = text, trace, str(fields.get("error", ""))


def _pack_or_fail(outcome: Outcome) -> tuple[Any, ...]:
    try:
        values = pack_outcome(outcome)
        pack_frame(values)
    except ValueError:  # a verdict with values of the user's own kinds
        return pack_outcome(Failed(f"{type(outcome).__name__} of values that are not plain"))
    return values
