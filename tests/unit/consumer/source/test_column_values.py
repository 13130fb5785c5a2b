"""Values of columns for JSON and for Avro, from PostgreSQL's text form."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.message import json_value
from kodo_consumer.source.column_values import read_array, reader_of

UTC = dt.UTC


@pytest.mark.parametrize(
    ("kind", "text", "for_json", "for_avro"),
    [
        (16, "t", True, True),
        (20, "9223372036854775807", 2**63 - 1, 2**63 - 1),
        (701, "1.5", 1.5, 1.5),
        (701, "NaN", "NaN", "NaN"),
        (1700, "12345678901234567890.10", "12345678901234567890.10", Decimal("12345678901234567890.10")),
        (3802, '{"a": [1]}', {"a": [1]}, '{"a": [1]}'),
        (17, "\\x00ff", "AP8=", b"\x00\xff"),
        (1114, "2026-01-02 03:04:05.6", "2026-01-02T03:04:05.600000", dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)),  # noqa: DTZ001
        (1184, "2026-01-02 03:04:05+00", "2026-01-02T03:04:05+00:00", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (1184, "infinity", "infinity", "infinity"),
        (1082, "2026-01-02", "2026-01-02", dt.date(2026, 1, 2)),
        (1083, "03:04:05", "03:04:05", dt.time(3, 4, 5)),
        (2950, "0" * 8 + "-0000-0000-0000-" + "0" * 12, "0" * 8 + "-0000-0000-0000-" + "0" * 12, UUID(int=0)),
        (25, "é", "é", "é"),
        (1007, "{1,NULL,3}", [1, None, 3], [1, None, 3]),
        (1009, '{{"a,b","c\\"}"},{d,"NULL"}}', [["a,b", 'c"}'], ["d", "NULL"]], [["a,b", 'c"}'], ["d", "NULL"]]),
        (1007, "[0:1]={1,2}", [1, 2], [1, 2]),
    ],
)
def test_values(kind: int, text: str, for_json: Any, for_avro: Any) -> None:
    assert reader_of(kind, is_avro=False)(text) == for_json
    assert reader_of(kind, is_avro=True)(text) == for_avro


def test_a_numeric_that_the_schema_calls_a_number_is_one() -> None:
    assert reader_of(1700, is_avro=False, is_number=True)("1.50") == Decimal("1.50")


@pytest.mark.parametrize("kind", [114, 3802])
def test_numbers_within_json_that_a_double_does_not_hold_keep_their_digits_as_texts(kind: int) -> None:
    read = reader_of(kind, is_avro=False)
    assert read('{"a": 12345678901234567.89, "b": [1.50, -0.0, 1e5]}') == {
        "a": "12345678901234567.89",
        "b": [1.5, -0.0, 100_000.0],
    }
    digits = "9" * 5_000
    assert read(f"[{digits}, 1e400, -1e400, 1e-400, 1e-9999999999999999999]") == [
        digits, "1e400", "-1e400", "1e-400", "1e-9999999999999999999",
    ]  # fmt: skip
    assert read("[9223372036854775807]") == [2**63 - 1], "it is exact, and so are its digits in the payload"


@pytest.mark.parametrize("levels", [200, 100_000])
def test_json_that_is_nested_too_deeply_for_a_payload_stays_a_text(levels: int) -> None:
    read, deep = reader_of(3802, is_avro=False), "[" * levels + "]" * levels
    assert read(deep) == deep
    assert json_value(json.dumps({"a": read("[" * 199 + "]" * 199)}).encode())
    assert reader_of(3807, is_avro=False)(f'{{"{deep}"}}') == [deep]


@given(st.lists(st.one_of(st.none(), st.text())))
def test_arrays_of_texts_come_back(values: list[str | None]) -> None:
    quoted = ("NULL" if one is None else '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"' for one in values)
    assert read_array("{" + ",".join(quoted) + "}", str) == values


def test_an_array_that_goes_on_is_refused() -> None:
    with pytest.raises(ValueError, match="after its end"):
        read_array("{1}2", int)
