"""How to reach a cluster: flags, then environment, then a context of `kodoctl.toml`, in one place for every command.

The environment is passed in: nothing below the command line reads it. A context's credentials are used with that
context's own addresses only, unless the context was asked for by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import platformdirs
import tomlkit

from kodoctl.errors import KodoctlError, UsageError, Where, error

CONFIG_FILE: Final = "kodoctl.toml"
_CONTEXT_KEYS: Final = {"admin_url": str, "broker_url": str, "token_file": str, "env": str, "protected": bool}


class Secret:
    """A text that never prints itself."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself: for headers and clients, never for output."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class Context:
    """A named cluster of `kodoctl.toml`; `file` is where it stands."""

    name: str
    file: Path
    admin_url: str
    broker_url: str | None = None
    token_file: Path | None = None
    env: str | None = None
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything a client needs. `broker_url` None: no binary port, so no bulk reads and no lease."""

    admin_url: str
    broker_url: str | None = None
    token: Secret | None = None
    context: Context | None = None

    @property
    def host(self) -> str:
        """Host of the admin API."""
        return urlsplit(self.admin_url).hostname or ""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said."""

    context: str | None = None
    admin_url: str | None = None
    broker_url: str | None = None
    token_file: str | None = None


@dataclass(frozen=True)
class Contexts:
    """All contexts in reach: the project's `kodoctl.toml` (found upwards from the working folder) over the user's."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Context:
        """Raises UsageError when there is no such context."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none yet; `kodoctl dev up` makes one"
            raise UsageError(error("K501", "unknown context", f"{name!r}; known: {known}"))
        return self.by_name[name]


def user_config(environ: Mapping[str, str]) -> Path:
    """The user's own configuration file; KODOCTL_CONFIG names another one."""
    named = environ.get("KODOCTL_CONFIG")
    return Path(named) if named else platformdirs.user_config_path("kodoctl") / CONFIG_FILE


def project_config(folder: Path) -> Path | None:
    """The nearest `kodoctl.toml` in the folder or above it."""
    return next((p / CONFIG_FILE for p in (folder, *folder.parents) if (p / CONFIG_FILE).is_file()), None)


def read_contexts(environ: Mapping[str, str], folder: Path) -> Contexts:
    """Contexts of both files. Raises KodoctlError with every fault of the files."""
    by_name: dict[str, Context] = {}
    current: str | None = None
    for file in (user_config(environ), project_config(folder)):
        if file is not None and file.is_file():
            contexts, chosen = _read_config(file)
            by_name.update(contexts)
            current = chosen or current
    return Contexts(by_name, environ.get("KODOCTL_CONTEXT") or current)


def _read_config(file: Path) -> tuple[dict[str, Context], str | None]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise KodoctlError(error("K502", "cannot read configuration", str(problem), Where(str(file)))) from None
    problems = []
    found: dict[str, Context] = {}
    tables, current = content.get("contexts", {}), content.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        detail = "`contexts` holds a table for each context, `current` names one of them"
        raise KodoctlError(error("K502", "cannot read configuration", detail, Where(str(file))))
    for name, values in tables.items():
        if fault := _fault(values):
            detail = f"[contexts.{name}] {fault}; a context has {', '.join(_CONTEXT_KEYS)}"
            problems.append(error("K502", "cannot read configuration", detail, Where(str(file))))
            continue
        token_file = file.parent / Path(values["token_file"]).expanduser() if "token_file" in values else None
        found[name] = Context(name, file, **{**values, "token_file": token_file})
    if problems:
        raise KodoctlError(*problems)
    return found, current


def _fault(values: Any) -> str | None:
    if not isinstance(values, dict):
        return "is no table"
    wrong = [key for key, value in values.items() if not isinstance(value, _CONTEXT_KEYS.get(key, ()))]
    if wrong:
        return f"unknown or of the wrong type: {', '.join(wrong)}"
    return None if "admin_url" in values else "admin_url is missing"


