"""A producer that speaks Pulsar's binary protocol by itself: it sends what no client library would let through.

Only what the tests of hostile messages need: one topic, one connection to the broker that owns it, plain text.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

_CONNECT, _CONNECTED, _PRODUCER, _SEND, _RECEIPT, _SEND_ERROR = 2, 3, 5, 6, 7, 8
_ERROR, _PRODUCER_SUCCESS, _PING, _PONG, _LOOKUP, _LOOKUP_ANSWER = 14, 17, 18, 19, 23, 24
_REDIRECT, _FOUND = 0, 1  # what a lookup answers
_LOOKUPS: Final = 50  # a broker that has just begun knows no owner for a moment
_CHECKED: Final = 0x0E01  # stands before a checksum
_WINDOW: Final = 500  # messages without a receipt: the broker has its own limit of 1,000


def varint(number: int) -> bytes:
    """A number of protobuf's; a negative one as 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def numeric(field: int, number: int) -> bytes:
    """A field that is a number."""
    return varint(field << 3) + varint(number)


def binary(field: int, data: bytes) -> bytes:
    """A field that is text, bytes or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields; none of the broker's answers has fields of fixed width."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        else:
            size = number()
            yield tag >> 3, data[at : at + size]
            at += size


def wire_metadata(more: bytes = b"") -> bytes:
    """A producer's name, a number and the publish time, as every message has to have them, and more fields."""
    return binary(1, b"wire") + numeric(2, 1) + numeric(3, int(time.time() * 1000)) + more


class RefusedError(Exception):
    """The broker does not take a message, or ends the connection over it."""


class WireProducer:
    """Sends metadata and payload as they are given. A context manager."""

    def __init__(self, broker_url: str, topic: str) -> None:
        self._number = 0
        self._places: dict[int, tuple[int, int] | str] = {}
        self._connect(broker_url)
        try:
            self._open(broker_url, topic)
        except BaseException:
            self._line.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()

    def _connect(self, broker_url: str) -> None:
        where = urlsplit(broker_url)
        self._line = socket.create_connection((where.hostname, where.port), timeout=20)
        self._command(_CONNECT, binary(1, b"wire") + numeric(4, 19))
        self._until(_CONNECTED)

    def _open(self, broker_url: str, topic: str) -> None:
        """Goes from broker to broker to the topic's owner, as lookups answer."""
        authoritative = 0
        for _ in range(_LOOKUPS):
            self._command(_LOOKUP, binary(1, topic.encode()) + numeric(2, 1) + numeric(3, authoritative))
            answer = dict(fields(self._until(_LOOKUP_ANSWER)[1]))
            if answer[3] not in (_REDIRECT, _FOUND):
                time.sleep(0.2)
                continue
            owner = answer[1]
            assert isinstance(owner, bytes)
            if owner.decode() != broker_url:
                broker_url, authoritative = owner.decode(), int(bool(answer.get(5)))
                self._line.close()
                self._connect(broker_url)
            if answer[3] == _FOUND:
                break
        self._command(_PRODUCER, binary(1, topic.encode()) + numeric(2, 1) + numeric(3, 2))
        self._until(_PRODUCER_SUCCESS)

    def send(self, metadata: bytes, payload: bytes) -> tuple[int, int]:
        """(ledger, entry) where it is stored. Raises RefusedError."""
        number = self.begin(metadata, payload)
        found = self.receipts()[number]
        if isinstance(found, str):
            raise RefusedError(found)
        return found

    def begin(self, metadata: bytes, payload: bytes, command: bytes = b"", checksum: int | None = None) -> int:
        """Sends without waiting; `receipts` tells what became of this number. `command`: more fields of the command."""
        self._number += 1
        told = numeric(1, _SEND) + binary(_SEND, numeric(1, 1) + numeric(2, self._number) + numeric(3, 1) + command)
        body = struct.pack(">I", len(metadata)) + metadata + payload
        checked = b"" if checksum is None else struct.pack(">HI", _CHECKED, checksum)
        frame = struct.pack(">I", len(told)) + told + checked + body
        try:
            self._line.sendall(struct.pack(">I", len(frame)) + frame)
            while self._number - len(self._places) >= _WINDOW:
                self._receipt()
        except OSError as problem:
            raise RefusedError(str(problem)) from None
        return self._number

    def receipts(self) -> dict[int, tuple[int, int] | str]:
        """Of everything sent: where it is stored, or why it is not."""
        while len(self._places) < self._number:
            self._receipt()
        return self._places

    def _receipt(self) -> None:
        kind, answer = self._until(_RECEIPT, _SEND_ERROR)
        told = dict(fields(answer))
        number = told[2]
        assert isinstance(number, int)
        if kind == _SEND_ERROR:
            self._places[number] = f"{told.get(4, b'')!r}"
            return
        place = told[3]
        assert isinstance(place, bytes)
        at = dict(fields(place))
        ledger, entry = at[1], at[2]
        assert isinstance(ledger, int)
        assert isinstance(entry, int)
        self._places[number] = ledger, entry

    def _command(self, kind: int, body: bytes) -> None:
        command = numeric(1, kind) + binary(kind, body)
        self._line.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)

    def _until(self, *kinds: int) -> tuple[int, bytes]:
        while True:
            (size,) = struct.unpack(">I", self._exactly(4))
            frame = self._exactly(size)
            (length,) = struct.unpack(">I", frame[:4])
            told = dict(fields(frame[4 : 4 + length]))
            kind = told[1]
            assert isinstance(kind, int)
            if kind == _PING:
                self._command(_PONG, b"")
                continue
            body = told.get(kind, b"")
            assert isinstance(body, bytes)
            if kind in kinds:
                return kind, body
            if kind == _ERROR:
                raise RefusedError(f"{body!r}")

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                more = self._line.recv(size - len(data))
            except OSError as problem:
                raise RefusedError(str(problem)) from None
            if not more:
                raise RefusedError("the broker ended the connection")
            data += more
        return bytes(data)
