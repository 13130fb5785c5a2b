"""Errors of handlers: makes an outcome of a raised exception, and logs a traceback every 10 s at most.

The 10 s count for each kind of error. A verdict, which is an exception such as Retry, becomes its own outcome without a
log entry. A fault of the infrastructure, such as a full disk or a missing table, is no failure of the message: the
message waits, and no attempt is counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.values.exception_groups import spokesman
from kodo_consumer.core.values.exceptions import HandlerSignal, outcome_of
from kodo_consumer.core.values.infrastructure_faults import FaultKind, fault_of
from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.outcomes import (
    DependencyUnavailable,
    ErrorDetails,
    Failed,
    Outcome,
    error_of,
    with_error,
)
from kodo_consumer.runtime.batch_executor import Batch
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    import asyncio

    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.message import Message

    Forecast = Callable[[Message, Outcome], str]

log = logging.getLogger("kodo.consumer")
_MAX_TENANT: Final = 60  # characters of a tenant's name
_QUIET: Final = 10.0  # seconds between two tracebacks of one kind of error


class ExceptionReporter:
    """Makes outcomes of exceptions, and logs those that are no verdict: each kind every 10 s at most, by `say` (None:
    the log).

    `texts` reads error texts that travel with messages. If `texts` redacts, the log has the redacted text, no
    traceback, because a traceback has the whole text, and no tenant, because patterns are for texts of errors alone.
    `forecast` returns the next step of the message as text.
    """

    def __init__(
        self,
        texts: ErrorTextReader | None = None,
        say: Callable[[str, BaseException | None], object] | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._texts, self._say, self._forecast = texts, say or _log, forecast
        self._last: dict[type[BaseException], float] = {}

    def outcome(self, problem: BaseException, failed: Message | Batch | None = None) -> Outcome:
        """Outcome for an exception that a handler raised, or that a batch handler returned for one message. Its reason
        is the class alone, because an exception's text may hold secrets and the reason travels with the message.
        `failed`: the message or batch, for the log.
        """
        raised, problem = problem, spokesman(problem)
        if isinstance(problem, HandlerSignal):
            try:
                return self._with_error(outcome_of(problem), problem)
            except Exception as nested:  # noqa: BLE001  # a verdict of the user's own making
                raised = problem = nested
        kind, now = type(problem), time.monotonic()
        found = self._with_error(self._failure(problem), problem)
        if now - self._last.get(kind, float("-inf")) >= _QUIET:
            self._last[kind] = now
            text = f"handler failed with {kind.__name__}{self._about(failed, found)}"
            if isinstance(found, DependencyUnavailable):
                self._say(f"{text}, its messages wait for: {found.dependency}", None)
            else:
                report_error(self._texts, text, raised, error_of(found), self._say)
        return found

    def _failure(self, problem: BaseException) -> Outcome:
        """Outcome of an exception that is no verdict. A busy infrastructure counts as a failure, which may succeed at
        the next try.
        """
        fault = fault_of(problem)
        if fault is None or fault.kind is FaultKind.BUSY:
            return Failed(type(problem).__name__)
        return DependencyUnavailable(fault.what if self._redacts else str(fault))

    def _about(self, failed: Message | Batch | None, outcome: Outcome) -> str:
        """Text that names the failed message and its next step: ` (kodo/trade/orders:billing, ...; tried again in about
        1 s)`. For a batch it names the first message and the number of the others.
        """
        if failed is None:
            return ""
        first, *others = failed.messages if isinstance(failed, Batch) else [failed]
        parts = [first.subscription, f"lane {first.level}/{first.state}"]
        if first.tenant not in ("", NOBODY) and not self._redacts:
            parts.append(f"tenant {one_line(first.tenant, _MAX_TENANT)}")
        parts += [f"message {one_line(first.id)}", f"attempt {first.attempt}"]
        if others:
            parts.append(f"and {many(len(others), 'other message')} of its batch")
        following = "" if self._forecast is None else self._forecast(first, outcome)
        return f" ({', '.join(parts)}{f'; {following}' if following else ''})"

    @property
    def _redacts(self) -> bool:
        return self._texts is not None and self._texts.redacts

    def _with_error(self, outcome: Outcome, problem: BaseException) -> Outcome:
        return outcome if self._texts is None else with_error(outcome, self._texts.read(problem))

    def stray(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exception handler of an event loop: logs errors that no code awaits, such as those of tasks that a handler
        left behind, redacted if `texts` redacts.
        """
        if self._texts is None or not self._texts.redacts:
            loop.default_exception_handler(context)
            return
        text, problem = self._texts.redact(str(context.get("message", ""))), context.get("exception")
        if problem is None:
            log.error("%s", text)
        else:
            report_error(self._texts, f"{text}: {type(problem).__name__}", problem)


def report_error(
    texts: ErrorTextReader | None,
    text: str,
    problem: BaseException,
    error: ErrorDetails | None = None,
    say: Callable[[str, BaseException | None], object] | None = None,
) -> None:
    """Logs an exception of the user's code, or passes it to `say` (text, exception): with its traceback or, if error
    texts are redacted, with its redacted text only. `error`: its details, if they have been read. Only this function
    logs such exceptions.
    """
    say = say or _log
    if texts is None or not texts.redacts:
        say(text, problem)
    else:
        say(f"{text}{texts.in_words(error or texts.read(problem))}", None)


def _log(text: str, problem: BaseException | None) -> None:
    log.warning("%s", text, exc_info=problem)
