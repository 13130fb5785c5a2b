"""Typed messages of `kodoctl send`: lines, properties, times, and findings by line."""

from __future__ import annotations

import pytest
from kodo_consumer.cli.typed_messages import (
    findings_by_line,
    lines_text,
    parse_event_time,
    parse_properties,
    split_lines,
)

from kodoctl.errors import UsageError, error


def test_lines_keep_their_numbers_and_lose_their_ends() -> None:
    assert split_lines(b"a\r\n\n  \nb\rc\n\xff") == [(1, b"a"), (4, b"b\rc"), (5, b"\xff")]
    assert split_lines(b"\n") == []


def test_properties_are_names_and_values_and_all_others_are_told() -> None:
    properties, findings = parse_properties(["a=1", "b==", "c=", "d", "=e", "a=2"])
    assert properties == {"a": "1", "b": "=", "c": ""}
    assert [finding.detail for finding in findings] == [
        "--property 'd': write NAME=VALUE", "--property '=e': write NAME=VALUE", "--property a: given twice",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("1796029200000", 1_796_029_200_000), ("2026-11-30T10:00:00+01:00", 1_796_029_200_000),
     ("2026-11-30T09:00:00.5Z", 1_796_029_200_500)],
)  # fmt: skip
def test_an_event_time_is_a_number_or_has_its_zone(text: str, ms: int) -> None:
    assert parse_event_time(text) == ms


@pytest.mark.parametrize("text", ["", "soon", "2026-11-30T10:00:00", "-5", "9" * 19, "²"])
def test_another_event_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="K730"):
        parse_event_time(text)


def test_findings_are_told_once_with_their_lines() -> None:
    one, other, general = error("K716", "a", "bad"), error("K716", "a", "worse"), error("K717", "b", "missing")
    found = findings_by_line([(0, general), (2, one), (3, other), (4, one)])
    assert [finding.detail for finding in found] == ["missing", "lines 2, 4: bad", "line 3: worse"]
    assert lines_text([1, 2, 3, 7, 9, 10]) == "lines 1-3, 7, 9-10"
