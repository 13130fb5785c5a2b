"""`make demo-pipeline` as it stands, with a broker of its own: from traffic to a verdict, a planted loss that is sent again, and the
page.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.test_demo import shown

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]


def test_the_demo_finds_the_loss_it_plants_and_leaves_a_page_with_pictures(tmp_path: Path) -> None:
    said = shown("pipeline.py", tmp_path, 880)
    before, _, behind = said.partition("Somebody skips three orders")
    assert "no loss" in before.lower()
    loss, again, after = behind.partition(
        "recall plan shop.yaml --topic orders --subscription billing --lane L1/ready --lost"
    )
    assert "\nLOSS\n" in loss
    assert "3 messages to send again" in " ".join((again + after).split())
    assert "\nNO LOSS\n" in after
    assert "isolate mega, L1 -> B1" in before
    assert after.count("$ kodoctl pipeline sql") == 2
    page = Path(said.rstrip().rsplit("\n", 1)[1])
    assert page.stat().st_size > 10_000
    assert len(list((page.parent / "pictures/shop").glob("*.png"))) >= 3
