"""A source reads back its stored messages although others stored some that no client reads as a whole."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kodo_consumer.source import stored_messages
from kodo_consumer.source.identity import PartitionCopies, SourceIdentity, System
from kodo_consumer.source.stored_messages import read_back

from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.session import Session
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.spark.filling import keep

pytestmark = pytest.mark.broker
IDENTITY = SourceIdentity("kodo_s", System("7001", 1, 1_000), "abc")
_GARBLED = wire_metadata(numeric(8, 2) + numeric(9, 5))  # says that it is compressed


def _chunk(number: int, count: int) -> bytes:
    return wire_metadata(binary(26, b"a") + numeric(27, count) + numeric(28, 2 * count) + numeric(29, number))


def _mark(end: int) -> bytes:
    """A mark of the source, by the name of its producer: all changes before `end` are stored."""
    texts = [
        binary(1, key.encode()) + binary(2, value.encode()) for key, value in IDENTITY.mark_properties(1, end).items()
    ]
    return wire_metadata(binary(1, IDENTITY.coverage_producer().encode()) + b"".join(binary(4, one) for one in texts))


@pytest.mark.parametrize("window", range(1, 8))
def test_whichever_window_is_read_first(
    workspace: Any, window: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The window may begin between two chunks of a message, whose last chunk alone is no message."""
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    keep(workspace)
    workspace.make_topic("home", 1)
    part = f"{workspace.full('home')}-partition-0"
    with WireProducer(workspace.broker.broker_url, part) as others:
        for metadata, payload in (
            (wire_metadata(), b"m0"), (_chunk(0, 3), b"a0"), (wire_metadata(), b"m2"), (_chunk(1, 3), b"a1"),
            (_chunk(2, 3), b"a2"), (_GARBLED, b"no zlib"), (wire_metadata(), b"m6"),
        ):  # fmt: skip
            others.send(metadata, payload)
        others.send(_mark(900), b"")
    monkeypatch.setattr(stored_messages, "_WINDOW", window)
    monkeypatch.setattr(stored_messages, "_GROWTH", 2)
    connection = Connection(workspace.broker.admin_url, broker_url=workspace.broker.broker_url)

    def enough(copies: PartitionCopies, _: int) -> bool:
        return bool(copies.spans)

    with caplog.at_level(logging.WARNING, "kodo.source"), Session(connection) as session:
        found = read_back(session, part, IDENTITY, enough)
    assert [(span.start, span.end) for span in found.spans] == [(1, 900)]
    assert ("1 entry cannot be read" in caplog.text) == (window >= 3)
    assert "2 entries" not in caplog.text
