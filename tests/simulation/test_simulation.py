"""The simulation itself: it can be repeated exactly, and it catches a worker that is broken in one place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.native.compiled import INTERPRETED_ONLY
from tests.simulation.mutants import MUTANTS, broken
from tests.simulation.playing import play, play_seeds
from tests.simulation.world import BrokenPromise, World

WITHIN = 200  # seeds


def _digest(seed: int) -> int:
    return World(seed).run()


def _told(seed: int, mutant: str) -> str:
    world = World(seed)
    if mutant.startswith("isolated: ") and not world.flood.isolates:
        return ""  # nobody is, so nothing can be wrong with it
    try:
        world.run()
    except BrokenPromise as caught:
        return str(caught)
    return ""


@pytest.mark.parametrize("seed", [3, 5, 63])
def test_a_seed_plays_the_same_again_in_another_process(seed: int) -> None:
    here = _digest(seed)
    assert here == _digest(seed) != _digest(seed + 1)
    assert f"seed {seed}: digest {here:08x}" in play("--seed", str(seed))


@pytest.mark.timeout(1200)
def test_the_interpreted_core_keeps_every_promise_as_well() -> None:
    """A part: the nightly run plays as many seeds with it as with the compiled one."""
    assert "compiled core: off (" in play_seeds(2_000, 100, core="false")


@INTERPRETED_ONLY
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_worker_broken_in_one_place_is_caught(mutant: str, record_property: Callable[[str, object], None]) -> None:
    with broken(mutant):
        told = [""]
        while not told[-1] and len(told) <= WITHIN:
            told.append(_told(len(told) - 1, mutant))
    record_property("seeds needed", len(told) - 1)
    assert f"python -m tests.simulation --seed {len(told) - 2}" in told[-1], f"not caught in {WITHIN} seeds"
