"""Middleware: hooks of the user when a message is received, around its handling, when it is decided, and when the
broker has confirmed its acknowledgement.

A failure of a hook never loses a message: around the handling it counts as the handler's failure; elsewhere it is
logged, and the message is processed as without the hook.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from kodo_consumer.core.values.envelope import BrokenHeadersError, Delivery, Headers, read_headers
from kodo_consumer.core.values.error_text import ErrorTextReader
from kodo_consumer.message import Check, Message
from kodo_consumer.runtime.handler_errors import report_error
from kodo_consumer.runtime.handler_results import (
    BatchResult,
    Judge,
    SingleResult,
    call_problem,
    close,
    is_coroutine,
    refuse_unawaited,
)
from kodo_consumer.runtime.lifespans import Lifespans
from kodoctl.errors import UsageError, error
from kodoctl.protocol.sequence_numbers import NOBODY as MARK

if TYPE_CHECKING:
    from kodo_consumer.core.state.observer import Acknowledged
    from kodo_consumer.core.values.policy import Lane, Policy

log = logging.getLogger("kodo.consumer")
Around = Literal["receive", "handle", "decide", "acknowledged", "redact"]
AROUND: Final[tuple[Around, ...]] = ("receive", "handle", "decide", "acknowledged", "redact")
Handle = Callable[[Any], None]
"""The handler, as middleware of a plain handler gets it: to be called with the message, or with the list of a batch."""
AsyncHandle = Callable[[Any], Awaitable[None]]
"""The same for an async handler: the call has to be awaited."""
_PLAIN: Final = frozenset({"receive", "redact"})  # hooks that nobody could await
_QUIET: Final = 10.0  # seconds between two tracebacks of one hook


_ARGUMENTS: Final[Mapping[Around, tuple[str, ...]]] = {
    "receive": ("the message",), "handle": ("the message", "the handler"), "decide": ("the message", "the exception"),
    "acknowledged": ("the message", "the rule"), "redact": ("the text",),
}  # fmt: skip
"""Arguments of a hook, in words."""


class Hooks:
    """Hooks and lifespans of one consumer. A consumer without hooks calls none of this code for its messages."""

    def __init__(self) -> None:
        self.lifespans = Lifespans()
        self._of: dict[Around, list[Callable[..., Any]]] = {around: [] for around in AROUND}
        self.loop: asyncio.AbstractEventLoop | None = None  # of an async handler, once it has one
        self._running: tuple[object, float] | None = None  # hook "acknowledged", and monotonic time of its call
        self._logged: dict[int, float] = {}  # by the identity of the hook, which need not be hashable
        self._texts: ErrorTextReader | None = None

    def add(self, around: Around, hook: Callable[..., Any]) -> None:
        """Adds a hook. One around "handle" runs inside of the hooks "handle" that were added before; any other hook
        runs after those of its kind. Results of earlier calls of `around` and `error_texts` may lack it.
        """
        self._of[around].append(hook)

    def run_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the event loop of the async handler. Async hooks of the consumer run on the same loop."""
        self.loop = loop

    @property
    def any_around_handling(self) -> bool:
        """True if there is a hook "handle", "decide" or "redact": code of the user that the thread of a handler's call
        may run before or after the call.
        """
        return bool(self._of["handle"] or self._of["decide"] or self._of["redact"])

    @property
    def any_receiving(self) -> bool:
        """True if there is a hook for received messages."""
        return bool(self._of["receive"])

    @property
    def any_acknowledged(self) -> bool:
        """True if there is a hook for acknowledged messages."""
        return bool(self._of["acknowledged"])

    def check(self, *, is_async: bool) -> None:
        """Raises one UsageError with all findings: hooks that cannot be called with the arguments of their kind (one
        whose signature Python does not know passes), and async hooks that nobody would await: those around "receive"
        and "redact", and with a plain handler all. `is_async`: the handler is async.
        """
        findings = []
        for around, hook in ((place, one) for place in AROUND for one in self._of[place]):
            if problem := call_problem(hook, _ARGUMENTS[around]):
                findings.append(
                    f"{_name(hook)} around {around} is called with {' and '.join(_ARGUMENTS[around])}: {problem}"
                )
            if is_coroutine(hook) and (around in _PLAIN or not is_async):
                why = (
                    f"hooks around {around} are plain functions"
                    if around in _PLAIN
                    else "the handler is a plain function"
                )
                findings.append(f"{_name(hook)} around {around} is async, and {why}: it would never run")
        if findings:
            raise UsageError(*(error("K755", "invalid middleware", detail) for detail in findings))

    # ---- received

    def on_messages(self, policy: Policy, lane: Lane, deliveries: Sequence[Delivery], check: Check | None) -> None:
        """Calls the hooks "receive" with each received message, but no mark of a producer, before any decision about
        it. Its headers are taken as
        they came, without a check of signatures; broken ones are replaced by those of a new message. An Exception of a
        hook is logged, of one hook once in 10 s at most; other exceptions, such as SystemExit, are raised. `check`:
        reader of payloads that validates them; None: payloads are not validated.
        """
        for delivery in deliveries:
            try:
                headers = read_headers(delivery.properties)
            except BrokenHeadersError:
                headers = Headers()
            if headers.meant_for == MARK:
                continue
            tenant = policy.tenant(delivery.properties, delivery.key)
            message: Message[Any] = Message(delivery, lane, headers, tenant, check)  # `Message[Any](…)` costs 2 µs more
            for hook in self._of["receive"]:
                try:
                    if (answer := hook(message)) is not None:
                        refuse_unawaited(answer, _name(hook))
                except Exception as problem:  # noqa: BLE001  # whatever users do there
                    self._complain(hook, problem)

    def error_texts(self, policy: Policy) -> ErrorTextReader | None:
        """Returns a new reader of error texts, with the hooks that redact them; None if the topology keeps no error
        texts. From now on failures of hooks are logged as this reader redacts them, or in full if it is None.
        """
        self._texts = None if policy.error_text is None else ErrorTextReader(policy.error_text, self._of["redact"])
        return self._texts

    # ---- acknowledged

    @property
    def awaits_acknowledged(self) -> bool:
        """True if a hook for acknowledged messages is async."""
        return any(map(is_coroutine, self._of["acknowledged"]))

    @property
    def running_hook(self) -> tuple[str, float] | None:
        """(name of the hook "acknowledged" that runs now, seconds since it was called); None if no such hook runs. Any
        thread may read it.
        """
        running = self._running
        return None if running is None else (_name(running[0]), time.monotonic() - running[1])

    def on_acknowledged(self, messages: Sequence[Acknowledged]) -> None:
        """Calls the hooks "acknowledged" with each message and the rule by which it ended, on the calling thread.
        Requires that all of them are plain (`awaits_acknowledged` is False), because an async one would not run; else
        use `on_acknowledged_later`. An Exception of a hook is logged, of one hook once in 10 s at most; other
        exceptions, such as SystemExit, are raised.
        """
        hooks, now = self._of["acknowledged"], time.monotonic
        try:
            for message, rule in messages:
                for hook in hooks:
                    self._running = hook, now()
                    try:
                        if (answer := hook(message, rule)) is not None:
                            refuse_unawaited(answer, _name(hook))
                    except Exception as problem:  # noqa: BLE001  # whatever users do there
                        self._complain(hook, problem)
        finally:
            self._running = None

    async def on_acknowledged_later(self, messages: Sequence[Acknowledged]) -> None:
        """Does the same as `on_acknowledged` with plain and async hooks: calls and awaits them one after the other on
        the event loop that runs this coroutine (in a worker: that of the handlers). Goes on after a CancelledError of a
        hook as well, but ends if its own task is cancelled.
        """
        for message, rule in messages:
            for hook in self._of["acknowledged"]:
                self._running = hook, time.monotonic()
                try:
                    answer = hook(message, rule)
                    refuse_unawaited(await answer if inspect.isawaitable(answer) else answer, _name(hook))
                except (Exception, asyncio.CancelledError) as problem:
                    if (task := asyncio.current_task()) is not None and task.cancelling():
                        raise
                    self._complain(hook, problem)
                finally:
                    self._running = None

    # ---- handled and decided

    def around(self, function: Callable[[Any], Any], *, is_async: bool, batches: bool = False) -> Callable[[Any], Any]:
        """Returns the function with the hooks "handle" around it and the hooks "decide" behind it; `function` itself if
        there are neither. If a hook "handle" returns without having called the handler (an async handler: awaited it),
        the call raises NotHandledError. With `batches` a result that such a hook returns replaces the handler's.

        After each call every hook "decide" gets the message, or the list, and the exception so far (None: there is
        none), and may return another exception, which is raised instead; none can make the call return after all. An
        Exception that such a hook raises is logged.

        Args:
            function: calls the handler, with one message.
            is_async: `function` is async, and so is the result.
            batches: `function` is called with lists of messages.
        """
        result = BatchResult if batches else SingleResult
        for hook in reversed(self._of["handle"]):
            function = (_inside_later if is_async else _inside)(hook, function, result(_name(hook)))
        if not self._of["decide"]:
            return function
        return self._wrap_async(function) if is_async else self._wrap(function)

    def _wrap(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(message: Any) -> Any:
            result, raised = None, None
            try:
                result = function(message)
            except BaseException as problem:  # noqa: BLE001  # shown, and raised again
                raised = problem
            for hook in self._of["decide"]:
                try:
                    raised = _verdict(hook, hook(message, raised), raised)
                except Exception as problem:  # noqa: BLE001  # whatever users do there
                    self._complain(hook, problem)
            if raised is not None:
                raise raised
            return result

        return run

    def _wrap_async(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def run(message: Any) -> Any:
            result, raised = None, None
            try:
                result = await function(message)
            except BaseException as problem:  # noqa: BLE001
                raised = problem
            for hook in self._of["decide"]:
                try:
                    answer = hook(message, raised)
                    raised = _verdict(hook, await answer if hasattr(answer, "__await__") else answer, raised)
                except Exception as problem:  # noqa: BLE001  # whatever users do there
                    self._complain(hook, problem)
            if raised is not None:
                raise raised
            return result

        return run

    def _complain(self, hook: object, problem: BaseException) -> None:
        now = time.monotonic()
        if now - self._logged.get(id(hook), float("-inf")) >= _QUIET:
            self._logged[id(hook)] = now
            text = f"middleware {_name(hook)} failed; the message goes its way: {type(problem).__name__}"
            report_error(self._texts, text, problem)


def _verdict(hook: object, answer: Any, raised: BaseException | None) -> BaseException | None:
    """Exception after a hook: the one that it returned, or (anything else) the one before. Raises NotAwaitedError."""
    if answer is None:
        return raised
    refuse_unawaited(answer, _name(hook))
    return answer if isinstance(answer, BaseException) else raised


class NotHandledError(RuntimeError):
    """A hook returned without having called the handler, or without having awaited an async one, so the message must
    not count as done. (A hook that skips a message raises Discard.)
    """


def _inside(hook: Callable[..., Any], function: Callable[[Any], Any], judge: Judge) -> Callable[[Any], Any]:
    def run(message: Any) -> Any:
        call = _Call(function)
        return call.result_of(hook, hook(message, call), judge)

    return run


def _inside_later(hook: Callable[..., Any], function: Callable[[Any], Any], judge: Judge) -> Callable[[Any], Any]:
    async def run(message: Any) -> Any:
        call = _CallLater(function)
        answer = hook(message, call)
        return call.result_of(hook, await answer if inspect.isawaitable(answer) else answer, judge)

    return run


class _Call:
    """Handler as a hook calls it. `called`: the hook has called it; `result`: its last result."""

    __slots__ = ("called", "function", "result")

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.called = function, False
        self.result: Any = None

    def __call__(self, message: Any) -> Any:
        self.called = True
        self.result = self.function(message)
        return self.result

    def result_of(self, hook: object, result: Any, judge: Judge) -> Any:
        """Result of a hook; if that is None, the handler's, because failures in a batch would otherwise count as done.
        Raises NotHandledError if the hook did not call the handler.
        """
        if result is not None:
            result = judge(result)
        if not self.called:
            raise NotHandledError(self.missing(hook))
        return self.result if result is None else result

    def missing(self, hook: object) -> str:
        """Error text for a hook that did not call the handler."""
        return f"{_name(hook)} did not call the handler: to skip a message, raise Discard"


class _CallLater(_Call):
    """Async handler as a hook calls it. `coroutine`: that of the last call, awaited or not."""

    __slots__ = ("coroutine",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__(function)
        self.coroutine: Coroutine[Any, Any, Any] | None = None

    def __call__(self, message: Any) -> Any:
        self.coroutine = self._run(message)
        return self.coroutine

    async def _run(self, message: Any) -> Any:
        try:
            self.result = await self.function(message)
        finally:
            self.called = True
        return self.result

    def missing(self, hook: object) -> str:
        """Error text for a hook that did not call the handler, or did not await it to its end; closes a coroutine that
        was never awaited.
        """
        if self.coroutine is None:
            return super().missing(hook)
        if inspect.getcoroutinestate(self.coroutine) == inspect.CORO_CREATED:
            close(self.coroutine)
        return f"{_name(hook)} did not await the handler: declare it async, and write await handle(message)"


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__name__))
