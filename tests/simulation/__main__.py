"""Plays seeds: `python -m tests.simulation --seeds 20000`, or one that failed: `--seed 4711`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

from tests.simulation.world import BrokenPromise, World


def played(seed: int) -> tuple[str, str]:
    """The digest of a seed's run and what went wrong, empty when nothing did."""
    try:
        return f"{World(seed).run():08x}", ""
    except BrokenPromise as broken:
        return "", str(broken)
    except Exception:  # noqa: BLE001  # a defect of the simulation itself is told with its seed
        return "", f"seed {seed}: {traceback.format_exc()}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--processes", type=int, default=2, help="in how many processes (default 2)")
    asked = parser.parse_args()
    seeds = [asked.seed] if asked.seed is not None else list(range(asked.first, asked.first + asked.seeds))
    began = time.monotonic()
    failed = 0
    with ExitStack() as stack:
        found: Iterable[tuple[str, str]] = map(played, seeds)
        if asked.processes > 1:
            pool = stack.enter_context(ProcessPoolExecutor(asked.processes))
            found = pool.map(played, seeds, chunksize=min(50, len(seeds)))
        for seed, (digest, problem) in zip(seeds, found, strict=True):
            if problem:
                failed += 1
                print(problem, flush=True)
            elif asked.seed is not None:
                print(f"seed {seed}: digest {digest}")
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
