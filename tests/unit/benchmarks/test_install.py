"""The page of extras has the figures that were measured, for every extra."""

from __future__ import annotations

import json
import tomllib

from benchmarks.install.measure import BASE, EXTRAS, PAGE, RESULTS, ROOT, filled


def test_the_page_has_the_figures_of_the_raw_results() -> None:
    """`python benchmarks/install/measure.py --write` puts them there."""
    records = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    text = PAGE.read_text("utf-8")
    assert "<!-- measure.py: sizes -->" in text
    assert filled(text, records) == text
    assert {record["arm"] for record in records[1:]} == {*BASE, *EXTRAS}


def test_every_extra_is_measured_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {*EXTRAS} == project["optional-dependencies"].keys()
    text = PAGE.read_text("utf-8")
    assert [extra for extra in EXTRAS if text.count(f"| `{extra}` |") != 2] == []
