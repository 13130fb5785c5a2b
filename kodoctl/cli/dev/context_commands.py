"""context add|list|use|show|test: the named clusters of kodoctl.toml."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.console import command, finish, one_line, reading, say, tell_wait
from kodoctl.cli.common.options import CONNECTION, Format, gathers
from kodoctl.errors import ExitCode, KodoctlError, UsageError, Where, error
from kodoctl.pulsar.connection.credentials import FILE_KEYS, OAUTH2_KEYS, TLS_KEYS

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Context, Contexts
    from kodoctl.pulsar.session import Session
    from kodoctl.topology.names import NamespaceName

_SHUT_OUT = ("K511", "K526")
FormatOption = Annotated[Format, typer.Option("--format", help="text or json.")]
Name = Annotated[str | None, typer.Argument(help="The context.", show_default="the current one", metavar="NAME")]


_KEPT: Final[Mapping[str, Any]] = {
    **{key: option for key, option in CONNECTION.items() if key not in ("context", "admin_url")},
    "function_worker": Annotated[
        str | None,
        typer.Option(
            "--function-worker",
            help="Address of function workers that run apart from the brokers; `none`: the cluster has none.",
            metavar="URL",
        ),
    ],
    "oauth2_issuer": Annotated[
        str | None, typer.Option("--oauth2-issuer", help="Who gives tokens for client credentials.", metavar="URL")
    ],
    "oauth2_client_id": Annotated[
        str | None, typer.Option("--oauth2-client-id", help="The client's id there.", metavar="TEXT")
    ],
    "oauth2_client_secret_file": Annotated[
        str | None, typer.Option("--oauth2-client-secret-file", help="File with the client's secret.", metavar="FILE")
    ],
    "oauth2_audience": Annotated[
        str | None, typer.Option("--oauth2-audience", help="Whom the tokens shall be for.", metavar="TEXT")
    ],
    "oauth2_scope": Annotated[str | None, typer.Option("--oauth2-scope", help="What to ask for.", metavar="TEXT")],
    "env": Annotated[
        str | None,
        typer.Option("--env", help="Environment of the files that this cluster is bound to.", metavar="NAME"),
    ],
}
"""Options that `context add` stores besides the address."""


def _read_contexts() -> Contexts:
    from kodoctl.pulsar.connection.connection import read_contexts

    return read_contexts(os.environ, Path.cwd())


def _document(context: Context, *, current: bool) -> dict[str, Any]:
    return {
        "name": context.name,
        "current": current,
        "admin_url": context.admin_url,
        "broker_url": context.broker_url,
        "function_worker": context.function_worker,
        **{key: context.access.get(key) for key in ("token_file", *TLS_KEYS, *OAUTH2_KEYS)},
        "env": context.env,
        "protected": context.protected,
        "file": str(context.file),
    }


@command
@gathers("values", _KEPT, dict)
def add(
    values: dict[str, Any],
    name: Annotated[str, typer.Argument(help="The context's name.", metavar="NAME", show_default=False)],
    admin_url: Annotated[
        str,
        typer.Option("--admin-url", help="Address of Pulsar's admin API; several brokers with commas.", metavar="URL"),
    ],
    protected: Annotated[
        bool, typer.Option("--protected", help="Apply and destroy ask for the context's name.")
    ] = False,
    project: Annotated[
        bool, typer.Option("--project", help="Write ./kodoctl.toml, for everybody, not the user's own file.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context of that name.")] = False,
    use_it: Annotated[bool, typer.Option("--use", help="Make it the current one.")] = False,
) -> None:
    """Add a context to the user's configuration. Secrets stay in their files: only the paths are written."""
    given = {"admin_url": admin_url, **values, "protected": protected or None}
    _add(name, {key: value for key, value in given.items() if value is not None}, project=project, replace=replace)
    if use_it:
        use(name)


