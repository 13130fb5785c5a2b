"""A cluster of one's own for a campaign: three brokers behind wires that may be cut, three bookies, ZooKeeper.

Brokers listen on 127.0.0.2 and tell everybody 127.0.0.1, where the wires listen: clients and other brokers come through there.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from kodoctl.dev import cluster_nodes, ports, readiness, service
from kodoctl.dev import instance as record
from kodoctl.dev.cluster_engine import ClusterEngine
from kodoctl.dev.cluster_nodes import ClusterNode, NodeKind
from kodoctl.dev.instance import EngineName, Folder, Homes, Instance
from kodoctl.dev.progress import quiet
from kodoctl.dev.resolve import MachineFacts, UpFlags, settle
from tests.brokers.broker import CACHE, VERSION, Broker
from tests.brokers.cluster import owner_url
from tests.faults.wire import Wire
from tests.services.ports import cluster_ports

NAME = "chaos"
NAMESPACE = "public/faults"
_BIND = "127.0.0.2"
_PATIENCE = 40.0


class _WiredEngine(ClusterEngine):
    __slots__ = ()

    def _settings(self, instance: Instance, node: ClusterNode, folder: Folder) -> str:
        return super()._settings(instance, node, folder).replace("bindAddress=127.0.0.1", f"bindAddress={_BIND}")


class Entrances(Broker):
    """All brokers of the cluster; a plain admin call goes to the first that answers it."""

    def admin(self, method: str, path: str, body: object = None, **params: str) -> requests.Response:
        answer, headers = None, {"Content-Type": "application/json"}
        for url in self.admin_url.split(","):
            with suppress(requests.RequestException):
                place = f"{url}/admin/v2/{path}"
                answer = requests.request(method, place, json=body, params=params or None, timeout=30, headers=headers)
                if answer.status_code < 500 and answer.status_code != 412:
                    return answer
        assert answer is not None, f"{method} {path}: no broker answers"
        return answer


class Wires:
    """The wires of all brokers as one."""

    def __init__(self, numbers: list[int]) -> None:
        self._wires = [Wire(("127.0.0.1", number), (_BIND, number)) for number in numbers]

    def set(self, **quality: Any) -> None:
        for wire in self._wires:
            wire.set(**quality)

    def reset(self) -> None:
        for wire in self._wires:
            wire.reset()

    def finish(self) -> None:
        for wire in self._wires:
            wire.finish()

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


class WiredCluster:
    """What a campaign knows as its machine. `disk`: bytes of a disk of bookie-3's own (root only), None: the folder's."""

    def __init__(self, folder: Path, *, disk: int | None = None) -> None:
        self._homes, self._disk = Homes(folder, CACHE), disk
        asked = UpFlags(NAME, VERSION, engine=EngineName.JAVA, brokers=3, bookies=3, preferred=cluster_ports())
        self.instance = settle(asked, None, MachineFacts({}, ports.is_free, lambda: EngineName.JAVA))
        record.write(self._homes.folder(NAME), self.instance)
        self._engine = _WiredEngine(self._homes, os.environ)
        assert self.instance.cluster is not None
        self.wire = Wires([port for pair in self.instance.cluster.brokers for port in pair])
        self.broker = Entrances(self.instance.admin_url, self.instance.broker_url, cluster=NAME)
        self._bookie_disk = self._folder("bookie-3").data
        self.hit: set[str] = set()  # nodes that were killed, paused or stopped; whoever asks clears it

    def start(self) -> None:
        """Starts every node that does not run, and waits until each broker serves clients."""
        if self._disk is not None and not self._bookie_disk.exists():
            self._bookie_disk.mkdir(parents=True)
            options = ["-t", "tmpfs", "-o", f"size={self._disk}", "tmpfs", str(self._bookie_disk)]
            subprocess.run(["mount", *options], check=True)
        if self._engine.alive(self.instance):
            self.heal()
        else:
            self._engine.prepare(self.instance, quiet)()
            self.await_ready()

    def heal(self, *, within: float = 240.0) -> None:
        """Lets every node run and waits until each broker serves clients. A node that ends by itself is started again, as whoever
        supervises it does: a bookie and a broker may end themselves when they find their session over.
        """
        end = time.monotonic() + within
        while True:
            self._engine.revive(self.instance, quiet)
            try:
                self.await_ready(within=10.0)
            except AssertionError:
                if time.monotonic() > end:
                    raise
            else:
                if self._engine.intact(self.instance):
                    return

    def supervise(self) -> bool:
        """Starts a node that has ended by itself, and waits until each broker serves clients again; whether there was one."""
        if self._engine.intact(self.instance):
            return False
        self.heal()
        return True

    def await_ready(self, *, within: float = 240.0) -> None:
        """Waits until clients can work through each broker (seconds)."""
        targets = service.targets(self._homes, self._engine, self.instance)
        problem = readiness.wait(
            lambda seconds: readiness.not_ready(targets, seconds), alive=lambda: True, limit=within, tell=quiet
        )
        assert problem is None, problem

    def kill(self, name: str) -> None:
        """`kill -9` of a node."""
        self.hit.add(name)
        assert cluster_nodes.kill(self._folder(name)), f"{name} did not run"

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.hit.add(name)
        cluster_nodes.pause(self._folder(name))

    def resume(self, name: str) -> None:
        """SIGCONT."""
        cluster_nodes.resume(self._folder(name))

    def stop(self, name: str) -> None:
        """An end in order."""
        self.hit.add(name)
        self._engine.stop_node(self.instance, self._node(name), patience=_PATIENCE)

    def fill_disk(self) -> Path:
        """Leaves nothing free where bookie-3 stores; answers the file that has to go again."""
        ballast = self._bookie_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 16))
        return ballast

    def owners(self, partitions: Iterable[str]) -> dict[str, str]:
        """Names of the brokers of partitions of the campaign's namespace."""
        urls = self.broker.admin_url.split(",")
        owners = {}
        for place in partitions:
            owner = owner_url(urls[0], f"persistent://{NAMESPACE}/{place}")
            owners[place] = f"{NodeKind.BROKER.value}-{urls.index(owner) + 1}"
        return owners

    def names(self, kind: NodeKind) -> list[str]:
        """Names of its nodes of a kind."""
        return [node.name for node in self._engine.nodes(self.instance) if node.kind is kind]

    def close(self) -> None:
        """Ends everything that it started."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda node: cluster_nodes.kill(self._folder(node.name)), self._engine.nodes(self.instance)))
        self.wire.close()
        if self._disk is not None:
            subprocess.run(["umount", "-l", str(self._bookie_disk)], check=True)

    def _node(self, name: str) -> ClusterNode:
        assert self.instance.cluster is not None
        return cluster_nodes.find_node(self.instance.cluster, name)

    def _folder(self, name: str) -> Folder:
        return self._engine.folder(self.instance, self._node(name))
