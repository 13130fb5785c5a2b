"""Errors of handlers: makes an outcome of a raised exception, and logs a traceback every 10 s at most.

The 10 s count for each kind of error. A verdict becomes its own outcome without a log entry.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from kodo_consumer.core.exceptions import HandlerSignal, outcome_of
from kodo_consumer.core.outcomes import Failed, Outcome

log = logging.getLogger("kodo.consumer")
_QUIET: Final = 10.0  # seconds between two tracebacks of one kind of error


class ExceptionReporter:
    """Reports handlers that raise what is no verdict: a traceback for each kind of error once in a while."""

    def __init__(self, say: Callable[[BaseException], object] | None = None) -> None:
        self._say = say or _log
        self._last: dict[type[BaseException], float] = {}

    def outcome(self, problem: BaseException) -> Outcome:
        """Outcome for a raised exception. The reason is its class: messages may hold secrets, and travel."""
        if isinstance(problem, HandlerSignal):
            try:
                return outcome_of(problem)
            except Exception as nested:  # noqa: BLE001  # a verdict of the user's own making
                problem = nested
        kind, now = type(problem), time.monotonic()
        if now - self._last.get(kind, float("-inf")) >= _QUIET:
            self._last[kind] = now
            self._say(problem)
        return Failed(kind.__name__)


def _log(problem: BaseException) -> None:
    log.warning("handler failed with %s", type(problem).__name__, exc_info=problem)
