"""The simulation itself: it can be repeated exactly, and it catches a worker that is broken in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.native.compiled import INTERPRETED_ONLY
from tests.simulation.mutants import CAUGHT_BY, MUTANTS, broken
from tests.simulation.playing import play
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


def _catching(mutant: str, seeds: Iterable[int]) -> int | None:
    """The first of these seeds that catches it."""
    with broken(mutant):
        for seed in seeds:
            if told := _told(seed, mutant):
                assert f"python -m tests.simulation --seed {seed}" in told
                return seed
    return None


@pytest.mark.parametrize("seed", [3, pytest.param(5, marks=pytest.mark.full), pytest.param(63, marks=pytest.mark.full)])
def test_a_seed_plays_the_same_again_in_another_process(seed: int) -> None:
    here = _digest(seed)
    assert here == _digest(seed) != _digest(seed + 1)
    assert f"seed {seed}: digest {here:08x}" in play("--seed", str(seed))


@INTERPRETED_ONLY
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_worker_broken_in_one_place_is_caught(mutant: str) -> None:
    """By the seed that is known to. A change of the simulation, or of what the core draws, makes other worlds of the seeds: then
    it is searched for, and CAUGHT_BY is to be written anew.
    """
    assert _catching(mutant, [CAUGHT_BY[mutant], *range(WITHIN)]) is not None, f"not caught in {WITHIN} seeds"


@INTERPRETED_ONLY
@pytest.mark.full
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_seed_that_is_known_to_catch_a_broken_worker_catches_that_only(
    mutant: str, record_property: Callable[[str, object], None]
) -> None:
    first = _catching(mutant, range(WITHIN))
    assert first is not None, f"not caught in {WITHIN} seeds"
    record_property("seeds needed", first + 1)
    known = CAUGHT_BY[mutant]
    assert _catching(mutant, [known]) == known, f"seed {first} catches it, seed {known} does not any more"
    World(known).run()
