"""`make demo-pipeline` as it stands, with a broker of its own: from traffic to a verdict, a planted loss, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.test_demo import shown

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]


def test_the_demo_finds_the_loss_it_plants_and_leaves_a_page_with_pictures(tmp_path: Path) -> None:
    said = shown("pipeline.py", tmp_path, 880)
    before, _, behind = said.partition("Somebody skips three orders")
    assert "no loss" in before.lower()
    assert "loss" in behind.lower().replace("no loss", "")
    page = Path(said.rstrip().rsplit("\n", 1)[1])
    assert page.stat().st_size > 10_000
    assert len(list((page.parent / "pictures").glob("*.png"))) >= 3
