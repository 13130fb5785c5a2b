"""Dependencies of handlers: values for the parameters that are annotated with `Annotated[T, Depends(provider)]`.

A provider is a function: its result is made anew for each message, and once for all who ask for it in that message. A
generator yields the value, and goes on after the handler, as a context manager does, with the handler's exception; if
it swallows that exception, the message fails all the same. A provider that is a lifespan of the consumer gives the
value that lives as long as the worker.

What an injected handler costs is measured in benchmarks/consumer/injection.py, beside fast-depends.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import CoroutineType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints
from weakref import WeakSet

from kodo_consumer.message import Message
from kodo_consumer.runtime.handler_results import is_coroutine, refuse_unawaited
from kodoctl.errors import Diagnostic, UsageError, error

Provider = Callable[..., Any]
LIFESPANS: Final[WeakSet[Provider]] = WeakSet()
"""Lifespans of all consumers of this process."""


class Depends:
    """Annotation of a parameter: its value comes from `provider`, a function, a generator function, or a lifespan of
    the consumer. A provider's own parameters are a Message, or depend on further providers. Raises UsageError for an
    object that cannot be called or has no hash.
    """

    __slots__ = ("provider",)

    def __init__(self, provider: Provider) -> None:
        given: object = provider  # whatever a program without type checks gives
        if not (callable(given) and isinstance(given, Hashable)):
            detail = f"{type(given).__name__} is no provider: Depends takes a function, without calling it"
            raise UsageError(error("K768", "dependency cannot be provided", detail))
        self.provider = provider


def bare_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Signature of the function without its dependent parameters. Raises ValueError for functions that have none to
    look at, such as built-in ones, and UsageError for annotations that cannot be read.
    """
    signature = inspect.signature(function)
    dependent = _dependent_parameters(function)
    return signature.replace(parameters=[one for one in signature.parameters.values() if one.name not in dependent])


def inject(
    function: Callable[..., Any],
    lasting: Mapping[Provider, Any],
    *,
    call: Callable[..., Any] | None = None,
    batches: bool = False,
) -> Callable[[Any], Any]:
    """Function of one argument, the message, that calls `call` (None: `function`) with the values of the dependencies
    that `function` has; `call` itself, if there are none.

    `lasting`: values of lifespans, which may be filled later. `batches`: the argument is a list of messages, which no
    provider can take. Raises UsageError with all providers that cannot be called.
    """
    call = call or function
    misplaced = list(_misplaced(function))
    if not misplaced and not _dependent_parameters(function):
        return call
    is_async = is_coroutine(function)
    plan = _Plan(function, lasting, is_async=is_async, batches=batches, findings=misplaced)
    if plan.findings:
        raise UsageError(*dict.fromkeys(plan.findings))
    return wraps(function)(_inject_async(call, plan) if is_async else _inject_plain(call, plan))


@dataclass(frozen=True, slots=True)
class _Step:
    """A call of a provider for a message. `arguments`: positions of its arguments among the values so far, by name."""

    call: Provider
    arguments: tuple[tuple[str, int], ...]
    is_generator: bool
    is_async: bool


@dataclass(slots=True)
class _Plan:
    """Order of the calls for one message. Values: the message first, then one for each step. `lasting`: by position,
    the lifespan whose value stands there.
    """

    function: Callable[..., Any]
    values: Mapping[Provider, Any]
    is_async: bool
    batches: bool
    steps: list[_Step | Provider] = field(default_factory=list)
    arguments: tuple[tuple[str, int], ...] = ()
    findings: list[Diagnostic] = field(default_factory=list)
    _positions: dict[Provider, int] = field(default_factory=dict)
    _open: list[Provider] = field(default_factory=list)

    def __post_init__(self) -> None:
        dependent = _dependent_parameters(self.function)
        for parameter in _parameters(self.function):
            if parameter.name in dependent and parameter.kind is parameter.POSITIONAL_ONLY:
                self._complain(self.function, f"has the parameter {parameter.name} before `/`: values go by name")
        self.arguments = tuple((name, self._position(provider)) for name, provider in dependent.items())

    @property
    def needs_stack(self) -> bool:
        """True if something has to be left after the handler."""
        return any(isinstance(step, _Step) and step.is_generator for step in self.steps)

    def _position(self, provider: Provider) -> int:
        if provider not in self._positions:
            if provider not in self.values and provider in LIFESPANS:
                self._complain(provider, "is a lifespan, and not of this consumer")
            step = provider if provider in self.values else self._step(provider)
            self.steps.append(step)
            self._positions[provider] = len(self.steps)
        return self._positions[provider]

    def _step(self, provider: Provider) -> _Step:
        if provider in self._open:
            self._complain(provider, "depends on itself")
            return _Step(provider, (), is_generator=False, is_async=False)
        self._open.append(provider)
        arguments = tuple(self._arguments_of(provider))
        self._open.pop()
        original = inspect.unwrap(provider)
        is_generator = inspect.isgeneratorfunction(original) or inspect.isasyncgenfunction(original)
        is_async = is_coroutine(provider) or inspect.isasyncgenfunction(original)
        if is_async and not self.is_async:
            self._complain(provider, f"is async, and the handler {_name(self.function)} is a plain function")
        call = provider
        if is_generator and original is provider:
            call = asynccontextmanager(provider) if is_async else contextmanager(provider)
        return _Step(call, arguments, is_generator, is_async)

    def _arguments_of(self, provider: Provider) -> Iterator[tuple[str, int]]:
        dependent, hints = _dependent_parameters(provider), _hints(provider)
        self.findings += _misplaced(provider)
        for parameter in _parameters(provider):
            hint = hints.get(parameter.name, parameter.empty)
            if parameter.name in dependent:
                yield parameter.name, self._position(dependent[parameter.name])
            elif (get_origin(hint) or hint) is Message and not self.batches:
                yield parameter.name, 0
            elif parameter.default is parameter.empty and parameter.kind not in _VARIABLE:
                detail = "a Message, or Annotated[…, Depends(…)]" if not self.batches else "Annotated[…, Depends(…)]"
                self._complain(provider, f"has the parameter {parameter.name}: it can only be {detail}")

    def _complain(self, provider: Provider, detail: str) -> None:
        self.findings.append(error("K768", "dependency cannot be provided", f"{_name(provider)} {detail}"))


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _inject_plain(function: Callable[..., Any], plan: _Plan) -> Callable[[Any], Any]:
    steps, arguments, lasting = plan.steps, plan.arguments, plan.values

    def provide(message: Any, stack: ExitStack | None) -> list[Any]:
        values = [message]
        for step in steps:
            if not isinstance(step, _Step):
                values.append(lasting[step])
                continue
            value = step.call(**{name: values[position] for name, position in step.arguments})
            if type(value) is CoroutineType:
                refuse_unawaited(value, _name(step.call))
            values.append(value if stack is None or not step.is_generator else stack.enter_context(value))
        return values

    def run(message: Any) -> Any:
        values = provide(message, None)
        return function(message, **{name: values[position] for name, position in arguments})

    def run_within(message: Any) -> Any:
        with ExitStack() as stack:
            values = provide(message, stack)
            try:
                return function(message, **{name: values[position] for name, position in arguments})
            except BaseException as problem:
                raised = problem
                raise
        raise raised  # a provider has swallowed it: the message is not done

    return run_within if plan.needs_stack else run


