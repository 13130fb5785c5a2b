"""`make demo`, the first thing a newcomer runs, as it stands: it brings a broker of its own and removes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples/demo"


def shown(script: str, folder: Path, seconds: float) -> str:
    """What a demo prints; what it keeps is below the folder."""
    done = subprocess.run(
        [sys.executable, str(DEMO / script)],
        cwd=folder, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.broker
@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_demo_runs_to_its_end_and_removes_its_broker(tmp_path: Path) -> None:
    said = shown("run.py", tmp_path, 280)
    assert "kodoctl dev reset" in said.rsplit("Cleaning up", 1)[1]
