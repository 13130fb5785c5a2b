"""Results of handlers and hooks: None is done, an exception counts as raised, and work that nobody awaits has failed.

A plain function around an async one returns a coroutine that never ran: it must not count as done.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

log = logging.getLogger("kodo.consumer")
Judge = Callable[[Any], Any]
"""Function that gets the result of a handler, if it is not None, and returns the part that counts. Raises
NotAwaitedError, or a returned exception.
"""
_REMEDY: Final = "declare it async, and await there what it calls"
_REMEDY_OF_FUTURES: Final = "wait there for its result()"


class NotAwaitedError(RuntimeError):
    """A handler or hook returned work that nobody awaits: it must not count as done."""


class SingleResult:
    """Judge of the results of handlers of one message: refuses unawaited work, raises an exception that was returned,
    and ignores other values, with one warning.
    """

    def __init__(self, name: str, warn: Callable[[str], object] = log.warning) -> None:
        self._name, self._warn = name, warn
        self._warned = False

    def __call__(self, result: Any) -> None:
        """Raises NotAwaitedError for unawaited work, or the exception that is the result. Any other value is ignored,
        with a warning the first time. Not called for None.
        """
        refuse_unawaited(result, self._name)
        if isinstance(result, BaseException):
            raise result
        if not self._warned:
            self._warned = True
            self._warn(
                f"{self._name} returned a value ({type(result).__name__}), which is ignored: the message counts as done. "
                "Return None; to have it tried again, moved or discarded, raise"
            )


class BatchResult:
    """Judge of the results of batch handlers: refuses unawaited work, also among the outcomes of single messages. The
    outcomes themselves are checked elsewhere.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, result: Any) -> Any:
        """Returns the result. Raises NotAwaitedError if it, or one of its outcomes, is unawaited work."""
        refuse_unawaited(result, self._name)
        outcomes: Iterable[Any] = ()
        if isinstance(result, Mapping):
            outcomes = result.values()
        elif isinstance(result, Sequence) and not isinstance(result, str | bytes):
            outcomes = result
        if unawaited := [one for one in outcomes if _is_unfinished(one)]:
            for one in unawaited:
                close(one)
            refuse_unawaited(unawaited[0], self._name)
        return result


def check_results(function: Callable[..., Any], judge: Judge) -> Callable[..., Any]:
    """Wraps a plain function: a result that is not None goes to `judge`, whose return value becomes the result."""

    def run(message: Any, **dependencies: Any) -> Any:
        result = function(message, **dependencies)
        return None if result is None else judge(result)

    return run


def check_async_results(function: Callable[..., Any], judge: Judge) -> Callable[..., Any]:
    """Wraps an async function: a result that is not None goes to `judge`, whose return value becomes the result."""

    async def run(message: Any, **dependencies: Any) -> Any:
        result = await function(message, **dependencies)
        return None if result is None else judge(result)

    return run


def refuse_unawaited(result: object, name: str) -> None:
    """Raises NotAwaitedError for a coroutine, another awaitable, a future of an executor, or a generator (async ones,
    too); any other result passes. Closes a coroutine or a plain generator before, because Python's own warning would
    come too late to name the handler. Leaves other objects as they are: they may be tasks of the user.
    """
    if _is_unfinished(result):
        close(result)
        remedy = _REMEDY_OF_FUTURES if isinstance(result, Future) else _REMEDY
        raise NotAwaitedError(
            f"{name} returned a {type(result).__name__} that nobody awaits, so its work is not done: {remedy}"
        )


def close(result: object) -> None:
    """Closes a coroutine or generator that is not running; leaves other awaitables alone, because they may be tasks of
    the user.
    """
    if isinstance(result, Coroutine | Generator):
        with suppress(Exception):  # its own clean-up may fail, where it had started
            result.close()


def _is_unfinished(result: object) -> bool:
    return inspect.isawaitable(result) or isinstance(result, Generator | AsyncGenerator | Future)


def is_coroutine(function: object) -> bool:
    """True if the result of a call has to be awaited: the function, or the `__call__` of an object, is async."""
    call = getattr(type(function), "__call__", None)  # noqa: B004  # its own, to look at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def call_problem(hook: Callable[..., Any], arguments: Sequence[str]) -> str:
    """Reason why the hook cannot be called with as many positional arguments as `arguments` has; empty: it can, or it
    has no signature to check.
    """
    try:
        inspect.signature(hook).bind(*arguments)
    except TypeError as problem:
        return str(problem)
    except ValueError:
        return ""
    return ""
