"""Processes told apart, left behind, and ended: real ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kodoctl.dev import process
from kodoctl.dev.process import Process


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def sleeper(tmp_path):
    """A detached process that ends when asked to."""
    found = start(tmp_path, "import time; print('up', flush=True); time.sleep(600)")
    yield found
    process.stop(found, patience=5)


def start(folder: Path, program: str) -> Process:
    command = [sys.executable, "-c", program]
    found = process.start_detached(command, folder=folder, output=folder / "out", environ={"PATH": "/usr/bin"})
    assert found is not None
    return found


def test_this_process_is_itself():
    me = process.identify(os.getpid())
    assert me is not None
    assert process.alive(me)


def test_a_process_listens_where_it_does_itself_and_not_where_another_one_does(sleeper):
    me = process.identify(os.getpid())
    assert me is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert process.listens(me, port)
        assert not process.listens(sleeper, port)
    assert not process.listens(me, port)


def test_a_process_that_ended_listens_nowhere(sleeper):
    process.stop(sleeper, patience=5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not process.listens(sleeper, server.getsockname()[1])


def test_a_number_used_again_is_another_process(sleeper):
    assert process.alive(sleeper)
    assert not process.alive(replace(sleeper, started="another start"))


def test_a_process_with_the_number_of_ours_is_never_touched(sleeper):
    stranger = replace(sleeper, started="another start")
    assert process.stop(stranger, patience=1)  # ours is gone: nothing to do
    assert process.alive(sleeper)


def test_nobody():
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    assert process.identify(child.pid) is None


def test_a_dead_process_that_nobody_buried_is_dead():
    with subprocess.Popen(["/bin/sleep", "600"]) as child:
        found = process.identify(child.pid)
        assert found
        child.kill()
        wait_until(lambda: not process.alive(found))  # still in the process table until wait()


def test_it_is_itself_after_the_clock_was_set(sleeper, tmp_path, monkeypatch):
    folder = tmp_path / "proc"
    folder.mkdir()
    boot = psutil.boot_time()
    (folder / "stat").write_text(f"btime {int(boot) + 3_600}\n")
    (folder / str(sleeper.pid)).symlink_to(f"/proc/{sleeper.pid}")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(folder))
    assert psutil.boot_time() == boot + 3_600
    assert process.alive(sleeper)


def test_without_boot_number_the_time_of_its_start_tells_processes_apart(sleeper, monkeypatch):
    monkeypatch.setattr(psutil, "LINUX", False)
    first = process.identify(sleeper.pid)
    assert first is not None
    assert float(first.started) == pytest.approx(time.time(), abs=60)
    assert process.alive(first)
    assert not process.alive(sleeper)
    assert process.identify(2**22 + 1) is None


def test_it_is_paused_until_it_goes_on(sleeper):
    assert not process.is_paused(sleeper)
    assert process.send(sleeper, signal.SIGSTOP)
    wait_until(lambda: process.is_paused(sleeper))
    assert process.alive(sleeper)
    assert process.send(sleeper, signal.SIGCONT)
    wait_until(lambda: not process.is_paused(sleeper))
    assert not process.is_paused(replace(sleeper, started="another start"))


def test_output_goes_to_the_file_and_the_session_is_its_own(sleeper, tmp_path):
    wait_until(lambda: (tmp_path / "out").read_text() == "up\n")
    assert os.getsid(sleeper.pid) == sleeper.pid


def test_it_survives_the_process_that_started_it(tmp_path):
    program = (
        "import sys; from pathlib import Path; from kodoctl.dev import process; folder = Path(sys.argv[1]);"
        "found = process.start_detached(['/bin/sleep', '600'], folder=folder, output=folder / 'out', environ={});"
        "print(found.pid, found.started)"
    )
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, tmp_path], capture_output=True, text=True, check=True
    )
    assert told.stderr == ""
    pid, started = told.stdout.split()
    survivor = Process(int(pid), started)
    assert process.alive(survivor)
    assert process.stop(survivor, patience=5)
    assert not process.alive(survivor)


def test_asked_to_end_it_ends(sleeper):
    begin = time.monotonic()
    assert process.stop(sleeper, patience=30)
    assert not process.alive(sleeper)
    assert time.monotonic() - begin < 20


def test_one_that_does_not_listen_is_ended_by_force(tmp_path):
    deaf = start(
        tmp_path, "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    wait_until(lambda: (tmp_path / "out").read_text() == "deaf\n")
    assert process.stop(deaf, patience=0.3)
    assert not process.alive(deaf)


def test_waiting_for_one_that_goes_on_gives_up(sleeper):
    assert not process.wait_gone(sleeper, 0.2)
    os.kill(sleeper.pid, signal.SIGKILL)
    assert process.wait_gone(sleeper, 10)
