"""Messages of somebody who means harm, in any number: random bytes in every field of the metadata, seeded.

Each says what has to become of it. What Pulsar's client library, or the broker itself, does not survive is not among them:
docs/explanation/hostile-messages.md has it, and what is promised of it.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from kodoctl.protocol import properties
from tests.brokers.wire_producer import binary, numeric, wire_metadata

_BIG: Final = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 10**15, 253_402_300_800_000)
_NAMES: Final = tuple(
    value
    for name, value in vars(properties).items()
    if name.isupper() and str(value).startswith(properties.PREFIX) and value != properties.FOR
)
"""Of control properties, but the one that says whose the message is."""
_MARKS: Final = tuple(name for name in _NAMES if name != properties.DUE)


class Fate(StrEnum):
    """What has to become of a message."""

    READ = "read"  # handled, or a dead letter, with its payload
    NOT_OURS = "not ours"  # read, or acknowledged unhandled and counted as another subscription's
    THROWN_AWAY = "thrown away"  # by the client library, which acknowledges it: told by an alarm
    WITHHELD = "withheld"  # nobody gets it: it stays in the backlog
    DROPPED = "dropped"  # the broker itself takes it for its own or for broken, and sends it to nobody
    REFUSED = "refused"  # the broker does not take it


class Hostile(NamedTuple):
    """`payloads`: what has to be handled, or to be dead letters. `frame`: more of the frame, see WireProducer.begin."""

    fate: Fate
    metadata: bytes
    body: bytes
    payloads: tuple[bytes, ...]
    form: str
    command: bytes = b""
    checksum: int | None = None


def hostile(seed: int, count: int) -> Iterator[Hostile]:
    """So many messages; the same ones for a seed, but for their publish times."""
    draw = _Draw(Random(seed))  # to be had again
    for number in range(count):
        yield draw.one(f"{seed}-{number}-")


class _Draw:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._forms: dict[Callable[[str], Hostile], int] = {
            self._plain: 50, self._batch: 15, self._encrypted: 9, self._compressed: 8, self._garbled: 4, self._not_ours: 3,
            self._chunk: 3, self._marker: 2, self._incomplete: 2, self._late: 1, self._false_sum: 1,
        }  # fmt: skip
        self._fields = (
            self._name, self._sequence, self._published, self._properties, self._many, self._control, self._key, self._origin,
            self._happened, self._schema, self._past, self._transaction, self._unknown, self._nulls, self._doubled,
        )  # fmt: skip

    def one(self, mark: str) -> Hostile:
        form = self.rng.choices(list(self._forms), list(self._forms.values()))[0]
        return form(mark)

    # ---- forms

    def _plain(self, mark: str) -> Hostile:
        body = self._payload(mark)
        command = self.rng.choice((b"", b"", b"", numeric(3, self.rng.choice((0, 5, 2**31 - 1)))))
        return Hostile(Fate.READ, self._metadata(), body, (body,), "plain", command)

    def _batch(self, mark: str) -> Hostile:
        payloads = tuple(self._payload(f"{mark}{index}-") for index in range(self.rng.randint(1, 6)))
        body = b"".join(single(payload, self._single()) for payload in payloads)
        told = self.rng.randint(1, len(payloads))  # fewer than there are: what is behind them is no message
        metadata = self._metadata(numeric(11, told))
        if self.rng.random() < 0.3:
            metadata += numeric(8, 2) + numeric(9, len(body))
            body = zlib.compress(body)
        return Hostile(Fate.READ, metadata, body, payloads[:told], "batch")

    def _encrypted(self, mark: str) -> Hostile:
        body = self._payload(mark)
        more = b"".join(self._encryption_key() for _ in range(self.rng.randint(1, 3)))
        if self.rng.random() < 0.5:
            more += binary(14, self._bytes(20))
        if self.rng.random() < 0.5:
            more += binary(15, self._bytes(20))
        if self.rng.random() < 0.5:
            more += numeric(8, self.rng.choice((1, 2, 3, 4, 77))) + numeric(
                9, self.rng.choice((0, 7, 2**31, 2**32 - 1))
            )
        if self.rng.random() < 0.5:
            more += numeric(11, self.rng.choice((1, 2, 3, 100)))
        return Hostile(Fate.READ, self._metadata(more), body, (body,), "encrypted")

    def _compressed(self, mark: str) -> Hostile:
        payload = self._payload(mark)
        if self.rng.random() < 0.4:  # a way of compressing that nobody knows is none
            more = numeric(8, self.rng.choice((5, 77, 2**31 - 1))) + numeric(9, self.rng.choice(_BIG))
            return Hostile(Fate.READ, self._metadata(more), payload, (payload,), "compression unknown")
        said = self.rng.randint(len(mark), len(payload))
        return Hostile(
            Fate.READ,
            self._metadata(numeric(8, 2) + numeric(9, said)),
            zlib.compress(payload),
            (payload[:said],),
            "compressed",
        )

    def _garbled(self, mark: str) -> Hostile:
        more = numeric(8, self.rng.choice((2, 3))) + numeric(9, self.rng.randint(0, 1000))
        return Hostile(Fate.THROWN_AWAY, self._metadata(more), b"\xff" + self._payload(mark), (), "garbled")

    def _not_ours(self, mark: str) -> Hostile:
        body = self._payload(mark)
        more = binary(4, binary(1, properties.FOR.encode()) + binary(2, self._text()))
        return Hostile(Fate.NOT_OURS, self._metadata(more), body, (body,), "for another")

    def _chunk(self, mark: str) -> Hostile:
        body = self._payload(mark)
        more = binary(26, self._bytes(12)) + numeric(27, 1) + numeric(28, len(body)) + numeric(29, 0)
        return Hostile(Fate.READ, self._metadata(more), body, (body,), "one chunk")

    def _marker(self, mark: str) -> Hostile:
        more = numeric(20, self.rng.choice((0, 1, 10, 13, 20, 21, 99, -1)))
        return Hostile(Fate.DROPPED, self._metadata(more), self._payload(mark), (), "marker")

    def _incomplete(self, mark: str) -> Hostile:
        fields = [binary(1, b"wire"), numeric(2, 1), numeric(3, 1)]
        del fields[self.rng.randrange(3)]
        return Hostile(Fate.DROPPED, b"".join(fields), self._payload(mark), (), "without a field it must have")

    def _late(self, mark: str) -> Hostile:
        due = self.rng.choice((2**63 - 1, int(time.time() * 1000) + 10**9))
        return Hostile(Fate.WITHHELD, self._metadata(numeric(19, due)), self._payload(mark), (), "late")

    def _false_sum(self, mark: str) -> Hostile:
        return Hostile(
            Fate.REFUSED, self._metadata(), self._payload(mark), (), "checksum", checksum=self.rng.getrandbits(32)
        )

    # ---- parts

    def _payload(self, mark: str) -> bytes:
        return mark.encode() + self._bytes(60)

    def _bytes(self, most: int) -> bytes:
        return self.rng.randbytes(self.rng.randint(0, most))

    def _text(self) -> bytes:
        """Most often text, of every kind that a reader may stumble over."""
        kind = self.rng.randrange(8)
        if kind == 0:
            return self._bytes(40)
        if kind == 1:
            return str(self.rng.choice(_BIG)).encode()
        return self.rng.choice(
            (b"", b"-1", b"1.5", b" 7", "\u0661\u0662".encode(), b"9" * 5000, b"x" * 1025, b"\x00", b"true", b"L1", b"{}",
             "\U0001f600\u202e".encode(), b"1:2:0:-1", b"<b>\x1b[31m", b"persistent://a/b/c", b"\r\n")
        )  # fmt: skip

    def _metadata(self, more: bytes = b"") -> bytes:
        fields = self.rng.sample(self._fields, self.rng.randint(0, 5))
        return wire_metadata(b"".join(field() for field in fields) + more)

    def _name(self) -> bytes:
        return binary(1, self._bytes(64))

    def _sequence(self) -> bytes:
        return numeric(2, self.rng.choice((*_BIG, self.rng.getrandbits(64)))) + numeric(24, self.rng.choice(_BIG))

    def _published(self) -> bytes:
        return numeric(3, self.rng.choice((*_BIG, self.rng.getrandbits(64))))

    def _happened(self) -> bytes:
        return numeric(12, self.rng.choice((*_BIG, self.rng.getrandbits(64))))

    def _property(self, name: bytes, value: bytes) -> bytes:
        return binary(4, binary(1, name) + binary(2, value))

    def _properties(self) -> bytes:
        return b"".join(self._property(self._text(), self._text()) for _ in range(self.rng.randint(1, 5)))

    def _many(self) -> bytes:
        most = self.rng.choice((1, 1, 1, 500))
        return b"".join(self._property(b"n%d" % index, b"v") for index in range(most))

    def _doubled(self) -> bytes:
        return self._property(b"uid", b"first") + self._property(b"uid", self._text())

    def _control(self) -> bytes:
        names = self.rng.sample(_NAMES, self.rng.randint(1, 4))
        return b"".join(self._property(name.encode(), self._text()) for name in names)

    def _key(self) -> bytes:
        found = binary(6, self._text()) if self.rng.random() < 0.7 else b""
        found += numeric(17, 1) if self.rng.random() < 0.4 else b""
        return found + (binary(18, self._bytes(30)) if self.rng.random() < 0.5 else b"")

    def _origin(self) -> bytes:
        return binary(5, self._bytes(20)) + b"".join(binary(7, self._bytes(20)) for _ in range(self.rng.randint(0, 3)))

    def _schema(self) -> bytes:
        return binary(16, self._bytes(64)) + (binary(32, self._bytes(20)) if self.rng.random() < 0.3 else b"")

    def _past(self) -> bytes:
        return numeric(19, self.rng.choice((0, -1, -(2**63), 1)))

    def _transaction(self) -> bytes:
        return numeric(22, self.rng.choice(_BIG)) + numeric(23, self.rng.choice(_BIG))

    def _unknown(self) -> bytes:
        return binary(self.rng.choice((21, 33, 200, 5000)), self._bytes(30)) + numeric(31, self.rng.randint(0, 9))

    def _nulls(self) -> bytes:
        return numeric(25, self.rng.randint(0, 1)) + numeric(30, self.rng.randint(0, 1))

    def _encryption_key(self) -> bytes:
        return binary(
            13,
            binary(1, self._bytes(20))
            + binary(2, self._bytes(40))
            + b"".join(
                binary(3, binary(1, self._bytes(9)) + binary(2, self._bytes(9))) for _ in range(self.rng.randint(0, 2))
            ),
        )

    def _single(self) -> bytes:
        """Metadata of one message of a batch."""
        fields: tuple[Callable[[], bytes], ...] = (
            lambda: binary(1, binary(1, self._text()) + binary(2, self._text())),
            lambda: binary(1, binary(1, self.rng.choice(_MARKS).encode()) + binary(2, self._text())),
            lambda: binary(2, self._text()),
            lambda: numeric(5, self.rng.choice(_BIG)),
            lambda: numeric(6, 1),
            lambda: binary(7, self._bytes(20)),
            lambda: numeric(8, self.rng.choice(_BIG)),
            lambda: numeric(9, 1) + numeric(10, 1),
            lambda: binary(99, self._bytes(20)),
        )
        return b"".join(field() for field in self.rng.sample(fields, self.rng.randint(0, 3)))


def single(payload: bytes, more: bytes = b"", *, size: int | None = None, length: int | None = None) -> bytes:
    """One message of a batch; `size` of its payload and `length` of its metadata as they are said to be."""
    metadata = numeric(3, len(payload) if size is None else size) + more
    told = len(metadata) if length is None else length
    return struct.pack(">I", told & 0xFFFFFFFF) + metadata + payload
