"""The glossary explains each word once, and the places in the code that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for row in PAGE.splitlines() if row.startswith("| ")]
TERMS = [row for row in ROWS if row[0] != "word"]


def test_a_word_is_explained_once() -> None:
    words = [row[0] for row in TERMS]
    assert len(words) == len(set(words)) >= 60


@pytest.mark.parametrize("row", TERMS, ids=lambda row: str(row[0]))
def test_a_word_has_a_meaning_and_a_place_in_the_code(row: list[str]) -> None:
    _, meaning, _, code = row
    places = re.findall(r"`([^`]+)`", code)
    assert meaning
    assert places
    for place in places:
        folder = ROOT / "consumer" if place.startswith("kodo_consumer/") else ROOT
        assert (folder / place).exists(), place
