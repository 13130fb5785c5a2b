"""Options of the Pulsar source, checked before anything is requested from the cluster; one error has all findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.pulsar.connection.addresses import normalize_addresses
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.credentials import oauth2_of, tls_of, token_of
from kodoctl.pulsar.connection.native_border import NATIVE_VARIABLE
from kodoctl.pulsar.connection.secret import Secret, checked_secret, secret_of_variable
from kodoctl.topology.names import InvalidNameError, TopicName, whole_topic

MIB: Final = 1024 * 1024
_ACCESS: Final = {
    "token_file": "tokenFile",
    "tls_cert": "tlsCert",
    "tls_key": "tlsKey",
    "tls_ca": "tlsCa",
    "oauth2_issuer": "oauth2Issuer",
    "oauth2_client_id": "oauth2ClientId",
    "oauth2_client_secret_file": "oauth2ClientSecretFile",
    "oauth2_audience": "oauth2Audience",
    "oauth2_scope": "oauth2Scope",
}
"""Option of the source by the key that a context has for it."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the Pulsar source. `topics`: full names, in the order in which the end of each is fixed; `payload`:
    read payloads and their sizes; `cores`: number of tasks that run at once; `splits`: maximum for each partition,
    None: derived from the cores; `max_bytes`: about the most bytes of a stream's batch, None: no limit; `rows`: number
    of messages with which an Arrow batch ends, after the entry that reaches it; `timeout`: ms without a message after
    which a split ends and is not full; `skew`: ms by which publish times may be wrong; `coverage`: folder for a record
    of each split, None: no records are written; `strict`: a split that is not read in full fails the job; `native`: use
    the native border (the C++ package kodo-fast) if possible.
    """

    connection: Connection
    topics: tuple[TopicName, ...]
    payload: bool = True
    cores: int = 1
    splits: int | None = None
    max_bytes: int | None = None
    rows: int = 5_000
    timeout: int = 15_000
    skew: int = 300_000
    coverage: str | None = None
    strict: bool = True
    native: bool = True


def read_options(given: Mapping[str, str], cores: int, native: str = "") -> Options:
    """Parses the options of the source. `given`: text by name; case does not matter if the mapping ignores it, as
    Spark's does; `cores`: default of that option; `native`: value of the variable NATIVE_VARIABLE, "" if not set.
    Raises UsageError with every finding.
    """
    faults: list[Diagnostic] = []

    def take(name: str, kind: Callable[[str], Any], default: Any, hint: str) -> Any:
        text = given.get(name)
        if text is None:
            return default
        try:
            return kind(text)
        except _ToldError as problem:
            faults.append(_fault(f"{name} = {text!r}: {problem}"))
        except ValueError:
            faults.append(_fault(f"{name} = {text!r}: {hint}"))
        return default

    topics = take("topics", _topics, (), "") or take("topic", _topics, (), "")
    if given.get("topics") is not None and given.get("topic") is not None:
        faults.append(_fault("give `topic` or `topics`, not both"))
    if not topics and not faults:
        faults.append(_fault("name `topic`, or `topics` with commas: persistent://TENANT/NAMESPACE/TOPIC"))
    if strange := unknown(given):
        faults.insert(0, _fault(f"no such option: {', '.join(strange)}"))
    admin, broker = given.get("adminUrl"), given.get("serviceUrl")
    if not admin or not broker:
        faults.append(_fault("`adminUrl` (http://HOST:8080) and `serviceUrl` (pulsar://HOST:6650) are needed"))
    else:
        try:
            admin, broker = normalize_addresses(admin, broker, ("adminUrl", "serviceUrl"))
        except UsageError as problem:
            faults.extend(problem.diagnostics)
    access = _access(given, faults)
    variable = native.lower() or "true"
    if variable not in ("true", "false"):
        faults.append(_fault(f"the variable {NATIVE_VARIABLE} = {variable!r}: true or false"))
    found = Options(
        connection=replace(access, admin_url=admin or "", broker_url=broker),
        topics=topics,
        payload=take("payload", _truth, True, "true or false"),
        cores=take("cores", _count, cores, _COUNT),
        splits=take("splits", _count, None, _COUNT),
        max_bytes=take("maxBytesPerTrigger", _size, None, "bytes, such as 104857600 or 100m"),
        rows=take("rowsPerBatch", _count, 5_000, _COUNT),
        timeout=take("timeoutMs", _count, 15_000, _COUNT),
        skew=take("publishTimeSkewMs", _natural, 300_000, "milliseconds, 0 or more"),
        coverage=given.get("coverage"),
        strict=take("failOnDataLoss", _truth, True, "true or false"),
        native=take("native", _truth, variable == "true", "true or false"),
    )
    if faults:
        raise UsageError(*faults)
    return found


def _access(given: Mapping[str, str], faults: list[Diagnostic]) -> Connection:
    """A connection with credentials and TLS settings, and without addresses. Adds findings to `faults`."""
    texts = {key: given.get(name) or "" for key, name in _ACCESS.items()}

    def try_read(kind: Callable[[], Any]) -> Any:
        try:
            return kind()
        except UsageError as problem:
            faults.extend(problem.diagnostics)
            return None

    token = try_read(lambda: _secret(given, "tokenVariable") or _plain(given) or token_of(texts))
    tls = try_read(lambda: tls_of(texts, "the options"))
    oauth2 = try_read(lambda: oauth2_of(texts, "the options", secret=_secret(given, "oauth2ClientSecretVariable")))
    if token and oauth2:
        faults.append(_fault("both a token and OAuth2 credentials: leave one"))
    return Connection("", token=token, tls=tls, oauth2=oauth2)


def _secret(given: Mapping[str, str], option: str) -> Secret | None:
    """Returns the secret in the environment variable that an option names. None if the option is not set."""
    name = given.get(option)
    return checked_secret(secret_of_variable(name).reveal(), name, variable=name) if name else None


def _plain(given: Mapping[str, str]) -> Secret | None:
    text = given.get("token")
    return checked_secret(text, "token") if text else None


def connection_options(connection: Connection) -> dict[str, str]:
    """Makes the options for a cluster and its credentials, as `read_options` parses them. Secrets are named by their
    files or variables. Raises UsageError for a secret that has neither.
    """
    found = {"adminUrl": connection.admin_url, "serviceUrl": connection.broker_url or ""}
    if connection.token:
        found |= _place(connection.token, "token")
    if tls := connection.tls:
        found |= {"tlsCert": _text(tls.cert), "tlsKey": _text(tls.key), "tlsCa": _text(tls.ca)}
    if who := connection.oauth2:
        found |= {
            "oauth2Issuer": who.issuer,
            "oauth2ClientId": who.client_id,
            **_place(who.secret, "oauth2ClientSecret"),
        }
        found |= {"oauth2Audience": who.audience or "", "oauth2Scope": who.scope or ""}
    return {name: text for name, text in found.items() if text}


def _place(secret: Secret, option: str) -> dict[str, str]:
    if secret.file is None and secret.variable is None:
        detail = "a secret that is in no file and no variable would have to be shown to Spark: name where it is"
        raise UsageError(_fault(detail))
    return {f"{option}File": secret.file or "", f"{option}Variable": secret.variable or ""}


def _text(path: Path | None) -> str:
    return str(path) if path else ""


_MOST: Final = 2**31 - 1  # the client library and the native border take no larger one
_COUNT: Final = f"a number from 1 to {_MOST}"
KNOWN: Final = (
    "topic", "topics", "adminUrl", "serviceUrl", "token", "tokenVariable", "oauth2ClientSecretVariable", *_ACCESS.values(),
    "payload", "cores", "splits", "maxBytesPerTrigger", "rowsPerBatch", "timeoutMs", "publishTimeSkewMs", "coverage",
    "failOnDataLoss", "native",
)  # fmt: skip


def unknown(given: Mapping[str, str]) -> list[str]:
    """Sorted names that are no options of the source; case does not matter. The option `path`, which Spark itself adds,
    is ignored.
    """
    known = {name.lower() for name in KNOWN} | {"path"}
    return sorted(name for name in given if name.lower() not in known)


class _ToldError(ValueError):
    """Error of an option; its text names the problem."""


def _fault(detail: str) -> Diagnostic:
    return error("K572", "options of the source", detail)


def _topics(text: str) -> tuple[TopicName, ...]:
    try:
        return tuple(
            dict.fromkeys(TopicName.parse(whole_topic(name.strip())) for name in text.split(",") if name.strip())
        )
    except InvalidNameError as problem:
        raise _ToldError(str(problem)) from None


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()] if text.strip().lower() in ("true", "false") else _no()


def _no() -> bool:
    raise ValueError


def _count(text: str) -> int:
    return number if (number := _positive(text)) <= _MOST else _no()


def _positive(text: str) -> int:
    return int(text) if int(text) > 0 else _no()


def _natural(text: str) -> int:
    return int(text) if int(text) >= 0 else _no()


def _size(text: str) -> int:
    units = {"k": 1024, "m": MIB, "g": 1024 * MIB}
    number = text.strip().lower().removesuffix("b")
    unit = units.get(number[-1:], 1)
    return _positive(number.rstrip("kmg")) * unit
