"""Pages that code and documentation name exist: so do their headings, and the tests and benchmarks that they cite."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_SOURCES: Final = ("*.py", "*.pyi", "*.cpp", "*.hpp", "*.toml", "*.yml", "*.md", "Makefile")
_PAGE: Final = re.compile(r"(?<![\w/.-])(docs/[\w./-]+\.md)(?:#([\w-]+))?")
_ELSEWHERE: Final = re.compile(r"\b(?:design|facts)/[a-z-]+|\b[a-z]+-measured\b|\(design: ")
"""Notes that are not in this repository."""
_CITED: Final = re.compile(r"`((?:tests|benchmarks)/[\w./-]+)`")


@cache
def _texts() -> dict[str, str]:
    """Text of each source and page by its path from the root; this module is left out."""
    listed = subprocess.run(["git", "ls-files", *_SOURCES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = (name for name in listed.splitlines() if ROOT / name != Path(__file__) and (ROOT / name).is_file())
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in names}


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_text_cites_notes_that_are_not_here() -> None:
    wrong = [f"{name}: {cited[0]}" for name, text in _texts().items() for cited in _ELSEWHERE.finditer(text)]

    assert wrong == []


def test_every_page_that_is_named_exists_with_its_heading() -> None:
    """In code; links between pages have a test of their own, and comparisons name pages of other projects."""
    code = {name: text for name, text in _texts().items() if not name.endswith(".md")}
    named = [(name, *cited) for name, text in code.items() for cited in _PAGE.findall(text)]

    assert len(named) > 30
    assert [f"{name}: {page}" for name, page, _ in named if not (ROOT / page).is_file()] == []
    assert [
        f"{name}: {page}#{heading}" for name, page, heading in named if heading and heading not in _anchors(ROOT / page)
    ] == []


def test_every_section_of_the_page_about_pulsar_says_how_to_measure_again_by_what_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "pulsar.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]

    assert [section.partition("\n")[0] for section in sections if "\nMeasure again: " not in section] == []
    assert [cited for cited in _CITED.findall(page) if not (ROOT / cited).exists()] == []
