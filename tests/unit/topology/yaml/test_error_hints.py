"""Texts that are not YAML, as people write them: the place a person would look at, and what mends it."""

from __future__ import annotations

import pytest

from kodoctl.topology.yaml.error_hints import split_glued_key
from kodoctl.topology.yaml.nodes import parse

SPACE = "a space is missing after the colon: write "


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a:1\nb: 2\n", (1, 2), f"{SPACE}`a: 1`"),
        ("a: 1\nb:2\nc: 3\n", (2, 2), f"{SPACE}`b: 2`"),
        ("a:1\n# a word in between\n\nb: 2\n", (1, 2), f"{SPACE}`a: 1`"),
        ("t:\n  o:\n    levels:double # two\n    backup: true\n", (3, 11), f"{SPACE}`levels: double`"),
        ("a: 1\n  b: 2\n", (2, 3), "this line stands further in than line 1, whose `a` has a value already: begin both in column 1, or"),
        ("t:\n  - a: 1\n      b: 2\n", (3, 7), "whose `a` has a value already: begin both in column"),
        ("a: b: c\n", (1, 5), "a text with `: ` in it needs quotes"),
        ("x: 1\na: b: c\n", (2, 5), "a text with `: ` in it needs quotes"),
        ("x: http://h\na: b: c\n", (2, 5), "a text with `: ` in it needs quotes"),
        ("a: 1\nword\nb: 2\n", (3, 1), "a key is followed by a colon and a space"),
        ("a: 'b\nc: 1\n", (1, 4), "the quote that opens here is never closed"),
        ("a:\n\tb: 1\n", (2, 1), "this is a tab; indent with spaces, two a level"),
        ("a: @b\n", (1, 4), "a text that begins with @ needs quotes"),
        ("a: {b: 1\nc: 2\n", (2, 2), "(while parsing a flow mapping that begins on line 1): a comma or the closing bracket is missing"),
        ("a:\n  - b\n c\n", (3, 2), "indentation here"),
        ("a: &\n", (1, 5), "while scanning an anchor"),
    ],
)  # fmt: skip
def test_what_is_no_yaml_is_shown_where_it_is_mended(text: str, place: tuple[int, int], says: str) -> None:
    root, findings = parse(text.encode(), "t.yaml")
    assert root is None
    [finding] = findings
    assert finding.where is not None
    assert finding.code == "K001"
    assert says in finding.detail
    assert (finding.where.line, finding.where.column) == place


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("levels:double", ("levels", "double")),
        ("  - name:x y", ("name", "x y")),
        ("http://host", None),
        ("levels: double", None),
        ("a:b:c", None),
        ("no colon", None),
    ],
)
def test_a_key_and_a_value_without_a_space_between_are_told_from_other_texts(
    text: str, pair: tuple[str, str] | None
) -> None:
    assert split_glued_key(text) == pair
