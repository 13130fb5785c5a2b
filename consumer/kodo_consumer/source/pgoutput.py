# pure: every branch is tested
"""Messages of PostgreSQL's logical decoding plug-in pgoutput, protocol version 1, read from their bytes.

A value of a row is bytes in PostgreSQL's text form, None for NULL, or UNCHANGED: a large value that an update left as
it was, and that the server does not repeat.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

_EPOCH_MS: Final = 946_684_800_000  # 2000-01-01, PostgreSQL's epoch, in ms since 1970
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_RELATION_ID: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_COLUMN: Final = struct.Struct(">Ii")
_TRUNCATE: Final = struct.Struct(">IB")


class Unchanged(Enum):
    """Type of UNCHANGED."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Value of a column that an update did not change and the server does not repeat."""
Value = bytes | None | Unchanged
Values = Sequence[Value]


class BrokenMessageError(ValueError):
    """A message that is not pgoutput of version 1."""


class Begin(NamedTuple):
    """Begin of a committed transaction. `commit_lsn`: position of its commit; `time`: of the commit, in ms since the
    epoch.
    """

    commit_lsn: int
    time: int


class Commit(NamedTuple):
    """End of a transaction. `end_lsn`: the position after its commit."""

    end_lsn: int


class RelationColumn(NamedTuple):
    """Column of a table. `is_key`: part of the replica identity; `type`: OID of its type."""

    name: str
    type: int
    is_key: bool


class Relation(NamedTuple):
    """Table as it was when the changes that follow were made. `id`: its number (oid), negative in a snapshot; `name`:
    `schema.table`, without quotes; `identity`: replica identity, `d` (primary key), `n` (nothing), `f` (whole row) or
    `i` (an index).
    """

    id: int
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class RowChange(NamedTuple):
    """Insert, update or delete of a row of the table with the id `relation`. `old`: the row before, None: not sent;
    `only_key`: only the columns of the replica identity count in `old`; `new`: the row after, None for a delete;
    `is_insert`: the row is new.
    """

    relation: int
    old: Values | None
    only_key: bool
    new: Values | None
    is_insert: bool = False


class Truncate(NamedTuple):
    """Removal of all rows of tables. `relations`: ids of the tables."""

    relations: tuple[int, ...]


StreamMessage = Begin | Commit | Relation | RowChange | Truncate


def read_message(data: bytes) -> StreamMessage | None:
    """Reads a message; None: one of another kind, which says nothing about rows. Raises BrokenMessageError for a kind
    that pgoutput of version 1 does not have, and for data that is cut off.
    """
    try:
        match data[:1]:
            case b"I" | b"U" | b"D":
                return _change(data)
            case b"B":
                lsn, at, _ = _BEGIN.unpack_from(data, 1)
                return Begin(lsn, _EPOCH_MS + at // 1000)
            case b"C":
                return Commit(_COMMIT.unpack_from(data, 1)[2])
            case b"R":
                return _relation(data)
            case b"T":
                count, _ = _TRUNCATE.unpack_from(data, 1)
                return Truncate(tuple(_RELATION_ID.unpack_from(data, 6 + 4 * at)[0] for at in range(count)))
            case b"O" | b"Y" | b"M":
                return None
    except (struct.error, IndexError, ValueError) as problem:
        raise BrokenMessageError(f"{data[:1]!r}: {problem}") from None
    raise BrokenMessageError(f"unknown kind {data[:1]!r}")


def _change(data: bytes) -> RowChange:
    (relation,) = _RELATION_ID.unpack_from(data, 1)
    at, old, only_key = 5, None, False
    if data[at : at + 1] in (b"K", b"O"):
        only_key = data[at : at + 1] == b"K"
        old, at = _row(data, at + 1)
    new = None
    if data[:1] != b"D":
        if data[at : at + 1] != b"N":
            raise ValueError("no new row")
        new, at = _row(data, at + 1)
    elif old is None:
        raise ValueError("no old row")
    return RowChange(relation, old, only_key, new, data[:1] == b"I")


def _row(data: bytes, at: int) -> tuple[list[Value], int]:
    """Values of a row, and the place after it."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            (length,) = _LENGTH.unpack_from(data, at)
            at += 4
            if at + length > len(data):
                raise ValueError("a value is cut off")
            values.append(data[at : at + length])
            at += length
        elif kind == 0x6E:  # n
            values.append(None)
        elif kind == 0x75:  # u
            values.append(UNCHANGED)
        else:
            raise ValueError(f"unknown kind of value {kind}")
    return values, at


def _relation(data: bytes) -> Relation:
    (number,) = _RELATION_ID.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        kind, _ = _COLUMN.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(column, kind, bool(flags & 1)))
    return Relation(number, f"{schema or 'pg_catalog'}.{name}", identity, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
