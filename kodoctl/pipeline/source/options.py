"""Options of the source, checked before anything is asked of the cluster: all that is wrong at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.pulsar.access import Secret
from kodoctl.pulsar.connection import Connection
from kodoctl.topology.names import InvalidNameError, TopicName, whole_topic

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What the source was asked for. `topics`: full names, in the order in which their ends are fixed. `cores`: tasks that run
    at once. `max_bytes` of a stream's batch, None: all there is. `timeout`: ms without a message after which a split is not
    full. `coverage`: folder that gets a record of each split, None: none. `strict`: what is not full fails the job.
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


def read_options(given: Mapping[str, str], cores: int) -> Options:
    """`given` finds names in any case. `cores` where no option says it. Raises UsageError with every finding."""
    strange = unknown(given)
    faults = [_fault(f"no such option: {', '.join(strange)}")] if strange else []

    def take(name: str, kind: Callable[[str], Any], default: Any, hint: str) -> Any:
        text = given.get(name)
        if text is None:
            return default
        try:
            return kind(text)
        except _ToldError as problem:
            faults.append(_fault(f"{name} = {text!r}: {problem}"))
        except (ValueError, OSError):
            faults.append(_fault(f"{name} = {text!r}: {hint}"))
        return default

    topics = take("topics", _topics, (), "") or take("topic", _topics, (), "")
    if not topics and not faults:
        faults.append(_fault("name `topic`, or `topics` with commas: persistent://TENANT/NAMESPACE/TOPIC"))
    admin, broker = given.get("adminUrl"), given.get("serviceUrl")
    if not admin or not broker:
        faults.append(_fault("`adminUrl` (http://HOST:8080) and `serviceUrl` (pulsar://HOST:6650) are needed"))
    token = given.get("token") or take("tokenFile", _text_of, None, "cannot be read")
    found = Options(
        connection=Connection((admin or "").rstrip("/"), broker, Secret(token) if token else None),
        topics=topics,
        payload=take("payload", _truth, True, "true or false"),
        cores=take("cores", _positive, cores, _COUNT),
        splits=take("splits", _positive, None, _COUNT),
        max_bytes=take("maxBytesPerTrigger", _size, None, "bytes, such as 104857600 or 100m"),
        rows=take("rowsPerBatch", _positive, 5_000, _COUNT),
        timeout=take("timeoutMs", _positive, 15_000, _COUNT),
        skew=take("publishTimeSkewMs", _natural, 300_000, "milliseconds, 0 or more"),
        coverage=given.get("coverage"),
        strict=take("failOnDataLoss", _truth, True, "true or false"),
    )
    if faults:
        raise UsageError(*faults)
    return found


def addressed(connection: Connection) -> dict[str, str]:
    """The options that say which cluster. Raises UsageError for access that Spark's tasks could not be given."""
    if connection.tls or connection.oauth2:
        raise UsageError(_fault("the pipeline shows tokens only, by now: no TLS files and no OAuth2 credentials"))
    token = {"token": connection.token.reveal()} if connection.token else {}
    return {"adminUrl": connection.admin_url, "serviceUrl": connection.broker_url or "", **token}


_COUNT: Final = "a number from 1"
KNOWN: Final = (
    "topic", "topics", "adminUrl", "serviceUrl", "token", "tokenFile", "payload", "cores", "splits", "maxBytesPerTrigger",
    "rowsPerBatch", "timeoutMs", "publishTimeSkewMs", "coverage", "failOnDataLoss",
)  # fmt: skip


def unknown(given: Mapping[str, str]) -> list[str]:
    """Names that mean nothing here; Spark adds `path` of its own."""
    known = {name.lower() for name in KNOWN} | {"path"}
    return sorted(name for name in given if name.lower() not in known)


class _ToldError(ValueError):
    """Its words say what is wrong."""


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


def _positive(text: str) -> int:
    return int(text) if int(text) > 0 else _no()


def _natural(text: str) -> int:
    return int(text) if int(text) >= 0 else _no()


def _size(text: str) -> int:
    units = {"k": 1024, "m": MIB, "g": 1024 * MIB}
    number = text.strip().lower().removesuffix("b")
    unit = units.get(number[-1:], 1)
    return _positive(number.rstrip("kmg")) * unit


def _text_of(file: str) -> str:
    return Path(file).expanduser().read_text(encoding="utf-8").strip()
