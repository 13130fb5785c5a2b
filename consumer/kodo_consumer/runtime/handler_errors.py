"""Errors of handlers: makes an outcome of a raised exception, and logs it: the first of its kind in 10 s with its
traceback, nine more with a line each. The worker's FailureTally logs how many there were.

A verdict, which is an exception such as Retry, becomes its own outcome without a log entry: the worker logs verdicts
(outcome_log.py). A fault of the infrastructure, such as a full disk or a missing table, is no failure of the message:
the message waits, and no attempt is counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from kodo_consumer.core.values.exception_groups import spokesman
from kodo_consumer.core.values.exceptions import HandlerSignal, outcome_of
from kodo_consumer.core.values.infrastructure_faults import FaultKind, fault_of
from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.outcomes import (
    DONE,
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

    from kodo_consumer.core.values.deferral import DeferringSource
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.message import Message

    Forecast = Callable[[Message, Outcome], str]

log = logging.getLogger("kodo.consumer")
_MAX_TENANT: Final = 60  # characters of a tenant's name
_QUIET: Final = 10.0  # seconds between two tracebacks of one kind of error
_MOST_KINDS: Final = 1_000  # kinds of errors that are remembered, before those are forgotten that are quiet
_LINES: Final = 10  # log entries about one kind of error in that time
Say = Callable[[str, BaseException | None, Mapping[str, object]], object]
"""Function that writes a log entry: its text, an exception whose traceback is to be shown (None: none), and the fields
of a structured entry.
"""


class LogRate:
    """Rate of log entries: ten of each kind in 10 s at most. `take` may be called by several threads; entries of one
    moment may then be a few more.
    """

    def __init__(self) -> None:
        self._logged: dict[object, tuple[float, int]] = {}  # by kind: since when, and how often since

    def take(self, kind: object) -> int | None:
        """Counts an entry of a kind. Returns the number of those before it in these 10 s; None: it is one too many."""
        now = time.monotonic()
        since, lines = self._logged.get(kind, (float("-inf"), 0))
        if now - since >= _QUIET:
            since, lines = now, 0
            if len(self._logged) >= _MOST_KINDS:  # classes that a program makes as it runs
                self._logged = {one: last for one, last in list(self._logged.items()) if now - last[0] < _QUIET}
        self._logged[kind] = since, lines + 1
        return lines if lines < _LINES else None


class ExceptionReporter:
    """Makes outcomes of exceptions, and logs those that are no verdict, ten of each kind in 10 s at most, by `say`
    (None: the log).

    `texts` reads error texts that travel with messages. If `texts` redacts, the log has the redacted text, no
    traceback, because a traceback has the whole text, and no tenant, because patterns are for texts of errors alone.
    `forecast` returns the next step of the message as text.
    """

    def __init__(
        self,
        texts: ErrorTextReader | None = None,
        say: Say | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._texts, self._say, self._forecast = texts, say or _log, forecast
        self._rate = LogRate()

    def outcome(self, problem: BaseException, failed: Message | Batch | None = None) -> Outcome:
        """Outcome for an exception that a handler raised, or that a batch handler returned for one message: that of a
        verdict, DependencyUnavailable for a fault of the infrastructure other than FaultKind.BUSY, else Failed. Logs an
        exception that is no verdict. The reason of Failed is the class alone, because an exception's text may hold
        secrets and the reason travels with the message. `failed`: the message or batch, for the log.
        """
        raised, problem = problem, spokesman(problem)
        if isinstance(problem, HandlerSignal):
            try:
                return self._with_error(outcome_of(problem), problem)
            except Exception as nested:  # noqa: BLE001  # a verdict of the user's own making
                raised = problem = nested
        outcome = self._with_error(self._failure(problem), problem)
        self._report(problem, raised, failed, outcome)
        return outcome

    def outcome_of_return(self, source: WorkSource, returned: Message | Batch) -> Outcome | None:
        """Outcome of a handler run that ended with a return: DONE; None if the handler deferred its message, whose
        outcome the token passes to `source` later. `returned`: the message or batch of the run.
        """
        deferral = None if isinstance(returned, Batch) else returned.deferral
        if deferral is None:
            return DONE
        deferral.on_return(cast("DeferringSource", source), self.outcome)
        return None

    def _report(
        self, problem: BaseException, raised: BaseException, failed: Message | Batch | None, outcome: Outcome
    ) -> None:
        kind = type(problem)
        if (earlier := self._rate.take(kind)) is None:
            return
        about, fields = self._about(failed, outcome)
        text, fields = f"handler failed with {kind.__name__}{about}", {"error": kind.__name__, **fields}
        if isinstance(outcome, DependencyUnavailable):
            self._say(f"{text}, its messages wait for: {outcome.dependency}", None, fields)
        elif earlier:
            self._say(text, None, fields)
        else:
            report_error(self._texts, text, raised, error_of(outcome), self._say, fields)

    def _failure(self, problem: BaseException) -> Outcome:
        """Outcome of an exception that is no verdict. A busy infrastructure counts as a failure, which may succeed at
        the next try.
        """
        fault = fault_of(problem)
        if fault is None or fault.kind is FaultKind.BUSY:
            return Failed(type(problem).__name__)
        return DependencyUnavailable(fault.what if self._redacts else str(fault))

    def _about(self, failed: Message | Batch | None, outcome: Outcome) -> tuple[str, Mapping[str, object]]:
        """Text that names the failed message and its next step: ` (kodo/trade/orders:billing, ...; tried again in about
        1 s)`, and the same as fields. For a batch both name the first message and the number of the others.
        """
        if failed is None:
            return "", {}
        first, *others = failed.messages if isinstance(failed, Batch) else [failed]
        following = "" if self._forecast is None else self._forecast(first, outcome)
        fields = message_fields(first, following, redacts=self._redacts)
        words = message_words(fields)
        if others:
            words += f", and {many(len(others), 'other message')} of its batch"
            fields["others_of_batch"] = len(others)
        return f" ({words}{f'; {following}' if following else ''})", fields

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


def message_fields(message: Message, following: str = "", *, redacts: bool = False) -> dict[str, object]:
    """Fields of a structured log entry about a message. `following`: its next step; empty: none, or not known.
    `redacts`: error texts are redacted, and the tenant stays out as well.
    """
    fields: dict[str, object] = {
        "subscription": message.subscription,
        "lane": f"{message.level}/{message.state}",
        "message_id": one_line(message.id),
        "attempt": message.attempt,
    }
    if message.tenant not in ("", NOBODY) and not redacts:
        fields["tenant"] = one_line(message.tenant, _MAX_TENANT)
    if following:
        fields["next_step"] = following
    return fields


def message_words(fields: Mapping[str, object]) -> str:
    """Text that names a message by its fields: `kodo/trade/orders:billing, lane L1/ready, message 8f1c, attempt 1`."""
    tenant = f", tenant {fields['tenant']}" if "tenant" in fields else ""
    place = f"{fields['subscription']}, lane {fields['lane']}{tenant}"
    return f"{place}, message {fields['message_id']}, attempt {fields['attempt']}"


def report_error(
    texts: ErrorTextReader | None,
    text: str,
    problem: BaseException,
    error: ErrorDetails | None = None,
    say: Say | None = None,
    fields: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Logs an exception of the user's code, or passes it to `say`: with its traceback or, if error
    texts are redacted, with its redacted text only. `error`: its details, if they have been read. `fields`: those of a
    structured entry. Only this function logs such exceptions.
    """
    say = say or _log
    if texts is None or not texts.redacts:
        say(text, problem, fields)
    else:
        say(f"{text}{texts.in_words(error or texts.read(problem))}", None, fields)


def _log(text: str, problem: BaseException | None, fields: Mapping[str, object]) -> None:
    log.warning("%s", text, exc_info=problem, extra=fields)
