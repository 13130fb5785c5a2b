"""The glossary explains each word once, and the places in the code that it names exist."""

from __future__ import annotations

import re

import pytest

from tests.architecture.replaced_words import REPLACED
from tests.source_roots import PACKAGES, ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for row in PAGE.splitlines() if row.startswith("| ")]
TERMS = [row for row in ROWS if row[0] != "term"]


def test_a_word_is_explained_once() -> None:
    words = [row[0] for row in TERMS]
    assert len(words) == len(set(words)) >= 60


@pytest.mark.parametrize("row", TERMS, ids=lambda row: str(row[0]))
def test_a_word_has_a_meaning_and_a_place_in_the_code(row: list[str]) -> None:
    _, meaning, code = row
    places = re.findall(r"`([^`]+)`", code)
    assert meaning
    assert places
    for place in places:
        folder = PACKAGES.get(place.partition("/")[0])
        assert ((folder.parent if folder else ROOT) / place).exists(), place


def test_a_replaced_word_is_replaced_by_a_term_and_is_itself_none() -> None:
    terms = {row[0] for row in TERMS}
    spoken = {word for term in terms for word in term.split(", ")}
    replaced = {word for words in REPLACED.values() for word in words}

    assert sorted(set(REPLACED) - terms) == []
    assert sorted(spoken & replaced) == []


def test_no_command_has_a_replaced_word_for_a_name() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    commands = {word for heading in re.findall(r"^#+ `?(kodo[^`\n]*)", page, re.MULTILINE) for word in heading.split()}

    assert "lab" in commands
    assert sorted(commands & {word for words in REPLACED.values() for word in words}) == []
