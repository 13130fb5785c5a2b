"""The tables of promises and faults name tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGES = [TESTS / "spark" / "README.md", TESTS / "faults" / "README.md", TESTS.parent / "SECURITY.md"]
_NAMED = re.compile(r"`((?P<file>[\w/]+\.py)(::(?P<of>[\w…]+))?|(?P<name>…?test_[\w…]+))`")


def named(page: Path) -> Iterator[tuple[str, str]]:
    """(file, name or "") of every test in the last column of the page's tables; a name without file is of the file before it."""
    for row in page.read_text(encoding="utf-8").splitlines():
        if not row.startswith("|"):
            continue
        file = ""
        for found in _NAMED.finditer(row.rstrip("| ").rpartition(" | ")[2]):
            file = found["file"] or file
            yield file, found["of"] or found["name"] or ""


def exists(page: Path, file: str, name: str) -> bool:
    """`…` stands for whatever may be there."""
    path = next((one for one in (page.parent / file, TESTS / file) if one.is_file()), None)
    if path is None:
        return False
    wanted = ".*".join(map(re.escape, name.split("…")))
    return (
        re.search(rf"^(async )?def {wanted}\(", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
        if name
        else True
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_test_that_a_table_names_exists(page: Path) -> None:
    found = list(named(page))
    assert len(found) > 20
    assert [one for one in found if not exists(page, *one)] == []


def test_a_test_that_is_not_there_is_found() -> None:
    assert not exists(PAGES[0], "test_ingest.py", "test_a_topology_that_…")
    assert not exists(PAGES[0], "test_nowhere.py", "")
