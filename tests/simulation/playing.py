"""Plays many seeds in a process of their own: what they cost is the worker's own work, not that of measuring coverage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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


def play_quarter(number: int) -> None:
    """A quarter of the 2,000 seeds that every change has to pass; four files, so that they are shared out."""
    play_seeds(500 * number, 500)


def play_seeds(first: int, seeds: int, core: str = "true") -> str:
    """So many seeds from the first on, and enough of isolation in them; what was said."""
    said = play("--first", str(first), "--seeds", str(seeds), core=core)
    assert f"{seeds} seeds" in said
    told = re.search(r"moved aside: (\d+) messages of noisy tenants; .*: (\d+)$", said, re.MULTILINE)
    assert told is not None, said
    moved, killed = map(int, told.groups())
    assert moved >= 2 * seeds, said  # else these seeds say nothing about isolation
    assert killed >= seeds // 100, said
    return said
