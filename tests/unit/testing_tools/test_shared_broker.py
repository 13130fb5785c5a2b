"""One broker for a run: here without a broker, only who owns what and what is cleared away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from kodoctl.dev import process
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance, write
from kodoctl.dev.ports import Ports
from kodoctl.dev.progress import quiet
from kodoctl.dev.resolve import UpFlags
from kodoctl.errors import KodoctlError
from tests.brokers import shared_broker


def killed_run(base, tmp_path):
    """What a run leaves that was killed: its folder, and a process that runs on."""
    program = (
        "import os, sys; from pathlib import Path; from tests.brokers import shared_broker as shared;"
        "print(shared.open_run(Path(sys.argv[1]), {}), flush=True); os.kill(os.getpid(), 9)"
    )
    told = subprocess.run([sys.executable, "-c", program, base], capture_output=True, text=True, check=False)
    run = base / told.stdout.strip().rpartition("/")[2]
    left = process.start_detached(["/bin/sleep", "600"], folder=tmp_path, output=tmp_path / "out", environ={})
    instance = Instance("run-x", "4.2.4", EngineName.JAVA, Auth.NONE, Ports(), ready_once=True, process=left)
    write(Homes(run / "instances", run).folder("run-x"), instance)
    return run, left


def test_what_a_killed_run_left_is_cleared_away_by_the_next(tmp_path):
    base = tmp_path / "runs"
    run, left = killed_run(base, tmp_path)
    assert process.alive(left)
    mine = shared_broker.open_run(base, {})
    assert not process.alive(left)
    assert list(base.iterdir()) == [mine]
    assert not run.exists()


def test_runs_that_go_on_are_left_alone(tmp_path):
    first, second = shared_broker.open_run(tmp_path, {}), shared_broker.open_run(tmp_path, {})
    assert first != second
    assert first.exists()
    owner = json.loads((first / "owner.json").read_text())
    this = process.identify(os.getpid())
    assert this is not None
    assert owner == asdict(this)


def test_a_folder_nobody_owns_is_cleared_away(tmp_path):
    (tmp_path / "stray").mkdir()
    shared_broker.open_run(tmp_path, {})
    assert not (tmp_path / "stray").exists()


def test_a_start_that_failed_is_not_tried_by_each_worker_again(tmp_path):
    run = shared_broker.open_run(tmp_path, {})
    asked = UpFlags("x", engine=EngineName.JAVA)
    for home in ("/nowhere", "/elsewhere"):
        with pytest.raises(KodoctlError, match=r"K601.*JAVA_HOME is /nowhere"):
            shared_broker.join(run, tmp_path / "jars", {"JAVA_HOME": home}, asked, quiet)


def test_closing_removes_everything_also_when_nothing_was_started(tmp_path):
    run = shared_broker.open_run(tmp_path, {})
    shared_broker.close_run(run, {})
    assert list(tmp_path.iterdir()) == []
