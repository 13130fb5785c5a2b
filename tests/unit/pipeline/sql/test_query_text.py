"""Answers to SQL statements for people, as CSV and as JSON."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from kodo_pipeline.sql.query_text import csv_line, text_lines, to_json, unique_names


class Interval(NamedTuple):
    """As Arrow has intervals."""

    months: int
    days: int


def test_a_narrow_answer_is_a_table_with_numbers_to_the_right() -> None:
    rows = [("anna", 5, None), ("ben\x1b[2J", 1200, True)]
    assert list(text_lines(["tenant", "messages", "ok"], rows, 40, more=False)) == [
        "tenant      messages  ok",
        "----------  --------  ----",
        "anna               5  NULL",
        "ben\\x1b[2J      1200  true",
        "(2 rows)",
    ]
    assert list(text_lines(["a"], [], 40, more=False)) == ["a", "-", "(0 rows)"]


def test_a_wide_answer_has_one_column_a_line_and_loses_nothing() -> None:
    found = list(text_lines(["id", "words"], [("7:1", "word " * 20)], 40, more=True))
    assert found[0] == "-- row 1 -------------------------------"
    assert found[1] == "id     7:1"
    assert " ".join(" ".join(found[2:-1]).split()) == "words " + "word " * 19 + "word"
    assert all(len(line) <= 40 for line in found[:-1])
    assert found[-1] == "(1 rows, and there are more: LIMIT chooses, --format csv prints all)"
    (cut,) = [line for line in text_lines(["a"], [("x" * 5000,)], 3000, more=False) if "x" in line]
    assert (len(cut), cut[-1]) == (2000, "…")


@pytest.mark.parametrize(
    ("value", "found"),
    [(None, None), (True, True), (7, 7), ("x", "x"), (1.5, 1.5), (math.nan, "nan"), (Decimal(10), 10), (Decimal("1.5"), 1.5),
     (datetime(2026, 1, 1, 10, tzinfo=UTC), "2026-01-01T10:00:00Z"), (date(2026, 1, 1), "2026-01-01"), (time(10), "10:00:00"),
     (b"ab", "ab"), (b"\xff\x00", "\\xff00"), ({1: b"a"}, {"1": "a"}), ([Decimal(1)], [1]), (range(2), "range(0, 2)"),
     ([([1], b"a")], [[[1], "a"]]), ({b"k": 1, b"\xff": 2}, {"k": 1, "\\xff": 2}), (Interval(1, 2), "Interval(months=1, days=2)")],
)  # fmt: skip
def test_values_of_all_kinds_are_json(value: Any, found: Any) -> None:
    assert to_json(value) == found


def test_csv_tells_null_from_a_text_without_characters() -> None:
    assert csv_line([1, None, "", 'a "b"', "a,b", {"k": 1}, True, "plain"]) == (
        '1,,"","a ""b""","a,b","{""k"": 1}",true,plain'
    )


def test_names_of_columns_are_made_unique() -> None:
    assert unique_names(["a", "a", "b", "a"]) == ["a", "a_2", "b", "a_3"]
