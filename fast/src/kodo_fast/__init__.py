"""Native border of kodoctl's consumer to Pulsar's client library: messages in bundles, without the interpreter between.

`load`, `load_messages` and `load_batches` are the only ways in. They refuse everything that the module is not proven
with: another version of the client, another build of it, a library without one of the functions, or one whose objects
look otherwise than expected.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from kodo_fast._native import BatchReader, Buffer, ConnectionWatch, MessageReader, Producer, Reader, Sender

__version__ = "1.0.0"
INTERFACE: Final = 3
"""Version of this interface: raised whenever a function or a field of a type means something else."""
PROVEN: Final = ("3.13.0",)
"""Versions of pulsar-client that all tests passed with."""
DELIVERY: Final = (
    "entry", "token", "payload", "properties", "key", "ordering_key", "event_time", "publish_time", "batch_index",
    "broken", "schema",
)  # fmt: skip
"""Fields of a delivery, in their order."""
OUTGOING: Final = ("topic", "payload", "properties", "key", "ordering_key", "event_time", "deliver_at", "schema")
"""Fields of a message to publish, in their order."""


_LONG: Final = "long enough that it is not kept within the string " * 3
_NO_ID: Final = "(-1,-1,-1,-1)"
_Case = tuple[bytes | None, dict[str, str], str, str, int]
_CASES: Final[tuple[_Case, ...]] = (
    (b"\x00payload\xff", {"a": "1", "b\x00c": "d\x00" + _LONG, _LONG: "", "ü": "\U0001f600"}, "k\x00y", _LONG, 1_234),
    (b"", {}, "", "", 0),
    (None, {"x" * 15: "y" * 16}, "key", "", 1 << 53),
)
"""Messages of the self-tests: payload, properties, key, ordering key, event time."""


_UNFIT: Final = f"kodo-fast {__version__} and kodoctl do not fit each other: install the same release of both"


class RefusalError(Exception):
    """Error: the native border cannot be used here; its text is the reason, as a sentence."""


class NativeBorder(NamedTuple):
    """Types of the loaded module for a worker, and the version of pulsar-client."""

    reader: type[Reader]
    producer: type[Producer]
    sender: type[Sender]
    watch: type[ConnectionWatch]
    client_version: str


class Columns(NamedTuple):
    """Messages in Arrow's layout, a buffer for each column. `has_…`: a bit for each row, None where every row has a
    value; `…_offsets`: numbers of 32 bits; `published` and `event_time`: numbers of 64 bits, in microseconds. Names and
    values of properties of all rows are in one row of buffers, which `map_offsets` divides.
    """

    ledger: Buffer
    entry: Buffer
    batch_index: Buffer
    published: Buffer
    has_event_time: Buffer | None
    event_time: Buffer
    has_key: Buffer | None
    key_offsets: Buffer
    keys: Buffer
    map_offsets: Buffer
    name_offsets: Buffer
    names: Buffer
    value_offsets: Buffer
    values: Buffer
    has_broken: Buffer | None  # this and the next two: None where nothing is broken
    broken_offsets: Buffer | None
    broken: Buffer | None
    has_payload: Buffer | None  # this and the next two: None where payloads are not asked for
    payload_offsets: Buffer | None
    payloads: Buffer | None


class BatchBorder(NamedTuple):
    """Types of the loaded module for reading stored messages as columns, and the version of pulsar-client."""

    reader: type[BatchReader]
    columns: type[Columns]
    client_version: str


class MessageBorder(NamedTuple):
    """Types of the loaded module for stored messages one by one, and for sending numbered ones."""

    reader: type[MessageReader]
    producer: type[Producer]
    sender: type[Sender]
    client_version: str


def load_messages(delivery: type[Any]) -> MessageBorder:
    """Loads and tests the module for stored messages, as tuples of the type `delivery`. Raises RefusalError."""
    found = _client_version()
    if tuple(getattr(delivery, "_fields", ())) != DELIVERY:
        raise RefusalError(_UNFIT)
    try:
        import _pulsar

        from kodo_fast import _native

        _native.load(str(_library(Path(_pulsar.__file__))), None, _pulsar.Message, int(_pulsar.Result.Timeout))
        _test(lambda message: _native.delivery(message, delivery), _native.position, _pulsar)
        _native.Sender.publish_numbered  # noqa: B018  # a module of an earlier release has none
        border = MessageBorder(_native.MessageReader, _native.Producer, _native.Sender, found)
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        raise RefusalError(f"pulsar-client {found} is not as expected: {problem}") from None
    return border


def load_batches() -> BatchBorder:
    """Loads and tests the module for stored messages as columns. Raises RefusalError."""
    found = _client_version()
    try:
        import _pulsar

        from kodo_fast import _native

        _native.load(str(_library(Path(_pulsar.__file__))), None, _pulsar.Message, int(_pulsar.Result.Timeout))
        _test_columns(_native.columns, _pulsar)
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        raise RefusalError(f"pulsar-client {found} is not as expected: {problem}") from None
    return BatchBorder(_native.BatchReader, Columns, found)


def load(delivery: type[Any], outgoing: Sequence[str]) -> NativeBorder:
    """Loads and tests the module for tuples of the type `delivery` and messages of the fields `outgoing`. Raises
    RefusalError.
    """
    found = _client_version()
    if tuple(getattr(delivery, "_fields", ())) != DELIVERY or tuple(outgoing) != OUTGOING:
        raise RefusalError(_UNFIT)
    try:
        import _pulsar

        from kodo_fast import _native

        _native.load(str(_library(Path(_pulsar.__file__))), delivery, _pulsar.Message, int(_pulsar.Result.Timeout))
        _test(_native.delivery, _native.position, _pulsar)
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        raise RefusalError(f"pulsar-client {found} is not as expected: {problem}") from None
    return NativeBorder(_native.Reader, _native.Producer, _native.Sender, _native.ConnectionWatch, found)


def _client_version() -> str:
    """Returns the version of the installed client. Raises RefusalError if the module was not proved with this version,
    or if the platform is not CPython on Linux.
    """
    if not sys.platform.startswith("linux") or platform.python_implementation() != "CPython":
        raise RefusalError(f"there is none for {platform.python_implementation()} on {platform.system()}")
    try:
        found = version("pulsar-client")
    except PackageNotFoundError:
        raise RefusalError("pulsar-client is not installed") from None
    if found not in PROVEN:
        raise RefusalError(f"it is proven with pulsar-client {', '.join(PROVEN)}, and {found} is installed")
    return found


def _library(extension: Path) -> Path:
    """Path of the client library in the wheel of `extension`. Raises ImportError unless there is exactly one."""
    found = sorted((extension.parent / "pulsar_client.libs").glob("libpulsar*.so*"))
    if len(found) != 1:
        raise ImportError(f"{len(found)} libraries named libpulsar beside {extension.name}")
    return found[0]


def _test(delivery: Callable[[Any], Any], position: Callable[[Any], Any], client: Any) -> None:
    """Compares messages as the module reads them with the values from which they were built. Raises ImportError if one
    differs.
    """
    if position(client.MessageId(3, 5, 7, 11)) != (5, 7, 3, 11):
        raise ImportError("self-test: message ids differ")
    for number, case in enumerate(_CASES):
        found = delivery(_built(case, client))
        if found is None or (found[0], *found[2:]) != ((-1, -1, -1), *case, 0, -1, "", "") or str(found[1]) != _NO_ID:
            raise ImportError(f"self-test: message {number} of {len(_CASES)} differs")


def _test_columns(columns: Callable[..., tuple[Any, ...]], client: Any) -> None:
    """Compares messages as columns with the values from which they were built. Raises ImportError if they differ."""
    found = Columns._make(columns([_built(case, client) for case in _CASES], _none_is_odd, True, 1 << 52))
    (payloads, properties, keys, _, times), count = zip(*_CASES, strict=True), len(_CASES)
    pairs = sorted(pair for each in properties for pair in each.items())
    texts = list(zip(_parts(found.name_offsets, found.names), _parts(found.value_offsets, found.values), strict=True))
    read = [
        _numbers(found.ledger, "q"), _numbers(found.entry, "q"), _numbers(found.batch_index, "i"), _numbers(found.published, "q"),
        _parts(found.key_offsets, found.keys), _parts(found.payload_offsets, found.payloads),
        _numbers(found.map_offsets, "i"), [number // 1000 for number in _numbers(found.event_time, "q")],
        *(list(bytes(one)) if one is not None else None for one in (found.has_payload, found.has_key, found.has_event_time)),
        sorted(texts), found.broken,
    ]  # fmt: skip
    expected = [
        [-1] * count, [-1] * count, [-1] * count, [0] * count,
        [key.encode() for key in keys], [payload or b"" for payload in payloads],
        [0, *accumulate(map(len, properties))], [time if time <= 1 << 52 else 0 for time in times],
        [0b011], [0b101], [0b001],
        [(name.encode(), value.encode()) for name, value in pairs], None,
    ]  # fmt: skip
    if read != expected:
        raise ImportError("self-test: columns differ")


def _none_is_odd(_message: Any, index: int) -> Any:
    raise ValueError(f"self-test: a message at {index} is not read")


def _numbers(buffer: Any, kind: Literal["i", "q"]) -> list[int]:
    numbers: list[int] = memoryview(buffer).cast(kind).tolist()
    return numbers


def _parts(offsets: Any, data: Any) -> list[bytes]:
    ends, whole = _numbers(offsets, "i"), bytes(data)
    return [whole[start:end] for start, end in pairwise(ends)]


def _built(case: _Case, client: Any) -> Any:
    """A message as pulsar-client builds it."""
    payload, properties, key, ordering_key, event_time = case
    builder = client.MessageBuilder()
    if payload is None:
        builder.set_null_value()
    else:
        builder.content(payload)
    for name, value in properties.items():
        builder.property(name, value)
    if key:
        builder.partition_key(key)
    if ordering_key:
        builder.ordering_key(ordering_key)
    if event_time:
        builder.event_timestamp(event_time)
    return builder.build()
