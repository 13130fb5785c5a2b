"""Options that several commands of both command lines share: the same names, the same texts, the same order everywhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import typer

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
"""Which cluster; each is None when it was not given."""


class Format(StrEnum):
    """Views for people and machines."""

    TEXT = "text"
    JSON = "json"


def gathers(parameter: str, options: Mapping[str, Any], gather: Callable[..., Any]) -> Callable[[C], C]:
    """A decorator of commands: their one `parameter` becomes these options, and is what `gather` makes of them."""

    def decorate(function: C) -> C:
        own = inspect.signature(function, eval_str=True)
        kept = [found for name, found in own.parameters.items() if name != parameter]
        kind = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in options.items()]

        def run(**given: Any) -> Any:
            return function(**{parameter: gather(**{name: given.pop(name) for name in options})}, **given)

        parameters = [found.replace(kind=kind) for found in kept] + added
        run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {found.name: found.annotation for found in parameters}
        return run  # type: ignore[return-value]

    return decorate
