"""Settings outside the topology: environment variables, or `kodo-consumer.toml` in the working folder or above it."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from kodo_consumer.adapters.stores.factory import StorePlace, parse_store
from kodo_consumer.adapters.tracing.setup import CHOICES, Wanted
from kodo_consumer.core.values.envelope import Duration, UnitError
from kodo_consumer.core.values.lane_selection import LaneSelection
from kodo_consumer.core.values.store import KEEP_S
from kodo_consumer.runtime.log_output import LogFormat, LogLevel
from kodoctl.errors import Diagnostic, KodoctlError, UsageError, Where, error
from kodoctl.host.host_facts import nearest_file, why_a_strangers
from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.connection.secret import Secret

log = logging.getLogger("kodo.consumer")
OnStoreDown = Literal["pause", "go_on"]
FILE: Final = "kodo-consumer.toml"
VARIABLE: Final = "KODO_CONSUMER_"  # and the name of the setting in capitals


def _duration(value: Any) -> Duration:
    return Duration.parse(str(value))


def _count(value: Any) -> int:
    number = int(str(value))
    if number < 1:
        raise ValueError(f"{number} is less than 1")
    return number


def _backoff(value: Any) -> Mapping[str, tuple[int, ...]]:
    """Delays in ms by code, from `{default = ["1s", "1m"], refund = ["10s"]}` in the file, or `default=1s,1m
    refund=10s` in a variable. Raises ValueError.
    """
    if not isinstance(value, Mapping):
        value = {code: text.split(",") for code, _, text in (part.partition("=") for part in str(value).split())}
    found = {str(code): tuple(map(_duration, delays)) for code, delays in value.items() if isinstance(delays, list)}
    if not found or len(found) < len(value) or not all(map(all, found.values())) or () in found.values():
        raise ValueError('write {default = ["1s", "1m"], CODE = ["10s"]}, in a variable default=1s,1m CODE=10s')
    return found


def _one_of(words: Sequence[str], listed: str) -> Callable[[Any], Any]:
    def read_word(value: Any) -> Any:
        if value not in words:
            raise ValueError(f"write {listed}")
        return value

    return read_word


def _member_of(kind: type[StrEnum]) -> Callable[[Any], Any]:
    def read_member(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"write {', '.join(kind)}") from None

    return read_member


def _flag(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _number(least: int, most: int) -> Callable[[Any], int]:
    def read_number(value: Any) -> int:
        if not re.fullmatch(r"\d+", str(value)) or not least <= int(str(value)) <= most:
            raise ValueError(f"{value!r} is no whole number from {least} to {most}")
        return int(str(value))

    return read_number


def _host(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.:_-]+", str(value)):
        raise ValueError(f"{value!r} is no host name or address")
    return str(value)


def _lanes(value: Any) -> LaneSelection:
    """Lane selection from a text such as `"retrying,pending"`, or from a list of such names in the file."""
    return LaneSelection.parse(",".join(map(str, value)) if isinstance(value, list) else str(value))


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "drain_timeout": _duration,
    "defer_timeout": _duration,
    "max_deferred": _count,
    "lanes": _lanes,
    "signing_keys": Signer.parse,
    "inbox_url": lambda value: Secret(str(value)),
    "outbox_url": lambda value: Secret(str(value)),
    "outbox_backoff": _backoff,
    "outbox_attempts": _count,
    "outbox_claim": _duration,
    "outbox_keep": _duration,
    "store": lambda value: StorePlace(parse_store(str(value))),
    "store_keep": _duration,
    "on_store_down": _one_of(("pause", "go_on"), "pause or go_on"),
    "crash_marks": lambda value: Path(str(value)),
    "host": _host,
    "port": _number(0, 65535),
    "metrics_tenants": _number(0, 1000),
    "traces": _one_of(CHOICES, ", ".join(CHOICES)),
    "traces_tenant": _flag,
    "native": _flag,
    "log_level": _member_of(LogLevel),
    "log_format": _member_of(LogFormat),
}
"""Parser of each setting, for the file's value or a variable's text. They raise ValueError, whose text says what is
allowed.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings outside of the topology, with their defaults. `drain_timeout`: ms for which the end waits at most for
    running handlers, deferred messages, receipts and confirmations. `defer_timeout`: ms from the return of its handler
    after which the attempt of a deferred message counts as failed, unless the handler names a time. `max_deferred`:
    most deferred and running messages of a worker together, at most half of those that it may have in memory, but never
    fewer than its slots. `signing_keys`: None: headers are not signed. `lanes`: the lanes that this worker reads,
    unless the consumer or the command names some; None: all of its subscription.

    `store`: where workers record done and started messages; None: nowhere, but see `crash_marks`. `store_keep`: ms for
    which it keeps a done message, and longer if few are done. `on_store_down`: no worker and no handler starts while
    the store is down (pause), or handlers run without it (go_on). `crash_marks`: a folder for marks of started
    messages, used only without a store.

    `inbox_url`: address of the database whose inbox `kodo-consumer inbox` shows; workers use the database of their
    Inbox.

    The outbox: `outbox_url`, address of its database; `outbox_backoff`, ms before each next try of a row by business
    code, of which the last repeats (`default` for all others; None: built-in delays); `outbox_attempts`, sends without
    a receipt after which a row is reported, and still tried; `outbox_claim`, ms that a relay's claim on a row lasts;
    `outbox_keep`, ms that sent rows are kept.

    Monitoring: `host` and `port`, where metrics and health are served (0: any free port; None: no server);
    `metrics_tenants`, most tenants with metrics of their own. `traces`: spans are made if the process has set a
    tracer provider (auto), or a missing one is an error (on), or never (off); `traces_tenant`: spans name tenants.

    `log_level` and `log_format`: level and format of the log on standard error that commands and `Consumer.run` set up,
    if the program sets up no logging of its own.

    `native`: false: the native border is not used, and messages go to the client library one by one. `workers`: number
    of worker processes of the command; only `--workers` sets it.
    """

    drain_timeout: int = 30_000
    defer_timeout: int = 600_000
    max_deferred: int = 1_000
    lanes: LaneSelection | None = None
    signing_keys: Signer | None = None
    inbox_url: Secret | None = None
    outbox_url: Secret | None = None
    outbox_backoff: Mapping[str, tuple[int, ...]] | None = None
    outbox_attempts: int = 10
    outbox_claim: int = 150_000
    outbox_keep: int = 7 * 86_400_000
    store: StorePlace | None = None
    store_keep: int = round(KEEP_S * 1000)
    on_store_down: OnStoreDown = "pause"
    crash_marks: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    metrics_tenants: int = 20
    traces: Wanted = "auto"
    traces_tenant: bool = False
    native: bool = True
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT
    workers: int = 1


def _is_variable(finding: Diagnostic) -> bool:
    """True if the finding is about an environment variable, not about a value in a file."""
    return finding.where is not None and finding.where.file.startswith(VARIABLE)


@cache
def _warn_of(variable: str) -> None:
    """Logs a warning, once in a process, if an environment variable is almost the name of a setting. Other unknown
    variables are ignored: orchestrators make variables from a service's name.
    """
    if not variable.startswith(VARIABLE) or (name := variable.removeprefix(VARIABLE).lower()) in _READERS:
        return
    if close := get_close_matches(name, _READERS, n=1, cutoff=0.8):
        log.warning("%s is no setting and changes nothing: is %s%s meant?", variable, VARIABLE, close[0].upper())


def _made_by_platform(name: str, text: Any) -> bool:
    """True for the variable that Kubernetes and Docker set in every container beside a service `kodo-consumer`."""
    return name == "port" and re.fullmatch(r"(tcp|udp|sctp)://[^/]+:\d+", text) is not None


def read_settings(environ: Mapping[str, str], folder: Path) -> Settings:
    """Settings from environment variables (KODO_CONSUMER_DRAIN_TIMEOUT and others), else from the file
    `kodo-consumer.toml`, else defaults. An empty variable is a value, not a missing one; KODO_CONSUMER_PORT counts as
    missing if it is the address of a service, as Kubernetes sets it. `folder`: absolute, where the search for the file
    begins, which goes on in the folders above; there may be no file. Logs a warning of a variable whose name is almost
    a setting's, once in a process.

    Raises one KodoctlError with all findings, also unknown keys of the file, a UsageError if any of them is about a
    variable. Raises at once: KodoctlError if the file cannot be read, or another user may have put it there (see
    why_a_strangers); UsageError (K721) if `store` is a database and SQLAlchemy is not installed; OSError for a folder
    that must not be searched.
    """
    file = nearest_file(FILE, folder)
    given: dict[str, Any] = {}
    where = Where(str(file)) if file else None
    if file is not None:
        try:
            if reason := why_a_strangers(file):
                raise KodoctlError(error("K708", "cannot read settings", reason, where))
            given = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise KodoctlError(error("K708", "cannot read settings", str(problem), where)) from None
    findings: list[Diagnostic] = []
    if unknown := [key for key in given if key not in _READERS]:
        detail = f"unknown: {', '.join(unknown)}; there is {', '.join(_READERS)}"
        findings.append(error("K708", "cannot read settings", detail, where))
    values: dict[str, Any] = {}
    for name, read in _READERS.items():
        variable = VARIABLE + name.upper()
        is_set = variable in environ and not _made_by_platform(name, environ[variable])
        text = environ[variable] if is_set else given.get(name)
        if text is None:
            continue
        try:
            values[name] = read(text)
        except (ValueError, UnitError) as problem:
            place = Where(variable) if is_set else where
            findings.append(error("K708", "cannot read settings", f"{name}: {problem}", place))
    if findings:
        kind = UsageError if any(_is_variable(finding) for finding in findings) else KodoctlError
        raise kind(*findings)
    for name in environ:
        _warn_of(name)
    return Settings(**values)
