"""Native border of kodoctl's consumer to Pulsar's client library: messages in bundles, without the interpreter between.

`load` is the only way in. It refuses whatever it is not proven with: another version of the client, another build of
it, a library without one of the functions, or one whose objects look otherwise than expected.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kodo_fast._native import Producer, Reader, Sender

__version__ = "1.0.0"
INTERFACE: Final = 1
"""What the consumer has to expect: raised whenever a function or a field of a type means something else."""
PROVEN: Final = ("3.13.0",)
"""Versions of pulsar-client that all tests passed with."""
DELIVERY: Final = (
    "entry", "token", "payload", "properties", "key", "ordering_key", "event_time", "publish_time", "batch_index",
    "broken", "schema",
)  # fmt: skip
"""Fields of a delivery, in their order."""
OUTGOING: Final = ("topic", "payload", "properties", "key", "ordering_key", "event_time", "deliver_at", "schema")
"""Fields of a message to publish, in their order."""


class RefusalError(Exception):
    """Why the native border cannot be used here, as a sentence."""


class NativeBorder(NamedTuple):
    """The types of the loaded module."""

    reader: type[Reader]
    producer: type[Producer]
    sender: type[Sender]
    client_version: str


def load(delivery: type[Any], outgoing: Sequence[str]) -> NativeBorder:
    """Loads the module for tuples of the type `delivery`; `outgoing`: the fields of messages to publish. Raises RefusalError."""
    found = _client_version()
    if tuple(getattr(delivery, "_fields", ())) != DELIVERY or tuple(outgoing) != OUTGOING:
        raise RefusalError(
            f"kodo-fast {__version__} and kodoctl do not fit each other: install the same release of both"
        )
    try:
        import _pulsar

        from kodo_fast import _native

        _native.load(str(_library(Path(_pulsar.__file__))), delivery, _pulsar.Message, int(_pulsar.Result.Timeout))
        _test(_native.delivery, _native.position, _pulsar)
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        raise RefusalError(f"pulsar-client {found} is not as expected: {problem}") from None
    return NativeBorder(_native.Reader, _native.Producer, _native.Sender, found)


def _client_version() -> str:
    """Of the installed client. Raises RefusalError for one that nothing was proven with."""
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
    """The client library that the wheel brings."""
    found = sorted((extension.parent / "pulsar_client.libs").glob("libpulsar*.so*"))
    if len(found) != 1:
        raise ImportError(f"{len(found)} libraries named libpulsar beside {extension.name}")
    return found[0]


def _test(delivery: Callable[[Any], Any], position: Callable[[Any], Any], client: Any) -> None:
    """Compares what the module reads of messages with what they were built from. Raises ImportError."""
    if position(client.MessageId(3, 5, 7, 11)) != (5, 7, 3, 11):
        raise ImportError("self-test: message ids differ")
    long = "long enough that it is not kept within the string " * 3
    cases: list[tuple[bytes | None, dict[str, str], str, str, int]] = [
        (b"\x00payload\xff", {"a": "1", "b\x00c": "d\x00" + long, long: "", "ü": "\U0001f600"}, "k\x00y", long, 1_234),
        (b"", {}, "", "", 0),
        (None, {"x" * 15: "y" * 16}, "key", "", 1 << 53),
    ]
    for number, (payload, properties, key, ordering_key, event_time) in enumerate(cases):
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
        found = delivery(builder.build())
        expected = ((-1, -1, -1), payload, properties, key, ordering_key, event_time, 0, -1, "", "")
        if found is None or (found[0], *found[2:]) != expected or str(found[1]) != "(-1,-1,-1,-1)":
            raise ImportError(f"self-test: message {number} of {len(cases)} differs")
