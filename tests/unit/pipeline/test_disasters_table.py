"""The table of planted disasters in the documentation is the list that is tested."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spark.disasters import ALL

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "audit.md"


def table() -> str:
    rows = [f"| {one.title} | {one.outcome.value} | {one.says.removeprefix('1 ') or '–'} |" for one in ALL]
    return "\n".join(["| what happened | verdict | says |", "|---|---|---|", *rows]) + "\n"


def test_the_page_has_every_disaster():
    assert PAGE.read_text(encoding="utf-8").endswith(table()), f"write this at its end:\n{table()}"


def test_what_the_page_says_of_a_real_broker_names_every_test_of_it():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    files = list((PAGE.parents[2] / "tests/spark").glob("test_*.py"))
    there = {
        file.name: set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)) for file in files
    }
    assert named <= set().union(*there.values())
    on_a_broker = (f"test_audit_{what}.py" for what in ("real", "planted", "clocks", "records"))
    assert set().union(*(there[name] for name in on_a_broker)) <= named
