"""Avro records decoded without fastavro: the same values as fastavro's, and no hostile bytes do more than fail."""

from __future__ import annotations

import json
from contextlib import suppress
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.pulsar.values.avro_record import InvalidRecordError, record_decoder

QUOTA = {
    "type": "record", "name": "Quota",
    "fields": [
        {"name": "size", "type": "long"}, {"name": "policy", "type": {"type": "enum", "name": "Policy", "symbols": ["hold", "evict"]}},
    ],
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "record", "name": "Event", "namespace": "org.apache.pulsar",
    "fields": [
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean"},
        {"name": "ttl", "type": ["null", "int"]},
        {"name": "part", "type": "float"},
        {"name": "rate", "type": "double"},
        {"name": "data", "type": "bytes"},
        {"name": "topic", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "id", "type": {"type": "fixed", "name": "other.Id", "size": 3}},
        {"name": "quotas", "type": ["null", {"type": "map", "values": QUOTA}]},
        {"name": "clusters", "type": {"type": "array", "items": "string"}},
        {"name": "again", "type": ["null", "Quota", "other.Id"]},
        {"name": "within", "type": ["null", "Event"]},
    ],
}  # fmt: skip
QUOTAS = st.fixed_dictionaries({"size": st.integers(-(2**63), 2**63 - 1), "policy": st.sampled_from(["hold", "evict"])})
EVENTS: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {
            "nothing": st.none(),
            "flag": st.booleans(),
            "ttl": st.none() | st.integers(-(2**31), 2**31 - 1),
            "part": st.floats(width=32, allow_nan=False),
            "rate": st.floats(allow_nan=False),
            "data": st.binary(),
            "topic": st.text(),
            "id": st.binary(min_size=3, max_size=3),
            "quotas": st.none() | st.dictionaries(st.text(), QUOTAS, max_size=3),
            "clusters": st.lists(st.text(), max_size=3),
            "again": st.none() | QUOTAS | st.binary(min_size=3, max_size=3),
            "within": st.none() | EVENTS,
        }
    )
)


def encoded(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


@given(EVENTS)
def test_a_record_is_read_as_fastavro_wrote_it(event: dict[str, Any]) -> None:
    assert record_decoder(SCHEMA)(encoded(SCHEMA, event)) == event


@given(st.binary() | EVENTS.map(lambda event: encoded(SCHEMA, event)[:-1]))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    with suppress(InvalidRecordError):
        assert isinstance(record_decoder(SCHEMA)(data), dict)


def test_blocks_may_come_with_their_size_in_bytes() -> None:
    """Two items in the first block, whose size follows a negative count, and one in the second."""
    assert record_decoder({"type": "array", "items": "long"})(bytes([3, 4, 2, 4, 2, 6, 0])) == [1, 2, 3]


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "items in 0 bytes"),
        ("bytes", b"\x01", "-1 bytes where 0 are left"),
        ("string", b"\x08ab", "4 bytes where 2 are left"),
        ("string", b"\x02\xff", "UnicodeDecodeError"),
        (["null", "int"], b"\x01", "index -1"),
        (["null", "int"], b"\x08", "IndexError"),
        ("double", b"ab", "error"),
        ("int", b"\x80", "IndexError"),
        ({"type": "record", "name": "Me", "fields": [{"name": "me", "type": "Me"}]}, b"", "RecursionError"),
    ],
)  # fmt: skip
def test_hostile_bytes_are_refused(schema: Any, data: bytes, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"not a record of its schema: .*{why}"):
        record_decoder(schema)(data)


@pytest.mark.parametrize(
    "schema", ["Unknown", {"type": "record", "name": "R"}, {"name": "x"}, {"type": "enum", "name": 1}, None]
)
def test_another_schema_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidRecordError, match="not an Avro schema"):
        record_decoder(schema)


def test_names_without_a_namespace_are_found() -> None:
    pair = {
        "type": "record",
        "name": "Pair",
        "fields": [{"name": "one", "type": QUOTA}, {"name": "two", "type": "Quota"}],
    }
    value = {"one": {"size": 1, "policy": "hold"}, "two": {"size": 2, "policy": "evict"}}
    assert record_decoder(pair)(encoded(pair, value)) == value


def test_a_number_of_more_than_64_bits_is_refused_at_once() -> None:
    with pytest.raises(InvalidRecordError, match="64 bits"):
        record_decoder("long")(b"\xff" * 1_000_000)
    assert record_decoder("long")(b"\xff" * 9 + b"\x01") == -(2**63)


def test_a_type_of_no_fixed_size_is_no_schema() -> None:
    with pytest.raises(InvalidRecordError, match="not an Avro schema"):
        record_decoder({"type": "fixed", "name": "Id", "size": "3"})
