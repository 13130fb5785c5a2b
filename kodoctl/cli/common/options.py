"""Options that several commands of both command lines have: with the same names, texts and order everywhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.topology.units import Duration

C = TypeVar("C", bound=Callable[..., Any])

CONNECTION: Final[Mapping[str, Any]] = {
    "context": Annotated[str | None, typer.Option("--context", help="Context of kodoctl.toml to use.", metavar="NAME")],
    "admin_url": Annotated[
        str | None,
        typer.Option("--admin-url", help="Address of Pulsar's admin API; several brokers with commas.", metavar="URL"),
    ],
    "broker_url": Annotated[
        str | None,
        typer.Option("--broker-url", help="Address of the broker's binary port; several with commas.", metavar="URL"),
    ],
    "token_file": Annotated[
        str | None, typer.Option("--token-file", help="File with the token to present.", metavar="FILE")
    ],
    "tls_cert": Annotated[str | None, typer.Option("--tls-cert", help="Certificate to present, PEM.", metavar="FILE")],
    "tls_key": Annotated[str | None, typer.Option("--tls-key", help="Its key, PEM.", metavar="FILE")],
    "tls_ca": Annotated[
        str | None, typer.Option("--tls-ca", help="Whom to trust, PEM, in place of the system's.", metavar="FILE")
    ],
}
"""Options that name the cluster and its credentials; each is None if it is not given."""


class Format(StrEnum):
    """Values of `--format` for commands that print text for people or JSON for programs."""

    TEXT = "text"
    JSON = "json"


def parse_duration(option: str, text: str) -> Duration:
    """Parses the value of an option such as `--wait`, written as `10m`. `option`: its name, for the error. Raises
    UsageError (K005).
    """
    from kodoctl.topology.units import Duration, UnitError

    try:
        return Duration.parse(text)
    except UnitError as problem:
        raise UsageError(error("K005", "wrong unit", f"{option}: {problem}")) from None


def parse_rate(option: str, text: str) -> float:
    """Parses the value of an option, written as `100/s`, to messages per second, more than 0. `option`: its name, for
    the error. Raises UsageError (K005).
    """
    from kodoctl.topology.units import Rate, UnitError

    try:
        per_second = Rate.parse(text).per_second
    except UnitError as problem:
        raise UsageError(error("K005", "wrong unit", f"{option}: {problem}")) from None
    if per_second <= 0:
        raise UsageError(error("K005", "wrong unit", f"{option} {text}: more than nothing, such as 200/s"))
    return per_second


def parse_moment(option: str, text: str, now: int) -> int:
    """Parses the value of an option, written as `2026-11-20T10:00` (UTC unless it has an offset) or as an age such as
    `2h`, to ms since the epoch. `option`: its name, for the error; `now`: ms since the epoch. Raises UsageError (K005).
    """
    from kodoctl.expressions.coercion import moment
    from kodoctl.topology.units import Duration, UnitError

    if (found := moment(text)) is not None:
        return found
    try:
        return now - int(Duration.parse(text))
    except UnitError:
        detail = f"{option} {text!r}: write a time such as 2026-11-20T10:00 (UTC), or how long ago, such as 2h"
        raise UsageError(error("K005", "wrong unit", detail)) from None


def gathers(parameter: str, options: Mapping[str, Any], gather: Callable[..., Any]) -> Callable[[C], C]:
    """Makes a decorator of commands that replaces their parameter `parameter` by several `options` at the end of the
    command line (name -> typer annotation; a value is None if the option is not given). The values are passed to
    `gather`, and its result is passed to the command as `parameter`.
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in options.items()]
    return _replaces(parameter, added, gather, last=True)


def bundles(parameter: str, gather: Callable[..., Any]) -> Callable[[C], C]:
    """Makes a decorator of commands that replaces their parameter `parameter` by the parameters of `gather`, a function
    or a dataclass annotated as commands are. The result of `gather` is passed to the command as `parameter`.
    """
    return _replaces(parameter, list(inspect.signature(gather, eval_str=True).parameters.values()), gather)


def _replaces(
    parameter: str, added: list[inspect.Parameter], gather: Callable[..., Any], *, last: bool = False
) -> Callable[[C], C]:
    def decorate(function: C) -> C:
        own = inspect.signature(function, eval_str=True)
        kept = list(own.parameters.values())
        place = list(own.parameters).index(parameter)
        before, after = kept[:place], kept[place + 1 :]
        together = [*before, *after, *added] if last else [*before, *added, *after]

        def run(**given: Any) -> Any:
            return function(**{parameter: gather(**{one.name: given.pop(one.name) for one in added})}, **given)

        parameters = [found.replace(kind=inspect.Parameter.KEYWORD_ONLY) for found in together]
        run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {found.name: found.annotation for found in parameters}
        return run  # type: ignore[return-value]

    return decorate
