"""`make demo`, the first thing a newcomer runs, as it stands: it brings a broker of its own and removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.test_console import Console
from tests.services.polling import eventually

DEMO = Path(__file__).parents[2] / "examples/demo"


class Kept(NamedTuple):
    """A demo that waits. `line`: command line of the console that it printed."""

    process: subprocess.Popen[str]
    line: str


@contextmanager
def kept(folder: Path) -> Iterator[Kept]:
    """A demo with --keep, once it waits; its output is in `out.txt`."""
    environ = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "out.txt").open("w") as out:
        command = f"trap '' INT; exec {sys.executable} {DEMO / 'run.py'} --keep"  # as a shell starts it behind &
        process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=environ, stdout=out, stderr=out, text=True)
    try:
        eventually(lambda: process.poll() is not None or "Ctrl-C or" in (folder / "out.txt").read_text(), within=440)
        text = (folder / "out.txt").read_text()
        lines = [line for line in text.splitlines() if " ui shop.yaml" in line]
        assert lines, text[-3_000:]
        yield Kept(process, lines[0])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


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
@pytest.mark.timeout(300)
def test_the_demo_runs_to_its_end_and_removes_its_broker(tmp_path: Path) -> None:
    said = shown("run.py", tmp_path, 280)
    assert "kodoctl dev reset" in said.rsplit("Cleaning up", 1)[1]


@pytest.mark.broker
@pytest.mark.full
@pytest.mark.timeout(660)
def test_the_demo_stays_for_the_console_until_it_is_interrupted(tmp_path: Path) -> None:
    with kept(tmp_path) as demo:
        own = subprocess.Popen(demo.line.replace("&& ", "&& exec "), shell=True, stdout=subprocess.PIPE, text=True)
        try:
            ui = Console(own)
            assert "ConnectionError" in ui.get("/find", q="order 4711"), "an order of acme"
            assert "No message was lost" in ui.get("/"), "by an audit"
        finally:
            own.send_signal(signal.SIGINT)
            own.communicate(timeout=60)
    assert demo.process.returncode == 0
    said = (tmp_path / "out.txt").read_text()
    assert "kodoctl dev reset" in said.rsplit("Cleaning up", 1)[1]
    assert not list(tmp_path.glob("kodoctl-demo-*"))
