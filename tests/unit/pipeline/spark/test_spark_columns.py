"""Position and cause as Spark SQL: the texts. That they mean what Python says is for tests/spark/test_conditions.py."""

from __future__ import annotations

import sqlglot
from kodo_pipeline.spark.spark_columns import POSITION, cause_column, sql_literal


def test_a_text_is_quoted_so_that_spark_reads_it_back() -> None:
    assert sql_literal("it's \\ 日 😀\n") == r"'it\u0027s \u005c \u65e5 \U0001f600\u000a'"
    assert sql_literal("") == "''"


def test_a_cause_is_made_of_the_expressions_given() -> None:
    text = cause_column("row.reason", "NULL")
    assert "concat_ws(': ', nullif(row.reason, ''), nullif(NULL, ''))" in text
    assert text.startswith("nullif(left(regexp_replace(")


def test_spark_can_read_them() -> None:
    for text in (POSITION, cause_column("a", "b")):
        assert sqlglot.parse_one(text, read="spark")
