"""Seeds: see world.py for what a seed is, book.py and laws.py for what must hold."""

from __future__ import annotations

import pytest

from tests.simulation.playing import play_quarter


@pytest.mark.timeout(2400)
def test_whatever_happens_every_promise_is_kept() -> None:
    play_quarter(3)
