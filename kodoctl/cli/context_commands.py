"""context list|use|show|test: the named clusters of kodoctl.toml."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli.console import command, finish, say
from kodoctl.errors import ExitCode, KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection import Context, Contexts

contexts = typer.Typer(help="Named clusters of kodoctl.toml.", no_args_is_help=True, rich_markup_mode=None)


class Format(StrEnum):
    """How contexts are printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text or json.")]
Name = Annotated[str | None, typer.Argument(help="The context.", show_default="the current one", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    contexts.command("list")(list_)
    contexts.command("use")(use)
    contexts.command("show")(show)
    contexts.command("test")(try_)
    app.add_typer(contexts, name="context")


def _read() -> Contexts:
    from kodoctl.pulsar.connection import read_contexts

    return read_contexts(os.environ, Path.cwd())


def _document(context: Context, *, current: bool) -> dict[str, Any]:
    return {
        "name": context.name,
        "current": current,
        "admin_url": context.admin_url,
        "broker_url": context.broker_url,
        "token_file": str(context.token_file) if context.token_file else None,
        "env": context.env,
        "protected": context.protected,
        "file": str(context.file),
    }


@command
def list_(output: FormatOption = Format.TEXT) -> None:
    """List all contexts; * marks the current one."""
    found = _read()
    documents = [_document(context, current=name == found.current) for name, context in found.by_name.items()]
    if output is Format.JSON:
        say(json.dumps(documents, indent=2))
        return
    if not documents:
        say("No contexts yet. `kodoctl dev up` makes one for a development broker.")
    width = max((len(document["name"]) for document in documents), default=0)
    for document in documents:
        marks = "".join(f"  [{word}]" for word, there in (("protected", document["protected"]),) if there)
        say(f"{'*' if document['current'] else ' '} {document['name']:<{width}}  {document['admin_url']}{marks}")


@command
def use(name: Annotated[str, typer.Argument(help="The context to make current.", metavar="NAME")]) -> None:
    """Make a context the current one (in the user's configuration)."""
    from kodoctl.pulsar.connection import use_context, user_config

    context = _read().get(name)
    use_context(user_config(os.environ), name)
    say(f"Now using {name}: {context.admin_url}")


def _chosen(name: str | None) -> Context:
    found = _read()
    chosen = name or found.current
    if chosen is None:
        raise UsageError(error("K506", "no current context", "choose one with `kodoctl context use NAME`"))
    return found.get(chosen)


@command
def show(name: Name = None, output: FormatOption = Format.TEXT) -> None:
    """Show one context. Tokens are never printed, only the file they are in."""
    found = _read()
    context = _chosen(name)
    document = _document(context, current=context.name == found.current)
    if output is Format.JSON:
        say(json.dumps(document, indent=2))
        return
    for key, value in document.items():
        say(f"{key:<12}{value if value is not None else '-'}")


@command
def try_(name: Name = None) -> None:
    """Try a context: does the admin API answer, is the token taken, is the binary port there."""
    from kodoctl.pulsar.connection import Flags, connect
    from kodoctl.pulsar.session import Session

    connection = connect(Flags(context=_chosen(name).name), os.environ, Path.cwd())
    with Session(connection) as session:
        problems = _try("admin API", lambda: _admin(session))
        if any(problem.code == "K511" for problem in problems):  # a client answers a bad token with silence, for 15 s
            say("binary port: not tried, the token was not taken")
        else:
            problems += _try("binary port", lambda: _binary(session))
    if problems:
        raise KodoctlError(*problems)
    finish(ExitCode.OK)


def _try(what: str, check: Any) -> list[Any]:
    try:
        say(f"{what}: {check()}")
    except KodoctlError as problem:
        say(f"{what}: failed")
        return list(problem.diagnostics)
    return []


def _admin(session: Any) -> str:
    from kodoctl.pulsar.server import read_server

    server = read_server(session.admin)
    rights = "super-user" if server.defaults else "no super-user"
    return f"cluster {server.cluster}, Pulsar {'.'.join(map(str, server.version)) or '?'}, {rights}"


def _binary(session: Any) -> str:
    if not session.client.available:
        return "no address known: bulk reads and apply need one (broker_url)"
    session.client.probe()
    return "answers"
