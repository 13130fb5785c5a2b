"""A standalone Spark cluster of this machine: a master and two workers, from the same wheel as the tests' own Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import requests

from tests.services.polling import eventually
from tests.services.ports import unusual_ports

BIN = Path(pyspark.__file__).parent / "bin"
ENVIRON = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
WORKERS = ("one", "two")


class Cluster:
    """Its address, and what its master says of it. Each worker has one core and room for one executor."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        ports = unusual_ports()
        self.address = f"spark://127.0.0.1:{ports.broker}"
        self._page, self._folder, self._stack = f"http://127.0.0.1:{ports.admin}/json/", folder, stack
        at = ("--host", "127.0.0.1", "--port", str(ports.broker), "--webui-port", str(ports.admin))
        self._start("master", "master.Master", *at)
        eventually(lambda: self.state().get("status") == "ALIVE", within=120, every=0.5)
        self._workers = {name: self._worker(name) for name in WORKERS}
        self._has(len(WORKERS))

    def apps(self, worker: str) -> set[str]:
        """Applications that it had an executor of."""
        return {one.name for one in (self._folder / worker).iterdir()}

    def state(self) -> dict[str, Any]:
        """The master's page for machines; empty where it does not answer."""
        try:
            found: dict[str, Any] = requests.get(self._page, timeout=5).json()
        except requests.RequestException:
            return {}
        return found

    def finished(self) -> list[str]:
        """Names of the applications that came to their end, the newest first."""
        return [one["name"] for one in self.state()["completedapps"] if one["state"] == "FINISHED"]

    def kill(self, worker: str) -> None:
        """As a machine that fails: its executor, whatever that is at, goes as well."""
        self._workers[worker].kill()
        self._workers[worker].wait()

    def revive(self, *workers: str) -> None:
        """Back, and known to the master."""
        self._workers |= {name: self._worker(name) for name in workers}
        self._has(len(WORKERS))

    def _has(self, workers: int) -> None:
        eventually(lambda: self.state().get("aliveworkers") == workers, within=120, every=0.5)

    def _worker(self, name: str) -> subprocess.Popen[bytes]:
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
        return self._start(name, "worker.Worker", self.address, "--host", "127.0.0.1", *room)

    def _start(self, name: str, part: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("ab"))
        command = [str(BIN / "spark-class"), f"org.apache.spark.deploy.{part}", *arguments]
        process = self._stack.enter_context(
            subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRON, cwd=self._folder)
        )
        self._stack.callback(process.kill)
        return process
