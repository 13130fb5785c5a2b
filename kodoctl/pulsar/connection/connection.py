"""Connection settings of a cluster for every command: from flags, then environment variables, then a context of
`kodoctl.toml`.

Variables of kodoctl are passed in: nothing below the command line reads them. Tokens and OAuth2 credentials are sent
only where their owner intended: those of a context to its own addresses, unless --context names it; those of the
environment to addresses of the environment or of flags; a token of a flag to addresses of flags, of the environment, of
the user's own file, or of a project's context that was named explicitly and hides none of the user's. A project's file
belongs to the working folder, whoever wrote it: it may name clusters, but no file with a secret outside of its folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from kodoctl.errors import Diagnostic, KodoctlError, UsageError, Where, error, warning
from kodoctl.host.host_facts import absolute_path, expand_home, nearest_file, why_a_strangers
from kodoctl.host.private_files import write_whole
from kodoctl.host.user_folders import config_folder
from kodoctl.pulsar.connection.addresses import (
    NO_WORKERS,
    normalize_addresses,
    normalize_worker,
    readable_by_all,
    split,
)
from kodoctl.pulsar.connection.credentials import (
    FILE_KEYS,
    OAUTH2_KEYS,
    SECRET_KEYS,
    TLS_KEYS,
    OAuth2,
    Tls,
    oauth2_of,
    tls_of,
    token_of,
)
from kodoctl.pulsar.connection.native_border import native_setting
from kodoctl.pulsar.connection.secret import Secret, checked_secret

CONFIG_FILE: Final = "kodoctl.toml"
K528 = "a project's file may not say this"
_ACCESS_KEYS: Final = ("token_file", *TLS_KEYS, *OAUTH2_KEYS)
_OAUTH2_TEXT: Final = "KODOCTL_OAUTH2_CLIENT_SECRET"
PREFIX: Final = "KODOCTL_"  # of every variable that kodoctl reads
VARIABLES: Final = frozenset(
    {
        *(f"{PREFIX}{key.upper()}" for key in _ACCESS_KEYS),
        *(f"{PREFIX}{name}" for name in ("ADMIN_URL", "BROKER_URL", "FUNCTION_WORKER", "TOKEN", "CONTEXT", "CONFIG")),
        *(f"{PREFIX}{name}" for name in ("ENV", "DEV_HOME")),
        _OAUTH2_TEXT,
    }
)
_CONTEXT_KEYS: Final = {
    "admin_url": str,
    "broker_url": str,
    "function_worker": str,
    **dict.fromkeys(_ACCESS_KEYS, str),
    "env": str,
    "protected": bool,
}


@dataclass(frozen=True, slots=True)
class Context:
    """A named cluster of the configuration file `file`. `function_worker`: addresses of workers that run apart from the
    brokers, NO_WORKERS: the cluster has none; `env`: the environment of its topologies; each None: the file names none.
    `protected`: apply and most other commands that write there require its name, typed or with --confirm (not workers,
    nor the commands of live orders). `access`: values by the keys about tokens, OAuth2 and TLS; names of files that
    were relative begin with the folder of `file`.
    """

    name: str
    file: Path
    admin_url: str
    broker_url: str | None = None
    function_worker: str | None = None
    env: str | None = None
    protected: bool = False
    access: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Connection:
    """Settings with which clients connect to one cluster. Both URLs may be lists of brokers
    (kodoctl.pulsar.connection.addresses). `broker_url` None: no address of the binary port is known, so there are no
    bulk reads and no exclusive producer. `token`, `oauth2`: one of them at most. `context`: the chosen one; None: the
    addresses are of flags and variables. `function_worker`: addresses of function workers that run apart from the
    brokers, NO_WORKERS: the cluster has none, None: the brokers may have some. `broker_from`: the flag, variable or
    file that sets `broker_url`, for messages; `withheld`: text about credentials of the environment that are not sent
    to the context, "" without such ones or without a context; `native`: the native border may be used.
    """

    admin_url: str
    broker_url: str | None = None
    token: Secret | None = None
    context: Context | None = None
    tls: Tls | None = None
    oauth2: OAuth2 | None = None
    broker_from: str = "--broker-url"  # where broker_url was said, for whoever has to change it
    withheld: str = ""  # credentials of the environment that are there and not used, and why
    native: bool = True  # the native border reads and sends, where it can be used
    function_worker: str | None = None

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Each address of the admin API."""
        return split(self.admin_url)

    @property
    def worker_url(self) -> str | None:
        """Addresses of function workers that run apart from the brokers; None if the cluster has no such workers, or if
        it is not known whether it has some.
        """
        return None if self.function_worker == NO_WORKERS else self.function_worker


