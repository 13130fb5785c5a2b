"""Messages of Pulsar's client library without a broker, and how much memory this process has of what it read of them."""

from __future__ import annotations

import os
from typing import Any

import pulsar
import pytest

_pulsar = pytest.importorskip("_pulsar")


def built(
    payload: bytes | None,
    properties: dict[bytes, bytes],
    key: bytes = b"",
    happened: int = 0,
    ordering_key: bytes = b"",
) -> Any:
    """A message as the library has it; without payload: a tombstone."""
    builder = _pulsar.MessageBuilder()
    if payload is None:
        builder.set_null_value()
    else:
        builder.content(payload)
    for name, value in properties.items():
        builder.property(name, value)
    if key:
        builder.partition_key(key)
    if happened:
        builder.event_timestamp(happened)
    if ordering_key:
        builder.ordering_key(ordering_key)
    return builder.build()


def wrapped(raw: Any) -> pulsar.Message:
    """The same as a consumer of the client receives it."""
    message = pulsar.Message()
    message._message = raw
    return message


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # no file of ours
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
