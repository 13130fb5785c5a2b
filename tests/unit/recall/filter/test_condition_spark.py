"""The condition language as Spark SQL: the text, its columns, and where Spark may mean something else."""

from __future__ import annotations

import pytest

from kodoctl.recall.filter.condition import parse
from kodoctl.recall.filter.spark_sql import to_spark_sql
from tests.unit.recall.making import NOW


def test_spark_sql_says_the_same_in_its_own_words() -> None:
    def sql(text: str, **columns: str) -> str:
        return to_spark_sql(parse(text, NOW).root, columns)

    assert sql("reason = 'a' and not key is null") == "((`reason` = 'a') AND (NOT (`key` IS NULL)))"
    assert sql("reason = 'it\\'s \\\\ 日 😀'") == "(`reason` = 'it\\u0027s \\u005c \\u65e5 \\U0001f600')"
    assert sql("key ilike 'a%' or key like '_'") == "((`key` ILIKE 'a%') OR (`key` LIKE '_'))"
    assert sql("key in ('a', 'b')", key="m.key") == "((m.key) IN ('a', 'b'))"
    assert sql("attempts in (1, -0)") == "((`attempts` + 0D) IN (double('1.0'), double('0.0')))"
    assert sql("now() - dead_at > interval 2 hours").endswith("make_dt_interval(0, 0, 0, 7200.0))")
    assert sql("dead_at < now()") == f"(`dead_at` < timestamp_millis({NOW}))"
    assert "filter(array(`attempts`), v -> v != 0D)" in sql("1 / attempts > 2")
    assert sql("payload.a[0].b = 'x'") == "(get_json_object(`payload`, '$[\\u0027a\\u0027][0][\\u0027b\\u0027]') = 'x')"
    assert "RLIKE" in sql("properties['n'] > 1")
    assert "filter(array(`properties`['n']), v -> v RLIKE" in sql("properties['n'] < now()")
    assert sql("payload.paid").startswith("(CASE get_json_object")
    assert sql("cast(properties.x as string) = 'a'") == "(`properties`['x'] = 'a')"
    assert sql("length(key) = 1 and true").startswith("((CAST(length(`key`) AS DOUBLE) = double('1.0'))")
    assert sql("coalesce(key, 'a') = 'b'") == "(coalesce(`key`, 'a') = 'b')"


@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ("reason = 'x' and attempts > 2 and dead_at < now() and properties['n'] like 'a%'", None),
        ("key ilike 'a%'", ["`key`"]),
        ("key ilike 'é%'", ["true"]),
        ("lower(key) = 'x' or upper(reason) = 'Y'", ["`key`", "`reason`"]),
        ("payload.a > 1", ["json_array_length(concat('[', `payload`, ']')) = 1", "try_parse_json"]),
        ("payload.a is null or not payload.b", ["try_parse_json"]),
        ("payload.a[0] is null", ["= 'null'"]),
        ("payload.a = '1.5' or coalesce(payload.b, 'x') in ('y')", ["u0027a", "RLIKE"]),
    ],
)
def test_where_spark_may_mean_something_else_is_known(text: str, doubted: list[str] | None) -> None:
    from kodoctl.recall.filter.spark_fallback import needs_fallback_sql

    found = needs_fallback_sql(parse(text, NOW).root)
    assert (found is None) == (doubted is None)
    for part in doubted or ():
        assert part in (found or "")
    if "payload" in text:
        assert ("RLIKE" in (found or "")) == ("'" in text), "a number's characters count only beside a text"


def test_a_key_that_begins_with_white_space_is_never_left_to_spark() -> None:
    """Its parser of paths drops it: `payload[' a']` would read `a`."""
    from kodoctl.recall.filter.spark_fallback import needs_fallback_sql

    def doubts(key: str) -> bool:
        return "(true OR" in (needs_fallback_sql(parse(f"payload.b['{key}'].c = '1'", NOW).root) or "")

    assert all(doubts(f"{space}a") and doubts(space) for space in " \t\n\v\f\r")
    assert not any(doubts(key) for key in ("a", "a ", "a b", "\u00a0a", "\u2003a", "\x1ca", "\u0085a"))


def test_every_fact_has_a_column_but_those_that_tables_lack() -> None:
    from kodoctl.expressions.ast import named
    from kodoctl.recall.filter.fields import FACTS
    from kodoctl.recall.filter.spark_columns import ABSENT, fact_columns

    for by in (None, "uid", "key"):
        assert fact_columns(by).keys() - {"properties"} == FACTS.keys() - ABSENT
    root = parse(
        "length(key) + hops > 1 and not (level like 'a' or tenant in ('b') or due_at is null) and payload.a", NOW
    ).root
    assert named(root) == {"key", "hops", "level", "tenant", "due_at"}


def test_a_deep_sum_is_no_long_text() -> None:
    text = "1" + " + 1" * 25 + " > CAST(payload.a AS DOUBLE)"
    assert len(to_spark_sql(parse(text, NOW).root)) < 5_000