@dataclass(frozen=True, slots=True)
class Flags:
    """Values of the connection flags on the command line; None or "": the flag is not given."""

    context: str | None = None
    admin_url: str | None = None
    broker_url: str | None = None
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None


@dataclass(frozen=True)
class Contexts:
    """Contexts of the project's `kodoctl.toml` (in the working folder or above) and of the user's own. A context of the
    project hides one of the user with the same name, which must not be protected (`read_contexts`).

    Args:
        by_name: all contexts but those that are hidden.
        current: name of the default context, from KODOCTL_CONTEXT, else the project's file, else the user's; None or ""
            if none names one. It may be missing in `by_name`.
        own: the contexts of the user's file, hidden ones included.
    """

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None
    own: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Returns the context. Raises UsageError if there is no such context."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none yet; `kodoctl dev up` makes one"
            raise UsageError(error("K501", "unknown context", f"{name!r}; known: {known}"))
        return self.by_name[name]


def user_config(environ: Mapping[str, str]) -> Path | None:
    """Path of the user's own configuration file, which may not exist: the one that KODOCTL_CONFIG names (as it is
    written there), else `kodoctl.toml` in the user's folder for configuration; None if there is neither.
    """
    if named := environ.get("KODOCTL_CONFIG"):
        return Path(named)
    try:
        return config_folder() / CONFIG_FILE
    except UsageError:
        return None


def own_config(environ: Mapping[str, str]) -> Path:
    """Path of the user's own configuration file, as `user_config` returns it; raises UsageError in place of None."""
    if (file := user_config(environ)) is None:
        detail = "this user has no home folder: set HOME, or name a file in KODOCTL_CONFIG"
        raise UsageError(error("K502", "cannot read configuration", detail))
    return file


def project_config(folder: Path) -> Path | None:
    """The nearest `kodoctl.toml` in the folder (absolute) or above it, which may be the user's own one; None: there is
    none. Raises OSError, such as for a folder that must not be searched.
    """
    return nearest_file(CONFIG_FILE, folder)


def read_contexts(environ: Mapping[str, str], folder: Path) -> Contexts:
    """Reads the contexts of the user's file and of the project's (`project_config` of `folder`); a missing file has
    none. Raises KodoctlError for the first faulty file, the user's before the project's. A project's file is faulty as
    well if it may be a stranger's, has the name of a protected context of the user, or names a file with a secret
    outside of its folder. Raises OSError as `project_config` does.
    """
    own, project = user_config(environ), project_config(folder)
    by_name: dict[str, Context] = {}
    current: str | None = None
    has_own = own is not None and own.is_file()
    if own is not None and has_own:
        by_name, current = _read_config(own)
    owned = by_name
    if project is not None and not (own is not None and has_own and project.samefile(own)):
        if reason := why_a_strangers(project):
            raise KodoctlError(error("K502", "cannot read configuration", reason, Where(str(project))))
        contexts, chosen = _read_config(project)
        if faults := [fault for one in contexts.values() for fault in _of_project(one, by_name)]:
            raise KodoctlError(*faults)
        by_name = {**by_name, **contexts}
        current = chosen or current
    return Contexts(by_name, environ.get("KODOCTL_CONTEXT") or current, owned)


