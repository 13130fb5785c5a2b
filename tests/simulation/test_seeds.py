"""Seeds: see world.py for what a seed is, book.py and laws.py for what must hold. Every date has its own."""

from __future__ import annotations

import pytest

from tests.simulation.playing import A_DAY, assert_isolation, play_seeds

SEEDS = 40  # of 300 topologies; one in ten isolates
INTERPRETED = 10


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(A_DAY, marks=pytest.mark.full)])
def test_whatever_happens_every_promise_is_kept(seeds: int) -> None:
    assert_isolation(play_seeds(seeds), seeds)


@pytest.mark.timeout(1200)
def test_the_interpreted_core_keeps_every_promise_as_well() -> None:
    """A part: the nightly run plays as many seeds with it as with the compiled one."""
    assert "compiled core: off (" in play_seeds(INTERPRETED, core="false")
