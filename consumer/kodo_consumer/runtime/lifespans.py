"""Lifespans of a consumer: resources, such as a pool of connections, that are made before the first message and closed
after the last one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.runtime.handler_import import import_failure
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.runtime.dependencies import Provider

log = logging.getLogger("kodo.consumer")
DECLARED: Final = "__kodo_declared__"
"""Attribute of a handler's function, with its declaration."""


def lifespans_of(function: Callable[..., Any]) -> Lifespans:
    """Lifespans of the consumer that the function was declared on as a handler; none without such a declaration."""
    lifespans = getattr(getattr(function, DECLARED, None), "lifespans", None)
    return lifespans if isinstance(lifespans, Lifespans) else Lifespans()


class Lifespans:
    """The lifespans of one consumer. `values`: what each has yielded, by its function; None before it is entered."""

    def __init__(self) -> None:
        self.values: dict[Provider, Any] = {}
        self._entered = ExitStack()
        self._managers: dict[Provider, tuple[Callable[[], Any], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._managers)

    @property
    def is_any_async(self) -> bool:
        """True if a lifespan has to be entered on an event loop."""
        return any(is_async for _, is_async in self._managers.values())

    def add(self, function: Provider) -> None:
        """Adds a lifespan: a generator function without parameters, plain or async, that yields once, or one that
        contextmanager or asynccontextmanager has decorated. Raises UsageError for anything else.
        """
        name = _name(function)
        original = inspect.unwrap(function)
        is_async = inspect.isasyncgenfunction(original)
        if not is_async and not inspect.isgeneratorfunction(original):
            raise _invalid(f"{name} is no generator: it has to yield once, between making and closing")
        try:
            inspect.signature(function).bind()
        except TypeError as problem:
            raise _invalid(f"{name} is called without arguments: {problem}") from None
        manager = function
        if original is function:
            manager = asynccontextmanager(function) if is_async else contextmanager(function)
        self._managers[function] = (manager, is_async)
        self.values[function] = None

    def check(self, *, is_async: bool) -> None:
        """Raises UsageError for async lifespans of a plain handler, which has no event loop. `is_async`: the handler is
        async.
        """
        if not is_async and (names := [_name(one) for one, (_, is_async) in self._managers.items() if is_async]):
            raise _invalid(f"{', '.join(names)} is async, and the handler is a plain function")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which all lifespans are entered, in the order of their declaration; they are left in the reverse
        order. Raises KodoctlError if one fails at its begin.
        """
        with ExitStack() as stack:
            for function, (manager, _) in self._managers.items():
                with _reporting(function):
                    self.values[function] = stack.enter_context(manager())
            yield

    def enter(self) -> None:
        """Enters all lifespans as `entered` does, until `leave`."""
        self._entered.enter_context(self.entered())

    def leave(self) -> None:
        """Leaves the lifespans that `enter` entered; further calls do nothing. Errors are logged."""
        try:
            self._entered.close()
        except Exception as problem:  # noqa: BLE001  # of the user's code
            _log_end(problem)

    async def hold(self, entered: asyncio.Future[None], leave: asyncio.Event) -> None:
        """Enters all lifespans, on the event loop of the handlers, and leaves them when `leave` is set: in one task, as
        task groups and time limits need it. `entered` gets the result of entering: a KodoctlError if one fails. Errors
        at the end are logged.
        """
        try:
            async with AsyncExitStack() as stack:
                for function, (manager, is_async) in self._managers.items():
                    with _reporting(function):
                        context = manager()
                        self.values[function] = (
                            await stack.enter_async_context(context) if is_async else stack.enter_context(context)
                        )
                entered.set_result(None)
                await leave.wait()
        except Exception as problem:  # noqa: BLE001  # of the user's code
            if entered.done():
                _log_end(problem)
            else:
                entered.set_exception(problem)


def _log_end(problem: Exception) -> None:
    """Logs an error of a lifespan that was to close its resources; the worker has ended all the same."""
    log.error("a lifespan failed at its end: %s", import_failure(problem), exc_info=problem)


@contextmanager
def _reporting(function: Provider) -> Iterator[None]:
    try:
        yield
    except KodoctlError:
        raise
    except Exception as problem:
        raise KodoctlError(
            error("K770", "lifespan failed", f"{_name(function)}: {import_failure(problem)}")
        ) from problem


def _name(function: Provider) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _invalid(detail: str) -> UsageError:
    return UsageError(error("K769", "invalid lifespan", detail))