def _of_project(context: Context, own: Mapping[str, Context]) -> Iterator[Diagnostic]:
    """Errors for forbidden content of a project file: the location of a secret outside its folder, or the name
    of a context that the user protects.
    """
    where = Where(str(context.file))
    folder = context.file.parent.resolve()
    for key in sorted(SECRET_KEYS & context.access.keys()):
        if not Path(context.access[key]).resolve().is_relative_to(folder):
            detail = f"[contexts.{context.name}] {key} leads out of {folder}: add the context to your own file with `kodoctl context add`"
            yield error("K528", K528, detail, where)
    if context.name in own and own[context.name].protected:
        yours = own[context.name].file
        yield error("K528", K528, f"[contexts.{context.name}] is protected in {yours}: give it another name", where)


def _read_config(file: Path) -> tuple[dict[str, Context], str | None]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise KodoctlError(error("K502", "cannot read configuration", str(problem), Where(str(file)))) from None
    problems = []
    found: dict[str, Context] = {}
    tables, current = content.get("contexts", {}), content.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise _without_tables(file)
    for name, values in tables.items():
        if fault := _fault(values):
            detail = f"[contexts.{name}] {fault}; a context has {', '.join(_CONTEXT_KEYS)}"
            problems.append(error("K502", "cannot read configuration", detail, Where(str(file))))
            continue
        found[name] = _context(file, name, values)
    if problems:
        raise KodoctlError(*problems)
    return found, current


def _without_tables(file: Path) -> KodoctlError:
    detail = "`contexts` holds a table for each context, `current` names one of them"
    return KodoctlError(error("K502", "cannot read configuration", detail, Where(str(file))))


def _from(file: Path, key: str, value: str) -> str:
    return str(file.parent / expand_home(value)) if key in FILE_KEYS else value


def _fault(values: Any) -> str | None:
    if not isinstance(values, dict):
        return "is no table"
    wrong = [key for key, value in values.items() if not isinstance(value, _CONTEXT_KEYS.get(key, ()))]
    if wrong:
        return f"unknown or of the wrong type: {', '.join(wrong)}"
    return None if "admin_url" in values else "admin_url is missing"


def in_file(file: Path, name: str) -> Context | None:
    """The context `name` in one file; None if there is no such context or no such file. Raises KodoctlError if the file
    cannot be read or one of its contexts is invalid. The rules for a project's file are not applied.
    """
    return _read_config(file)[0].get(name) if file.is_file() else None


