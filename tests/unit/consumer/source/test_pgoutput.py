"""Messages of pgoutput from bytes, as a PostgreSQL server writes them."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.source.pgoutput import (
    UNCHANGED,
    Begin,
    BrokenMessageError,
    Commit,
    Relation,
    RelationColumn,
    RowChange,
    Truncate,
    Value,
    read_message,
)

VALUES = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40)), max_size=6)


def row(values: list[Value]) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, bytes):
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
        else:
            parts.append(b"u")
    return b"".join(parts)


@given(VALUES, VALUES, st.sampled_from(["K", "O", ""]))
def test_changes_are_read_as_they_were_written(old: list[Value], new: list[Value], kind: str) -> None:
    before = kind.encode() + row(old) if kind else b""
    known, only_key = (old if kind else None), kind == "K"
    head = struct.pack(">I", 7)
    assert read_message(b"U" + head + before + b"N" + row(new)) == RowChange(7, known, only_key, new)
    assert read_message(b"I" + head + b"N" + row(new)) == RowChange(7, None, only_key=False, new=new, is_insert=True)
    if kind:
        assert read_message(b"D" + head + before) == RowChange(7, known, only_key, None)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_broken(data: bytes) -> None:
    with suppress(BrokenMessageError):
        read_message(data)


def test_transactions_and_tables() -> None:
    assert read_message(b"B" + struct.pack(">QqI", 1 << 40, 5_000, 3)) == Begin(1 << 40, 946_684_800_005)
    assert read_message(b"C" + struct.pack(">BQQq", 0, 10, 20, 0)) == Commit(20)
    assert read_message(b"T" + struct.pack(">IBII", 2, 0, 8, 9)) == Truncate((8, 9))
    columns = b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0note\0" + struct.pack(">Ii", 25, -1)
    found = RelationColumn("id", 23, is_key=True), RelationColumn("note", 25, is_key=False)
    assert read_message(b"R" + struct.pack(">I", 5) + b"public\0t\0d\0\2" + columns) == Relation(
        5, "public.t", "d", found
    )
    relation = read_message(b"R" + struct.pack(">I", 5) + b"\0t\0d\0\0")
    assert isinstance(relation, Relation)
    assert relation.name == "pg_catalog.t"
    assert read_message(b"O...") is None


@pytest.mark.parametrize(
    "data", [b"", b"Z", b"B", b"I\0\0\0\1X", b"D\0\0\0\1N", b"I\0\0\0\1N\0\1x", b"I\0\0\0\1N\0\1t\0\0\0\5a"]
)
def test_what_is_cut_off_or_unknown_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenMessageError):
        read_message(data)