def _add(name: str, given: dict[str, Any], *, project: bool, replace: bool) -> None:
    """Writes a context to its file, after a check that commands could use it. Raises UsageError (K500) if it exists and
    `replace` is False.
    """
    from kodoctl.pulsar.connection.connection import CONFIG_FILE, check_context, in_file, own_config, write_context

    file = Path.cwd() / CONFIG_FILE if project else own_config(os.environ)
    if not replace and in_file(file, name) is not None:
        detail = f"{name!r} is there already: --replace replaces it, or choose another name"
        raise UsageError(error("K500", "a context of that name", detail, Where(str(file))))
    values = {
        key: _path(value, file if project else None) if key in FILE_KEYS else value for key, value in given.items()
    }
    check_context(file, name, values, os.environ)
    with _writing(file):
        write_context(file, name, values)
    say(f"Added {name} to {file}: {values['admin_url']}")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Context that raises UsageError (K020) in place of an OSError."""
    try:
        yield
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{file}: {problem.strerror or problem}")) from None


def _path(given: str, project: Path | None) -> str:
    """A path as a configuration file stores it. A path below the home folder (`~`) stays as typed; a path
    inside the project's folder becomes relative to that folder; any other becomes absolute, because relative
    paths are resolved against the configuration file.
    """
    whole = Path(given).absolute()
    if project is not None and whole.is_relative_to(project.parent):
        return str(whole.relative_to(project.parent))
    return given if given.startswith("~") else str(whole)


@reading
def list_(output: FormatOption = Format.TEXT) -> None:
    """List all contexts; * marks the current one."""
    found = _read_contexts()
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
    from kodoctl.pulsar.connection.connection import own_config, use_context

    context, file = _read_contexts().get(name), own_config(os.environ)
    with _writing(file):
        use_context(file, name)
    say(f"Now using {name}: {context.admin_url}")


def _find_context(name: str | None) -> Context:
    found = _read_contexts()
    chosen = name or found.current
    if chosen is None:
        raise UsageError(error("K506", "no current context", "choose one with `kodoctl context use NAME`"))
    return found.get(chosen)


@reading
def show(name: Name = None, output: FormatOption = Format.TEXT) -> None:
    """Show one context. Tokens are never printed, only the file they are in."""
    found = _read_contexts()
    context = _find_context(name)
    document = _document(context, current=context.name == found.current)
    if output is Format.JSON:
        say(json.dumps(document, indent=2))
        return
    width = max(len(key) for key, value in document.items() if value is not None) + 2
    for key, value in document.items():
        if value is not None:
            say(f"{key:<{width}}{value}")


@command
def try_(
    name: Name = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", help="Tell what may be done there, and which right is missing.", metavar="TENANT/NAMESPACE"
        ),
    ] = None,
) -> None:
    """Try a context: what answers, and what may be done.

    Does the admin API answer, is the token taken, is the binary port there, which rights are there.
    """
    from kodoctl.pulsar.connection.connection import Flags, connect
    from kodoctl.pulsar.session import Session

    space = command_target.parse_namespace(namespace) if namespace else None
    connection = connect(Flags(context=_find_context(name).name), os.environ, Path.cwd())
    with Session(connection, tell_wait) as session:
        problems = _try("admin API", lambda: _admin(session))
        if any(
            problem.code in _SHUT_OUT for problem in problems
        ):  # a client answers a bad token with silence, for 15 s
            say("binary port: not tried, the token was not taken")
        else:
            problems += _try("binary port", lambda: _binary(session))
            if space is not None and not problems:
                _tell_needs(session, space)
    if problems:
        raise KodoctlError(*problems)
    finish(ExitCode.OK)


def _tell_needs(session: Session, space: NamespaceName) -> None:
    from kodoctl.pulsar.admin.broker_info import read_server
    from kodoctl.pulsar.admin.permission_probe import probe_permissions

    superuser = bool(read_server(session.admin).defaults)
    say(f"{space}:")
    for need in probe_permissions(session.admin, space, superuser=superuser):
        found = f"no, needs {need.missing}" if need.missing else f"cannot be told: {one_line(need.unknown, 200)}"
        say(f"  {need.work:<36}{found if need.missing or need.unknown else 'yes'}")


def _try(what: str, check: Any) -> list[Any]:
    try:
        say(f"{what}: {check()}")
    except KodoctlError as problem:
        say(f"{what}: failed")
        return list(problem.diagnostics)
    return []


def _admin(session: Any) -> str:
    from kodoctl.pulsar.admin.broker_info import read_server

    server = read_server(session.admin)
    rights = "super-user" if server.defaults else "no super-user"
    return f"cluster {server.cluster}, Pulsar {'.'.join(map(str, server.version)) or '?'}, {rights}"


def _binary(session: Any) -> str:
    if not session.client.available:
        return "no address known: bulk reads and apply need one (broker_url)"
    session.client.probe()
    return "answers"