def check_context(file: Path, name: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Checks that a command can use these values as a context of that file, and reads the credentials that they name.
    Writes nothing. `values`: as `write_context` takes them; their keys and types must be right. Unless the file is the
    user's own (`user_config`), the rules for a project's file apply. Raises KodoctlError, also for a faulty file of the
    user.
    """
    found, own = _context(file, name, values), user_config(environ)
    if own is None or absolute_path(file) != absolute_path(own):
        there = _read_config(own)[0] if own is not None and own.is_file() else {}
        if faults := [*_of_project(found, there)]:
            raise KodoctlError(*faults)
    normalize_addresses(found.admin_url, found.broker_url)
    normalize_worker(found.function_worker)
    _kept_by(found)


def _context(file: Path, name: str, values: Mapping[str, Any]) -> Context:
    access = {key: _from(file, key, value) for key, value in values.items() if key in _ACCESS_KEYS}
    return Context(name, file, **{key: value for key, value in values.items() if key not in access}, access=access)


def write_context(file: Path, name: str, values: Mapping[str, Any]) -> None:
    """Adds one context to a file, or replaces it as a whole; the file is created if needed. Everything else in the file
    stays, with its comments, but a change by another process at the same time may be lost. `values`: as in the file, so
    relative names of files begin at its folder. They are not checked (`check_context`). Raises KodoctlError if the file
    cannot be read or parsed, or has its contexts in a form that cannot be changed here (such as dotted keys), and
    OSError if it cannot be written.
    """
    document = _editable(file)
    contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
    table = tomlkit.inline_table() if isinstance(contexts, InlineTable) else tomlkit.table()
    table.update(values)
    contexts[name] = table
    _write(file, document)


def remove_context(file: Path, name: str) -> None:
    """Removes a context from a file. If the file names it as the current one, the file has no current context
    afterwards. A missing file or context is no error. Raises as `write_context` does.
    """
    if file.is_file():
        document = _editable(file)
        document.get("contexts", {}).pop(name, None)
        if document.get("current") == name:
            document.pop("current")
        _write(file, document)


def use_context(file: Path, name: str) -> None:
    """Makes a context the current one of a file, which is created if needed. Does not check that the context exists.
    Raises as `write_context` does.
    """
    document = _editable(file)
    document["current"] = name
    _write(file, document)


def _editable(file: Path) -> tomlkit.TOMLDocument:
    """Content of a file, to be changed; an empty document if there is no such file. The contexts themselves are not
    checked, so that a faulty one can be replaced. Raises KodoctlError (K502).
    """
    try:
        document = tomlkit.parse(file.read_text(encoding="utf-8")) if file.is_file() else tomlkit.document()
    except (OSError, ValueError, TOMLKitError, RecursionError) as problem:
        raise KodoctlError(error("K502", "cannot read configuration", str(problem), Where(str(file)))) from None
    if not isinstance(document.get("contexts", {}), dict):
        raise _without_tables(file)
    return document


def _write(file: Path, document: tomlkit.TOMLDocument) -> None:
    """Replaces the file. Raises KodoctlError (K502) if the text would say something else than `document`: tomlkit
    writes a new table between dotted keys.
    """
    text = tomlkit.dumps(document)
    empty: dict[str, Any] = {"contexts": {}}  # tomlkit writes no text for an empty table of contexts
    if empty | tomllib.loads(text) != empty | document.unwrap():
        detail = "it cannot be changed here: begin each context with a line [contexts.NAME] instead of dotted keys"
        raise KodoctlError(error("K502", "cannot read configuration", detail, Where(str(file))))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())


def connect(flags: Flags, environ: Mapping[str, str], folder: Path) -> Connection:
    """Determines the connection of a command from flags, environment and the files found from `folder` (absolute), and
    reads its credentials. Addresses of the environment are ignored if a flag names a context. Sends nothing. Raises
    UsageError if no cluster is named anywhere, or if a token of a flag would go where only a project's file says;
    KodoctlError for faulty settings, also for those of files and variables that this connection does not use.
    """
    contexts = read_contexts(environ, folder)
    env = {} if flags.context else environ  # a context asked for by name is not mixed with the environment's addresses
    admin_url = flags.admin_url or env.get("KODOCTL_ADMIN_URL")
    name = flags.context or (None if admin_url else contexts.current)
    context = contexts.get(name) if name else None
    admin_url = admin_url or (context.admin_url if context else None)
    if admin_url is None:
        detail = "name one with --context or --admin-url, or start one with `kodoctl dev up --use`"
        raise UsageError(error("K503", "no cluster named", detail))
    own_broker = context.broker_url if context else None
    broker_url = flags.broker_url or env.get("KODOCTL_BROKER_URL") or own_broker
    worker = normalize_worker(env.get("KODOCTL_FUNCTION_WORKER") or (context.function_worker if context else None))
    foreign = worker not in (None, NO_WORKERS) and (
        context is None or worker != normalize_worker(context.function_worker)
    )
    # the context's own credentials go to its own addresses only
    mixed = not flags.context and (broker_url != own_broker or foreign)
    access = _access_of(environ)
    sent = context is None  # both addresses are of flags and of the environment then
    named = flags.context or environ.get("KODOCTL_CONTEXT")
    if context is not None and flags.token_file and (fault := _stranger(context, contexts, named)):
        raise UsageError(fault)
    sources = [
        _access_from_flags(flags),
        access if sent else _Access(tls=access.tls if env else None),
        _Access() if mixed or context is None else _kept_by(context),
    ]
    shown = next((one for one in sources if one.token or one.oauth2), _Access())
    tls = next((one.tls for one in sources if one.tls), None)
    places = _address_from("admin_url", flags, env, context), _address_from("broker_url", flags, env, context)
    return Connection(
        *normalize_addresses(admin_url, broker_url, places),
        shown.token,
        context,
        tls,
        shown.oauth2,
        places[1],
        _withheld(context) if context is not None and (access.token or access.oauth2) else "",
        native_setting(environ),
        worker,
    )


def _stranger(context: Context, contexts: Contexts, named: str | None) -> Diagnostic | None:
    """Returns an error if the token of a flag would be sent to an address that only a project's file chose, by its
    current context or by a context with the name of one of the user's; else None.
    """
    mine = contexts.own.get(context.name)
    if mine is context or (named == context.name and mine is None):
        return None
    how = (
        f"name the address with --admin-url, or the context with --context {context.name}"
        if mine is None
        else f"{mine.file} has a context of that name, too: name the address with --admin-url"
    )
    detail = (
        f"--token-file would go to {context.admin_url}, which [contexts.{context.name}] of a working folder says: {how}"
    )
    return error("K528", K528, detail, Where(str(context.file)))


def _withheld(context: Context) -> str:
    return f"KODOCTL_TOKEN and the like go to addresses of the environment only, not to context {context.name} of {context.file}"


def misspelled_variables(environ: Mapping[str, str]) -> list[Diagnostic]:
    """Returns a warning for each environment variable whose name begins with KODOCTL_ and is almost that of one of
    kodoctl's, because it would silently have no effect. Other names with this prefix are ignored: orchestrators make
    such variables from a service's name.
    """
    found = [
        (name, close[0])
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in VARIABLES and (close := get_close_matches(name, VARIABLES, 1, 0.9))
    ]
    return [warning("K030", "a variable that changes nothing", f"{name}: is {close} meant?") for name, close in found]


def readable(connection: Connection) -> Diagnostic | None:
    """Returns a warning if a token would be sent over a network without TLS, where others can read it; else None."""
    if connection.token is None and connection.oauth2 is None:
        return None
    urls = [url for url in (connection.admin_url, connection.broker_url, connection.worker_url) if url is not None]
    plain = [url for url in urls if readable_by_all(url)]
    if not plain:
        return None
    detail = f"{' and '.join(plain)}: whoever is on the way can read the token; use https:// and pulsar+ssl://"
    return warning("K529", "a token without TLS", detail)


def _address_from(key: str, flags: Flags, environ: Mapping[str, str], context: Context | None) -> str:
    """Flag, variable or file of the address `key` (`admin_url`, `broker_url`)."""
    variable = f"{PREFIX}{key.upper()}"
    if getattr(flags, key):
        return f"--{key.replace('_', '-')}"
    return (
        variable if environ.get(variable) or context is None else f"{key} of context {context.name} in {context.file}"
    )


@dataclass(frozen=True, slots=True)
class _Access:
    """Credentials and TLS files from one place."""

    token: Secret | None = None
    tls: Tls | None = None
    oauth2: OAuth2 | None = None


def _access_from_flags(flags: Flags) -> _Access:
    given = {key: getattr(flags, key) or "" for key in ("token_file", *TLS_KEYS)}
    return _Access(token_of(given), tls_of(given, "the flags"))


def _access_of(environ: Mapping[str, str]) -> _Access:
    given = {key: environ.get(f"KODOCTL_{key.upper()}", "") for key in _ACCESS_KEYS}
    token = token_of(given, text=environ.get("KODOCTL_TOKEN", ""), source="KODOCTL_TOKEN")
    text = environ.get(_OAUTH2_TEXT, "").strip()
    secret = checked_secret(text, _OAUTH2_TEXT, variable=_OAUTH2_TEXT) if text else None
    return _one(
        _Access(token, tls_of(given, "KODOCTL_TLS_*"), oauth2_of(given, "KODOCTL_OAUTH2_*", secret=secret)),
        "the environment",
    )


def _kept_by(context: Context) -> _Access:
    place = f"context {context.name}"
    return _one(
        _Access(token_of(context.access), tls_of(context.access, place), oauth2_of(context.access, place)), place
    )


def _one(found: _Access, place: str) -> _Access:
    if found.token and found.oauth2:
        detail = f"{place} has both a token and OAuth2 credentials: leave one"
        raise UsageError(error("K504", "two ways to say who one is", detail))
    return found
