# pure: every branch is tested
"""Deferral: the token by which a message ends after its handler has returned."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from kodo_consumer.core.values.envelope import Duration
from kodo_consumer.core.values.object_use import misuse_error
from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome

if TYPE_CHECKING:
    from kodoctl.errors import UsageError

log = logging.getLogger("kodo.consumer")
NOT_ENDED: Final = Failed("deferred message not ended in time")
_QUIET: Final = 10.0  # seconds between two warnings of tokens that were used too late
_warned: Final = [float("-inf")]
Timeout = timedelta | str
ReadError = Callable[[BaseException, Any], Outcome]
"""Returns the outcome of an exception that a handler raised, or could have raised, for a message."""


class DeferringSource(Protocol):
    """Source of work (WorkSource) whose messages may stay open after their handler has returned. Each `message` is a
    kodo_consumer.message.Message; the type is Any, because that module imports this one.
    """

    def leave_open(self, message: Any, timeout: float | None) -> bool:
        """Ends the handler run of a message that a token ends later: its slot is free. `timeout`: seconds from now
        after which the attempt counts as failed; None: as the settings say. Returns False if the run has ended already.
        """

    def end(self, message: Any, outcome: Outcome) -> bool:
        """Takes the outcome of a message that was left open. Returns False, without effect, if it has ended already."""


class _State(Enum):
    HANDLING = "its handler has not returned"
    OPEN = "it is open"
    USED = "it was used before"
    OVER = "the worker has ended this attempt before: its deadline passed, its handler failed, or the worker ended"


class Deferral:
    """Token of a deferred message: the first call of `done` or `failed` ends the message, from any thread or task.

    That call returns True. While the handler still runs, it returns True as well, and counts when the handler returns;
    if the handler then raises or times out, that counts instead.

    `done` and `failed` return False, without effect, if the message had ended before: the token was used, the deadline
    passed, the handler raised, or the worker ended. A warning is logged then, one in 10 s for all tokens.
    """

    __slots__ = ("_error", "_lock", "_message", "_read", "_source", "_state", "_timeout")
    _source: DeferringSource  # both set when the handler returns
    _read: ReadError

    def __init__(self, message: Any, timeout: float | None) -> None:
        self._message, self._timeout = message, timeout
        self._lock = threading.Lock()  # never held while the worker is called
        self._state = _State.HANDLING
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"Deferral({self._message.id}: {self._state.value})"

    @property
    def is_open(self) -> bool:
        """True until this token is used, or the message has ended without it."""
        return self._state in (_State.HANDLING, _State.OPEN)

    def done(self) -> bool:
        """Ends the message as done, when its handler has returned: it is acknowledged soon, and the result is not
        awaited. Returns False if it had ended before.
        """
        return self._use(None)

    def failed(self, error: BaseException) -> bool:
        """Ends the message, when its handler has returned, as if this had raised `error`: a request such as Retry or
        Dead, or any other exception. Returns False if it had ended before. Raises TypeError for anything but an
        exception.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"failed takes the exception that the handler would have raised, not {error!r}")
        return self._use(error)

    def _use(self, error: BaseException | None) -> bool:
        with self._lock:
            before = self._state
            if self.is_open:
                self._state, self._error = _State.USED, error
        match before:
            case _State.HANDLING:
                return True  # handed back when the handler returns
            case _State.OPEN:
                return self._hand_back() or self._refuse(_State.OVER)
            case _:
                return self._refuse(before)

    def _hand_back(self) -> bool:
        outcome = DONE if self._error is None else self._read(self._error, self._message)
        return self._source.end(self._message, outcome)

    def _refuse(self, why: _State) -> bool:
        now = time.monotonic()
        if now - _warned[0] >= _QUIET:
            _warned[0] = now
            log.warning("a token of a deferred message is used in vain, message %s: %s", self._message.id, why.value)
        return False

    # ---- called by the worker

    def on_return(self, source: DeferringSource, read: ReadError) -> None:
        """Leaves the message open, because its handler returned; ends it at once if the token was used before. For
        executors.
        """
        self._source, self._read = source, read
        is_open = source.leave_open(self._message, self._timeout)
        with self._lock:
            before = self._state
            if before is _State.HANDLING and is_open:
                self._state = _State.OPEN
        if before is _State.USED and is_open:
            self._hand_back()

    def close(self) -> None:
        """Ends the token, because its message ended without it or the worker ends. No effect on a used token."""
        with self._lock:
            if self.is_open:
                self._state = _State.OVER


def new_deferral(message: Any, runs: Mapping[Any, float] | None, timeout: Timeout | None) -> Deferral:
    """New token of a message. `runs`: only whether it is None counts, which means that this message cannot be deferred;
    the caller checks that the handler runs. `timeout`: a timedelta (a negative one counts as 0), or a text such as
    `10m`; None: as the settings say. Raises UsageError if the message cannot be deferred, UnitError for a text that is
    no time or is negative, TypeError for a value that is neither a timedelta nor a text.
    """
    if runs is None:
        detail = "only a worker or a Harness can keep a message; handlers in processes and of batches end theirs by returning"
        raise misuse_error(f"defer: {detail}")
    if isinstance(timeout, str):
        return Deferral(message, Duration.parse(timeout).seconds)
    try:
        seconds = None if timeout is None else max(0.0, timeout.total_seconds())
    except AttributeError:
        raise TypeError(f'timeout is a timedelta or a text such as "10m", not {timeout!r}') from None
    return Deferral(message, seconds)


def ended_error() -> UsageError:
    """Returns the error to raise where a message is deferred whose handler has returned, raised or timed out."""
    return misuse_error("defer: the handler of this message has ended")
