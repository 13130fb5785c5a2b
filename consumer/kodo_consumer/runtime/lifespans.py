"""Lifespans of a consumer: resources, such as a pool of connections, that are made before the first message and closed
after the last one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.runtime.dependencies import LIFESPANS
from kodo_consumer.runtime.handler_import import import_failure
from kodo_consumer.runtime.stray_errors import report_stray_error
from kodo_consumer.runtime.threads import begin
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.runtime.dependencies import Provider

log = logging.getLogger("kodo.consumer")
LEAVING: Final = 10.0  # seconds that lifespans may take at their end
DECLARED: Final = "__kodo_declared__"
"""Attribute of a handler's function, with its declaration."""


def lifespans_of(function: Callable[..., Any]) -> Lifespans:
    """Lifespans of the consumer that the function was declared on as a handler; empty Lifespans without such a
    declaration.
    """
    lifespans = getattr(getattr(function, DECLARED, None), "lifespans", None)
    return lifespans if isinstance(lifespans, Lifespans) else Lifespans()


class Lifespans:
    """The lifespans of one consumer. `values`: the yielded value of each lifespan by its function; None while it is not
    entered.
    """

    def __init__(self) -> None:
        self.values: dict[Provider, Any] = {}
        self._entered: ExitStack | None = None
        self._managers: dict[Provider, tuple[Callable[[], Any], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._managers)

    def copy(self) -> Lifespans:
        """Returns a copy with the same lifespans, none of them entered. Entering the copy does not change the `values`
        of this object.
        """
        copied = Lifespans()
        copied._managers, copied.values = dict(self._managers), dict.fromkeys(self._managers)  # its own class
        return copied

    @property
    def is_any_async(self) -> bool:
        """True if a lifespan has to be entered on an event loop."""
        return any(is_async for _, is_async in self._managers.values())

    def add(self, function: Provider) -> None:
        """Adds a lifespan: a generator function that is called without arguments, plain or async, that yields once, or
        one that contextmanager or asynccontextmanager has decorated. Raises UsageError for anything else.
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
        LIFESPANS.add(function)
        self._managers[function] = (manager, is_async)
        self.values[function] = None

    @property
    def names(self) -> tuple[str, ...]:
        """Module and qualified name of each."""
        return tuple(f"{getattr(one, '__module__', '')}.{_name(one)}" for one in self._managers)

    def check_names(self, names: Sequence[str]) -> None:
        """Raises UsageError if one of `names` (module and qualified name, as in the property `names`) is missing here.
        A handler process calls it with the names of the worker's lifespans, because it has only those that the
        handler's module declares.
        """
        if missing := sorted(set(names) - set(self.names)):
            raise _invalid(f"{', '.join(missing)}: declare it in the module of the handler, which its process imports")

    def check(self, *, is_async: bool) -> None:
        """Raises UsageError for async lifespans of a plain handler, which has no event loop. `is_async`: the handler is
        async.
        """
        if not is_async and (names := [_name(one) for one, (_, is_async) in self._managers.items() if is_async]):
            raise _invalid(f"{', '.join(names)} is async, and the handler is a plain function")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which all lifespans are entered, in the order of their declaration; they are left in the reverse
        order. Raises KodoctlError if a lifespan fails at its begin, and for an async one, which needs `hold`; an error
        at its end is raised as it is.
        """
        failed: KodoctlError | None = None
        try:
            with ExitStack() as stack:
                try:
                    for function, (manager, _) in self._managers.items():
                        with _reporting(function):
                            self.values[function] = stack.enter_context(manager())
                except KodoctlError as problem:
                    failed = problem
                    raise
                yield
        finally:
            self._forget()
            if failed is not None:  # also where another lifespan swallows it, or fails for it
                raise failed

    def enter(self) -> None:
        """Enters all lifespans as `entered` does, until `leave`."""
        entered = ExitStack()
        entered.enter_context(self.entered())
        self._entered = entered

    def leave(self) -> None:
        """Leaves the lifespans that `enter` entered, and waits 10 s at most; further calls do nothing. Errors are
        logged, and so is a lifespan that takes longer, which is left alone.
        """
        entered, self._entered = self._entered, None
        if entered is None:
            return
        ending = begin(partial(_close, entered), "kodo-lifespan", _log_end)
        ending.join(LEAVING)
        if ending.is_alive():
            log_slow_end()

    async def hold(self, entered: asyncio.Future[None], leave: asyncio.Event) -> None:
        """Enters all lifespans, on the event loop of the handlers, and leaves them when `leave` is set: in one task, as
        task groups and time limits need it. `entered` gets the result of entering: None, or a KodoctlError as its
        exception if one fails; this call then returns. Errors at the end are logged, except that of a cancellation
        after `leave` was set. Raises KodoctlError if a lifespan ends before it is to be left.
        """
        failed: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                try:
                    for function, (manager, is_async) in self._managers.items():
                        with _reporting(function):
                            context = manager()
                            self.values[function] = (
                                await stack.enter_async_context(context) if is_async else stack.enter_context(context)
                            )
                except KodoctlError as problem:
                    failed = problem
                    raise
                entered.set_result(None)
                await leave.wait()
        except BaseException as problem:  # noqa: BLE001  # of the user's code
            failed = failed or problem
        self._forget()
        if failed is None:
            return
        if not entered.done():
            entered.set_exception(failed)
        elif leave.is_set():
            if not isinstance(failed, asyncio.CancelledError):
                _log_end(failed)
        else:
            report_stray_error("a lifespan ended while the worker ran", failed)
            raise KodoctlError(error("K770", "lifespan failed", "one ended while the worker ran; see the log"))

    def _forget(self) -> None:
        for function in self.values:
            self.values[function] = None


def _close(entered: ExitStack) -> None:
    try:
        entered.close()
    except BaseException as problem:  # noqa: BLE001  # of the user's code, such as sys.exit
        _log_end(problem)


def _log_end(problem: BaseException) -> None:
    """Logs an error of a lifespan that was to close its resources; the worker has ended all the same."""
    report_stray_error(f"a lifespan failed at its end: {type(problem).__name__}", problem)


def log_slow_end() -> None:
    """Logs that a lifespan was not left in time."""
    log.error("a lifespan takes longer than %.0f s at its end: it is left alone", LEAVING)


@contextmanager
def _reporting(function: Provider) -> Iterator[None]:
    """Makes a KodoctlError of any exception of a lifespan, also of sys.exit and of a cancellation."""
    try:
        yield
    except KodoctlError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        detail = f"{_name(function)}: {import_failure(problem)}"
        raise KodoctlError(error("K770", "lifespan failed", detail)) from problem


def _name(function: Provider) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _invalid(detail: str) -> UsageError:
    return UsageError(error("K769", "invalid lifespan", detail))
