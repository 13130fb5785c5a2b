"""Worker, exporter and drift on a disk that cannot be written, as `readOnlyRootFilesystem` of deploy/kustomize has it, on a real broker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import requests

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
PROGRAMS = Path(sys.executable).parent
TOPOLOGY = "orders: {subscriptions: {billing: {type: failover, audit: true}}}"
APP = """
from kodo_consumer import Consumer

consumer = Consumer.load("topologies/trade.yaml")


@consumer.handler
def bill(message):
    pass
"""
READ_ONLY = """
mount --make-rprivate /
while read -r _ _ _ _ place options _; do
  case $place in /proc*|/sys*|/dev*) ;; *) mount -o "remount,bind,ro,${options#r?}" "$place";; esac
done < /proc/self/mountinfo
for folder in / /tmp "${HOME:-/}" "$PWD"; do ! touch "$folder/canary" 2> /dev/null || exit 99; done
exec "$@"
"""


def _read_only(*command: str | Path) -> list[str]:
    """The command in a namespace of its own, in which each disk is read-only; the test is skipped where none can be made."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    as_root = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    inside = ["unshare", "--mount", *as_root, "bash", "-c", READ_ONLY, "bash"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False, timeout=30).returncode != 0:
        pytest.skip("no disk can be made read-only here")
    return [*inside, *map(str, command)]


def test_nothing_is_written_to_disk(workspace: Workspace) -> None:
    workspace.topology(TOPOLOGY)
    workspace.apply()
    (workspace.folder / "app.py").write_text(APP, encoding="utf-8")
    for program, *arguments in (
        ("kodo-consumer", "run", "app:consumer", "--port", "0", "--log-format", "json"),
        ("kodoctl", "exporter", "topologies/trade.yaml", "--port", "0"),
    ):
        log = workspace.folder / f"{program}.log"
        command = _read_only(PROGRAMS / program, *arguments, *workspace.connection())
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(command, cwd=workspace.folder, stdout=out, stderr=out, text=True)
        workspace.processes.append(process)

        eventually(partial(_is_ready, log, process))
        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 0
        assert "Read-only" not in log.read_text("utf-8")
    command = _read_only(PROGRAMS / "kodoctl", "drift", "topologies/trade.yaml", *workspace.connection())
    drift = subprocess.run(command, cwd=workspace.folder, capture_output=True, text=True, timeout=120, check=False)
    assert (drift.returncode, "No drift." in drift.stdout) == (0, True), drift.stderr


def _is_ready(log: Path, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, log.read_text("utf-8")
    address = re.search(r"(?:etrics are|health are) on (http://[\d.:]+)", log.read_text("utf-8"))
    return address is not None and requests.get(f"{address[1]}/readyz", timeout=10).ok