def _inject_async(function: Callable[..., Any], plan: _Plan) -> Callable[[Any], Any]:
    steps, arguments, lasting = plan.steps, plan.arguments, plan.values

    async def provide(message: Any, stack: AsyncExitStack | None) -> list[Any]:
        values = [message]
        for step in steps:
            if not isinstance(step, _Step):
                values.append(lasting[step])
                continue
            value = step.call(**{name: values[position] for name, position in step.arguments})
            values.append(await _entered(value, step, stack))
        return values

    async def run(message: Any) -> Any:
        values = await provide(message, None)
        return await function(message, **{name: values[position] for name, position in arguments})

    async def run_within(message: Any) -> Any:
        async with AsyncExitStack() as stack:
            values = await provide(message, stack)
            try:
                return await function(message, **{name: values[position] for name, position in arguments})
            except BaseException as problem:
                raised = problem
                raise
        raise raised  # a provider has swallowed it: the message is not done

    return run_within if plan.needs_stack else run


async def _entered(value: Any, step: _Step, stack: AsyncExitStack | None) -> Any:
    if stack is not None and step.is_generator:
        return await stack.enter_async_context(value) if step.is_async else stack.enter_context(value)
    if step.is_async:
        return await value
    if type(value) is CoroutineType:
        refuse_unawaited(value, _name(step.call))
    return value


def _misplaced(function: Callable[..., Any]) -> Iterator[Diagnostic]:
    """Findings about a Depends that is not directly in the annotation, where nobody would see it."""
    hints = _hints(function)
    for parameter in _parameters(function):
        direct = parameter.name in _dependent_parameters(function)
        within = not direct and any(isinstance(one, Depends) for one in _nested(hints.get(parameter.name)))
        if isinstance(parameter.default, Depends) or within:
            detail = f"{_name(function)}: write `{parameter.name}: Annotated[…, Depends(…)]`, without a default"
            yield error("K768", "dependency cannot be provided", detail)


def _nested(hint: Any) -> Iterator[Any]:
    for one in get_args(hint):
        yield one
        yield from _nested(one)


def _dependent_parameters(function: Callable[..., Any]) -> dict[str, Provider]:
    """Providers by the name of the parameter that they are for."""
    dependent: dict[str, Provider] = {}
    for name, hint in _hints(function).items():
        marks = [one for one in get_args(hint)[1:] if isinstance(one, Depends)] if get_origin(hint) is Annotated else []
        if marks and name != "return":
            dependent[name] = marks[-1].provider
    return dependent


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations of a function with their extras; none where they cannot be read and none of them depends on a
    provider. Raises UsageError where one does: a name that is not defined in the module.
    """
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isclass(function):
        target = function.__init__
    try:
        return get_type_hints(target, include_extras=True)
    except Exception as problem:  # noqa: BLE001  # an annotation may be any expression
        if any("Depends(" in str(hint) for hint in getattr(target, "__annotations__", {}).values()):
            detail = f"{_name(function)}: {problem}; define in the module what its annotations name"
            raise UsageError(error("K753", "annotation cannot be read", detail)) from None
        return {}


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return []


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
