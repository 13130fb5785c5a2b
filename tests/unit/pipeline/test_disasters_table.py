"""The table of planted disasters in the documentation is the list that is tested."""

from __future__ import annotations

from pathlib import Path

from tests.spark.disasters import ALL

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "audit.md"


def table() -> str:
    rows = [f"| {one.title} | {one.outcome.value} | {one.says.removeprefix('1 ') or '–'} |" for one in ALL]
    return "\n".join(["| what happened | verdict | says |", "|---|---|---|", *rows]) + "\n"


def test_the_page_has_every_disaster():
    assert PAGE.read_text(encoding="utf-8").endswith(table()), f"write this at its end:\n{table()}"
