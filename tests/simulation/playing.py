"""Plays many seeds in a process of their own: what they cost is the worker's own work, not that of measuring coverage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
FIRST: Final = "KODOCTL_TEST_FIRST_SEED"
A_DAY: Final = 2_000
"""Seeds of a date. No two dates have one in common, and none has one of those that `make simulate` plays."""


def first_seed() -> int:
    """The first seed of KODOCTL_TEST_FIRST_SEED, else of the date (UTC)."""
    given = os.environ.get(FIRST)
    return int(given) if given else datetime.now(UTC).date().toordinal() * A_DAY


def play(*asked: str, core: str = "true") -> str:
    """What `python -m tests.simulation` says; fails with it when a seed fails. `core`: "false" for the interpreted one, else the
    compiled one where kodo-fast has it; the process says which it is.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["KODO_FAST_CORE"] = core
    command = [sys.executable, "-m", "tests.simulation", "--processes", "1", *asked]
    played = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    print(played.stdout)  # noqa: T201
    return played.stdout


def play_seeds(seeds: int, core: str = "true") -> str:
    """So many seeds from the first on; what was said."""
    first = first_seed()
    print(f"{FIRST}={first} plays the same seeds again")  # noqa: T201
    said = play("--first", str(first), "--seeds", str(seeds), core=core)
    assert f"{seeds} seeds" in said
    return said


def assert_isolation(said: str, seeds: int) -> None:
    """Enough of isolation in that many seeds; without it they say nothing about it."""
    told = re.search(r"moved aside: (\d+) messages of noisy tenants; .*: (\d+)$", said, re.MULTILINE)
    assert told is not None, said
    moved, killed = map(int, told.groups())
    assert moved >= 2 * seeds, said
    assert killed >= seeds // 200, said
