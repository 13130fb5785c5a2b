"""A broker of one's own that may be killed, frozen and starved, behind a wire that may be cut.

It listens on 127.0.0.2 and tells everybody 127.0.0.1, where the wire listens: all its clients come through there.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from kodoctl.dev import jars, java, node_config, process, readiness, versions
from kodoctl.dev.progress import quiet
from tests.brokers.broker import CACHE, VERSION, Broker
from tests.faults.wire import Wire
from tests.services.polling import eventually
from tests.services.ports import unusual_ports

BIND = "127.0.0.2"


class Machine:
    """The broker's process, its disk and its wires. `disk`: bytes of a disk of its own (root only), None: the folder's."""

    def __init__(self, folder: Path, *, disk: int | None = None) -> None:
        self.folder, self._disk = folder, disk
        for name in ("conf", "data", "logs", "scratch"):
            (folder / name).mkdir(parents=True)
        if disk is not None:
            options = ["-t", "tmpfs", "-o", f"size={disk}", "tmpfs", str(folder / "data")]
            subprocess.run(["mount", *options], check=True)
        self._ports = unusual_ports()
        self._version = versions.exact(VERSION)
        self._command = self._prepare()
        self._process: process.Process | None = None
        self.wire = Wire(("127.0.0.1", self._ports.broker), (BIND, self._ports.broker))
        self._admin_wire = Wire(("127.0.0.1", self._ports.admin), (BIND, self._ports.admin))
        self.broker = Broker(f"http://127.0.0.1:{self._ports.admin}", f"pulsar://127.0.0.1:{self._ports.broker}")

    def _prepare(self) -> list[str]:
        folder = self.folder
        found = java.find(os.environ, versions.java_needed(self._version))
        classpath = jars.ensure(CACHE, self._version, os.environ, quiet)
        scratch = folder / "scratch"
        settings = node_config.render(self._ports, str(scratch), bind=BIND)
        (folder / "conf/standalone.conf").write_text(settings, encoding="utf-8")
        (folder / "conf/log4j2.xml").write_text(node_config.packaged_text("log4j2.xml"), encoding="utf-8")
        (folder / "conf/logging.properties").write_text("handlers=\n", encoding="utf-8")
        parts = java.arguments(found.feature, classpath, scratch=scratch, bookie_port=self._ports.bookie)
        (folder / "conf/java.args").write_text(java.argument_file(parts), encoding="utf-8")
        return [str(found.program), "@conf/java.args"]

    def start(self, *, within: float = 150.0) -> None:
        """Starts it, again on the same data, and waits until it is ready (seconds)."""
        output = self.folder / "logs/console.log"
        self._process = process.start_detached(self._command, folder=self.folder, output=output, environ=os.environ)
        self.await_ready(within=within)

    def await_ready(self, *, within: float = 150.0) -> None:
        """Waits until clients can work."""
        target = readiness.ReadinessTarget(f"http://{BIND}:{self._ports.admin}", None, str(self.folder / "scratch"))
        eventually(lambda: readiness.not_ready([target]) is None, within=within, every=0.3)

    def kill(self) -> None:
        """`kill -9`."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        assert process.wait_gone(self._process, 20)

    def stop(self) -> None:
        """As an operator stops it."""
        assert self._process is not None
        process.stop(self._process, patience=20)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def fill_disk(self) -> Path:
        """Leaves nothing free on its own disk; answers the file that has to go again."""
        ballast = self.folder / "data/ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 16))
        return ballast

    def close(self) -> None:
        """Ends everything that it started."""
        if self._process is not None and process.alive(self._process):
            self.thaw()
            process.stop(self._process, patience=0)
        self.wire.close()
        self._admin_wire.close()
        if self._disk is not None:
            subprocess.run(["umount", "-l", str(self.folder / "data")], check=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)
