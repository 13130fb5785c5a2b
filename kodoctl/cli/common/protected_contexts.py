"""Protected contexts: a command that writes to such a cluster requires the context's name, typed or
with `--confirm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import is_terminal
from kodoctl.errors import RefusedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Context

Confirm = Annotated[
    list[str] | None,
    typer.Option("--confirm", help="Name of the protected context, instead of typing it (repeatable).", metavar="NAME"),
]


def confirm_context(context: Context, names: list[str] | None, ask: Callable[[str], str]) -> None:
    """Checks that the user confirmed a write to a protected context by its name. `names`: values of `--confirm`; if
    there are none, `ask` is called to ask for the name at the terminal. Raises UsageError if there is no terminal
    either, RefusedError for another name.
    """
    given = names or []
    typed = context.name if context.name in given else next(iter(given), None)
    if typed is None and is_terminal():
        typed = ask(f"Context {context.name!r} is protected. Type its name to go on")
    if typed is None:
        raise UsageError(error("K537", "protected context", f"{context.name!r}: say --confirm {context.name}"))
    if typed != context.name:
        detail = f"{typed!r} is not the context's name; nothing was written"
        raise RefusedError(error("K538", "confirmation declined", detail))
