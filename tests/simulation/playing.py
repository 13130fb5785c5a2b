"""Plays many seeds in a process of their own: what they cost is the worker's own work, not that of measuring coverage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def play(*asked: str) -> str:
    """What `python -m tests.simulation` says; fails with it when a seed fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-m", "tests.simulation", "--processes", "1", *asked]
    played = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    return played.stdout


def play_quarter(number: int) -> None:
    """A quarter of the 2,000 seeds that every change has to pass; four files, so that they are shared out."""
    said = play("--first", str(500 * number), "--seeds", "500")
    assert "500 seeds" in said
    told = re.search(r"moved aside: (\d+) messages of noisy tenants; .*: (\d+)$", said, re.MULTILINE)
    assert told is not None, said
    moved, killed = map(int, told.groups())
    assert moved >= 1_000, said  # else these seeds say nothing about isolation
    assert killed >= 5, said
