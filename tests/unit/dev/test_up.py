"""`dev up` as far as it goes without a broker: killed half-way, and beside processes that end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kodoctl.dev import process
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance, read_instance, write
from kodoctl.dev.progress import WaitProgress
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
from kodoctl.errors import KodoctlError
from tests.services.ports import unusual_ports

KILLED = """
import sys
from pathlib import Path
from kodoctl.dev.instance import EngineName, Homes
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
homes = Homes(Path(sys.argv[1]) / "data", Path(sys.argv[1]) / "jars")
up(homes, {"PATH": sys.argv[1] + ":/usr/bin:/bin"}, UpFlags("dev", engine=EngineName.JAVA))
"""


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path / "data", tmp_path / "jars")


def test_data_of_an_unknown_instance_stays_unknown_after_a_kill(homes, tmp_path):
    """With a record, the next start would take the data for that of an instance that was never ready, and delete it."""
    (homes.folder("dev").data / "precious").mkdir(parents=True)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nkill -9 $PPID\n")
    java.chmod(0o755)
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=False)
    assert read_instance(homes.folder("dev")) is None
    assert "K623" in ended.stderr


def test_a_broker_that_ends_during_the_wait_does_not_run(homes, tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = process.start_detached(command, folder=tmp_path, output=tmp_path / "out", environ={"PATH": "/usr/bin"})
    assert started is not None
    write(homes.folder("dev"), Instance("dev", "4.2.4", EngineName.JAVA, Auth.NONE, unusual_ports(), process=started))

    def end(event: object) -> None:
        assert isinstance(event, WaitProgress)
        process.send(started, signal.SIGKILL)
        process.wait_gone(started, 10)

    with pytest.raises(KodoctlError, match="K609") as caught:
        up(homes, {}, UpFlags("dev"), end, limit=30)
    assert "it runs" not in str(caught.value)
    assert "ended meanwhile" in str(caught.value)
