"""Plays seeds: `python -m tests.simulation --seeds 20000`, or one that failed: `--seed 4711`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

from kodo_consumer.core import COMPILED

from tests.simulation.world import BrokenPromise, World


class Played(NamedTuple):
    """The digest of a seed's run; what went wrong, empty when nothing did; messages moved aside, workers killed amid that."""

    digest: str = ""
    problem: str = ""
    moved: int = 0
    killed: int = 0


def played(seed: int) -> Played:
    """One seed."""
    try:
        world = World(seed)
        return Played(f"{world.run():08x}", "", world.flood.moved, world.flood.killed)
    except BrokenPromise as broken:
        return Played(problem=str(broken))
    except Exception:  # noqa: BLE001  # a defect of the simulation itself is told with its seed
        return Played(problem=f"seed {seed}: {traceback.format_exc()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--processes", type=int, default=2, help="in how many processes (default 2)")
    asked = parser.parse_args()
    seeds = [asked.seed] if asked.seed is not None else list(range(asked.first, asked.first + asked.seeds))
    print(COMPILED, flush=True)
    began = time.monotonic()
    failed = moved = killed = 0
    with ExitStack() as stack:
        found: Iterable[Played] = map(played, seeds)
        if asked.processes > 1:
            pool = stack.enter_context(ProcessPoolExecutor(asked.processes))
            found = pool.map(played, seeds, chunksize=min(50, len(seeds)))
        for seed, one in zip(seeds, found, strict=True):
            moved, killed = moved + one.moved, killed + one.killed
            if one.problem:
                failed += 1
                print(one.problem, flush=True)
            elif asked.seed is not None:
                print(f"seed {seed}: digest {one.digest}")
    print(f"{len(seeds)} seeds from {seeds[0]} on in {time.monotonic() - began:.0f} s, {failed} failed")
    print(f"moved aside: {moved} messages of noisy tenants; workers killed before they heard of such a move: {killed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
