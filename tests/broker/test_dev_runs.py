"""Brokers for a run of tests: started once, ended with it, and not put off by a port that is gone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kodoctl.dev import ports, service
from kodoctl.dev.instance import EngineName, Homes
from kodoctl.dev.progress import ProgressStep
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
from tests.brokers.dev_user import CACHE, VERSION, until
from tests.services.ports import unusual_ports

pytestmark = pytest.mark.broker


@pytest.mark.full
def test_a_port_taken_at_the_last_moment_is_chosen_anew(tmp_path, monkeypatch):
    """The check says free, and a stranger is quicker: the broker dies of it, and others are tried."""
    base = unusual_ports()
    homes = Homes(tmp_path, CACHE)
    told = []
    with socket.create_server(("127.0.0.1", base.bookie)):
        lies = iter([True])
        honest = ports.is_free
        monkeypatch.setattr(ports, "is_free", lambda port: honest(port) or (port == base.bookie and next(lies, False)))
        asked = UpFlags("racer", VERSION, engine=EngineName.JAVA, preferred=base)
        try:
            result = up(homes, os.environ, asked, told.append)
            assert result.instance.ports.bookie != base.bookie
            assert ProgressStep("A port was taken in the meantime; choosing others") in told
        finally:
            service.reset(homes, os.environ, "racer")


SHARING = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(broker, namespace, number):
    assert broker.admin("GET", "namespaces/" + namespace).ok
    pathlib.Path(os.environ["OUT"], f"{number}-{os.getpid()}").write_text(broker.admin_url)
    if number == 3 and "HANG" in os.environ:
        import time
        time.sleep(600)
"""


@pytest.mark.full
class TestSharing:
    """The fixture `broker` of a run, tried in runs of their own."""

    @pytest.fixture
    def run(self, tmp_path):
        root = Path(__file__).parents[2]
        shutil.copy(root / "tests" / "conftest.py", tmp_path)
        (tmp_path / "test_sharing.py").write_text(SHARING)
        (tmp_path / "out").mkdir()
        environ = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("KODOCTL_TEST_ADMIN", "KODOCTL_TEST_BROKER", "KODOCTL_TEST_CLUSTER", "PYTEST_"))
        }
        config = ["-c", str(root / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
        base = [sys.executable, "-m", "pytest", "-q", *config, str(tmp_path)]

        def start(*options: str, **more: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*base, *options],
                env={**environ, "OUT": str(tmp_path / "out"), **more},
                stdout=subprocess.PIPE,
                text=True,
            )

        return start

    def outcome(self, tmp_path):
        files = list((tmp_path / "out").iterdir())
        return {file.name.split("-")[1] for file in files}, {file.read_text() for file in files}

    def gone(self, url: str) -> bool:
        return ports.is_free(int(url.rpartition(":")[2]))

    def test_workers_share_one_and_it_ends_with_the_run(self, run, tmp_path):
        with run("-n", "2") as pytest_process:
            told, _ = pytest_process.communicate(timeout=240)
        assert pytest_process.returncode == 0, told
        workers, urls = self.outcome(tmp_path)
        assert len(workers) == 2
        assert len(urls) == 1
        assert self.gone(urls.pop())

    @pytest.mark.full
    def test_it_ends_with_a_run_that_is_asked_to_end(self, run, tmp_path):
        with run(HANG="1") as pytest_process:
            until(lambda: len(list((tmp_path / "out").iterdir())) == 4, 200)
            pytest_process.send_signal(signal.SIGTERM)
            pytest_process.communicate(timeout=60)
        assert pytest_process.returncode == 2  # as after Ctrl-C
        _, urls = self.outcome(tmp_path)
        assert self.gone(urls.pop())