def write_context(file: Path, name: str, values: Mapping[str, Any]) -> None:
    """Adds or replaces one context; comments and everything else in the file stay."""
    document = _editable(file)
    contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
    table = tomlkit.table()
    table.update(values)
    contexts[name] = table
    _write(file, document)


def remove_context(file: Path, name: str) -> None:
    """Takes a context out; no fault if it is not there."""
    if file.is_file():
        document = _editable(file)
        document.get("contexts", {}).pop(name, None)
        if document.get("current") == name:
            document.pop("current")
        _write(file, document)


def use_context(file: Path, name: str) -> None:
    """Makes a context the current one."""
    document = _editable(file)
    document["current"] = name
    _write(file, document)


def _editable(file: Path) -> tomlkit.TOMLDocument:
    return tomlkit.parse(file.read_text(encoding="utf-8")) if file.is_file() else tomlkit.document()


def _write(file: Path, document: tomlkit.TOMLDocument) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_suffix(".new")
    scratch.write_text(tomlkit.dumps(document), encoding="utf-8")
    scratch.replace(file)


def connect(flags: Flags, environ: Mapping[str, str], folder: Path) -> Connection:
    """The connection a command uses. Raises UsageError when no cluster is named anywhere."""
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
    mixed = not flags.context and broker_url != own_broker  # the context's own token goes to its own addresses only
    token = _token(flags, env) or (None if mixed else _file_token(context))
    return Connection(_checked(admin_url, ("http", "https")), _checked_broker(broker_url), token, context)


def _token(flags: Flags, environ: Mapping[str, str]) -> Secret | None:
    if flags.token_file:
        return _read_token(Path(flags.token_file))
    if text := environ.get("KODOCTL_TOKEN", "").strip():
        return _checked_token(text, "KODOCTL_TOKEN")
    return _read_token(Path(environ["KODOCTL_TOKEN_FILE"])) if environ.get("KODOCTL_TOKEN_FILE") else None


def _file_token(context: Context | None) -> Secret | None:
    return _read_token(context.token_file) if context and context.token_file else None


def _read_token(file: Path) -> Secret:
    try:
        text = file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not a token"
        detail = f"{reason}: name a file that holds the token and nothing else"
        raise UsageError(error("K504", "cannot read token", detail, Where(str(file)))) from None
    return _checked_token(text, str(file))


def _checked_token(text: str, source: str) -> Secret:
    """A token travels in a header: one word of printable ASCII. What is wrong with another is not told, nor any of it."""
    if not text or not text.isascii() or any(not 33 <= ord(character) <= 126 for character in text):
        raise UsageError(
            error("K504", "cannot read token", f"{source}: it is not a token, which is one word on one line")
        )
    return Secret(text)


def _checked(url: str, schemes: tuple[str, ...]) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and not parts.username
        good = good and (schemes[0] != "http" or parts.port != 0)  # asking for the port is what finds a wrong one
    except ValueError:
        parts, good = None, False
    if not good:
        detail = f"{_without_user(url)!r}: write {schemes[0]}://HOST:PORT{_hint(parts, schemes)}"
        raise UsageError(error("K505", "not an address", detail))
    return url.rstrip("/")


def _hint(parts: SplitResult | None, schemes: tuple[str, ...]) -> str:
    """What may have been meant by a wrong address."""
    if parts is None:
        return "; a port is a number below 65536"
    if parts.username:
        return "; a user does not belong into it: tokens are given with --token-file"
    if parts.scheme in {"http", "https", "pulsar", "pulsar+ssl"} - {*schemes}:
        other = "--broker-url" if schemes[0] == "http" else "--admin-url"
        return f"; an address with {parts.scheme}:// belongs to {other}"
    return ""


def _checked_broker(url: str | None) -> str | None:
    return _checked(url, ("pulsar", "pulsar+ssl")) if url else None


def _without_user(url: str) -> str:
    return url.rsplit("@", 1)[-1]
