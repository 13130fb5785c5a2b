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
from contextlib import asynccontextmanager, contextmanager
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
    the consumer. A provider's own parameters get the message if they are annotated as Message, or the value of a
    further provider by Depends; others need a default. Raises UsageError for an object that cannot be called or has no
    hash.
    """

    __slots__ = ("provider",)

    def __init__(self, provider: Provider) -> None:
        given: object = provider  # whatever a program without type checks gives
        if not (callable(given) and isinstance(given, Hashable)):
            detail = f"{type(given).__name__} is no provider: Depends takes a function, without calling it"
            raise UsageError(error("K768", "dependency cannot be provided", detail))
        self.provider = provider


def bare_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Signature of the function without its dependent parameters. Raises ValueError for functions without a signature,
    such as some built-in ones, and UsageError if an annotation with Depends cannot be read.
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
    """Returns a function of one argument, the message, that calls `call` (None: `function`) with the message and the
    values of the dependencies that `function` declares; it is async if `function` is. If `function` declares no
    dependency, returns `call` itself.

    `lasting`: values of lifespans, by their function, as they are at each call; all functions must be in it already.
    `batches`: the argument is a list of messages, which no provider can take. Raises UsageError with all misplaced uses
    of Depends and all providers that cannot be called.
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
        arguments: tuple[tuple[str, int], ...] = ()
        try:
            arguments = tuple(self._arguments_of(provider))
        except UsageError as problem:  # an annotation that cannot be read
            self.findings += problem.diagnostics
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


_Values = list[Any]
"""The message, then the values of the steps so far."""


def _inject_plain(function: Callable[..., Any], plan: _Plan) -> Callable[[Any], Any]:
    def handle(values: _Values) -> Any:
        return function(values[0], **_chosen(values, plan.arguments))

    run: Callable[[_Values], Any] = handle
    for step in reversed(plan.steps):
        run = _plain_step(step, run) if isinstance(step, _Step) else _lasting_step(step, plan.values, run)
    return lambda message: run([message])


def _lasting_step(
    provider: Provider, lasting: Mapping[Provider, Any], follow: Callable[[_Values], Any]
) -> Callable[[_Values], Any]:
    """Function that adds the value of a lifespan, and returns the result of `follow`: a coroutine if `follow` is async."""

    def run(values: _Values) -> Any:
        values.append(lasting[provider])
        return follow(values)

    return run


def _plain_step(step: _Step, follow: Callable[[_Values], Any]) -> Callable[[_Values], Any]:
    """Function that adds the value of a provider, and calls `follow`, within the provider's context if it is a
    generator.
    """
    provide = _call_of(step)

    def run(values: _Values) -> Any:
        value = provide(values)
        if type(value) is CoroutineType:
            refuse_unawaited(value, _name(step.call))
        values.append(value)
        return follow(values)

    def run_within(values: _Values) -> Any:
        with provide(values) as value:
            values.append(value)
            try:
                return follow(values)
            except BaseException as problem:
                raised = problem
                raise
        raise raised  # the provider has swallowed it: the message is not done

    return run_within if step.is_generator else run


def _inject_async(function: Callable[..., Any], plan: _Plan) -> Callable[[Any], Any]:
    async def handle(values: _Values) -> Any:
        return await function(values[0], **_chosen(values, plan.arguments))

    run: Callable[[_Values], Any] = handle
    for step in reversed(plan.steps):
        run = _async_step(step, run) if isinstance(step, _Step) else _lasting_step(step, plan.values, run)

    async def inject_all(message: Any) -> Any:
        return await run([message])

    return inject_all


def _async_step(step: _Step, follow: Callable[[_Values], Any]) -> Callable[[_Values], Any]:
    """The same as _plain_step, for an async `follow` and a provider of either kind."""
    provide = _call_of(step)

    async def run(values: _Values) -> Any:
        value = provide(values)
        if step.is_async:
            value = await value
        elif type(value) is CoroutineType:
            refuse_unawaited(value, _name(step.call))
        values.append(value)
        return await follow(values)

    async def run_within(values: _Values) -> Any:
        with provide(values) as value:
            values.append(value)
            try:
                return await follow(values)
            except BaseException as problem:
                raised = problem
                raise
        raise raised

    async def run_within_async(values: _Values) -> Any:
        async with provide(values) as value:
            values.append(value)
            try:
                return await follow(values)
            except BaseException as problem:
                raised = problem
                raise
        raise raised

    return run if not step.is_generator else run_within_async if step.is_async else run_within


def _call_of(step: _Step) -> Callable[[_Values], Any]:
    """Function that calls a provider with those of the values that are its arguments."""
    call, arguments = step.call, step.arguments
    return (lambda values: call(**_chosen(values, arguments))) if arguments else lambda _: call()


def _chosen(values: _Values, arguments: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """Arguments by name, of their positions among the values."""
    return {name: values[position] for name, position in arguments}


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
    """Annotations of a function with their extras. If one of them cannot be read, such as a name that is not defined in
    the module, raises UsageError if the text of any has `Depends(`, else returns none: then also an alias of such an
    annotation has no effect.
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
