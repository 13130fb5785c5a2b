"""Engine that runs a cluster with the machine's own Java: one process for ZooKeeper, each bookie and each broker.

Nodes start in this order, those of one kind at the same time, and end in the reverse order: without ZooKeeper a broker
or bookie could not end, because it waits for its metadata.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.dev import cluster_nodes as nodes
from kodoctl.dev import jars, java, logs, node_config, node_files, process, versions
from kodoctl.dev.broker_engine import PATIENCE, Launch
from kodoctl.dev.cluster_nodes import ClusterNode, NodeKind, NodeState
from kodoctl.dev.dev_errors import failure, still_there, too_little_room
from kodoctl.dev.instance import Auth, Folder, Homes, Instance
from kodoctl.dev.java import Memory
from kodoctl.dev.java_engine import token_places
from kodoctl.dev.ports import HOST, ClusterPorts, check_nodes, is_free
from kodoctl.dev.progress import ProgressStep, Tell

if TYPE_CHECKING:
    from kodoctl.dev.process import Process

_ROOM: Final = 500_000_000
"""Free bytes that a start needs: each bookie reserves 16 MB at a time, and keeps a journal."""
_LISTENING: Final = 90.0
"""Seconds after which ZooKeeper or a bookie must listen; they need 1 and 7 on an idle machine of 2 cores."""
_SESSION: Final = 25.0
"""Seconds of a pause after which a bookie's session may be over: it lasts for 30 (zkTimeout in cluster-bookie.conf)."""
_ENDS_WITHIN: Final = 10.0
_SETUP: Final = 120.0
_BETWEEN: Final = 0.1
_MEMORY: Final = {
    NodeKind.ZOOKEEPER: Memory(32, 96, 64),
    NodeKind.BOOKIE: Memory(64, 160, 192),
    NodeKind.BROKER: Memory(128, 320, 256),
}
_PROGRAM: Final = {
    NodeKind.ZOOKEEPER: ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "conf/zookeeper.conf"),
    NodeKind.BOOKIE: ("org.apache.bookkeeper.server.Main", "--conf", "conf/bookie.conf"),
    NodeKind.BROKER: ("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", "conf/broker.conf"),
}
_SETUP_PROGRAM: Final = "org.apache.pulsar.PulsarClusterMetadataSetup"


@dataclass(frozen=True, slots=True)
class _Tools:
    """The Java program and the jars that every start of a node needs."""

    java: java.Java
    jars: Sequence[Path]


@dataclass(frozen=True, slots=True)
class ClusterEngine:
    """Engine of clusters: runs the `java` found in `environ`, with downloaded jars."""

    homes: Homes
    environ: Mapping[str, str]

    def prepare(self, instance: Instance, tell: Tell) -> Launch:
        """Downloads jars if they are missing, and returns a function that starts the nodes which do not run. The
        returned function waits until ZooKeeper and the bookies listen, but not for the brokers, and returns None.

        Raises KodoctlError: K601 and K602 (Java), K603 and K606 (Maven), K607 (disk full). The returned function raises
        K604 (port taken), K608 and K609 if a node does not start, after it has ended all nodes.
        """
        folder = self.homes.folder(instance.name)
        if problem := too_little_room(folder.path, shutil.disk_usage(folder.path).free, _ROOM, "data and logs"):
            raise problem
        tools = self._tools(instance, tell)

        def launch() -> Process | None:
            try:
                self._start_all(instance, tools, tell)
            except BaseException:
                self.stop(instance, patience=3.0)
                raise
            return None

        return launch

    def marks(self, instance: Instance) -> tuple[str, ...]:
        """Paths of the scratch folders of the brokers, in the order of their numbers. By this path a broker is
        recognised on its port.
        """
        brokers = (node for node in self.nodes(instance) if node.kind is NodeKind.BROKER)
        return tuple(str(self.folder(instance, node).scratch) for node in brokers)

    def alive(self, instance: Instance) -> bool:
        """True if any node runs or is paused."""
        return any(self._runs(instance, node) for node in self.nodes(instance))

    def intact(self, instance: Instance) -> bool:
        """True if every node runs or is paused."""
        return all(self._runs(instance, node) for node in self.nodes(instance))

    def died(self, instance: Instance) -> bool:
        """True if no node runs or is paused, and at least one died or was ended by `dev kill`."""
        unordered = (NodeState.DIED, NodeState.KILLED)
        return not self.alive(instance) and any(state in unordered for _, state in self.states(instance))

    def revive(self, instance: Instance, tell: Tell) -> None:
        """Resumes paused nodes, and starts nodes that do not run; waits as a start does. Raises KodoctlError as
        `prepare` and its function do, but ends no node then.
        """
        for node in self.nodes(instance):
            if nodes.state(self.folder(instance, node)) is NodeState.PAUSED:
                self.resume_node(instance, node, tell)
        if not self.intact(instance):
            self._start_all(instance, self._tools(instance, tell), tell)

    def stop(self, instance: Instance, *, patience: float = PATIENCE) -> None:
        """Ends brokers, then bookies, then ZooKeeper, each kind by force after `patience` seconds. Raises KodoctlError
        (K620) if even force did not end a node; nodes of later kinds then still run.
        """
        for kind in reversed(NodeKind):
            self._stop_nodes(instance, [node for node in self.nodes(instance) if node.kind is kind], patience)

    def stop_node(self, instance: Instance, node: ClusterNode, *, patience: float = PATIENCE) -> None:
        """Ends one node in order, and by force after `patience` seconds. Raises KodoctlError (K620) if even force did
        not end it.
        """
        self._stop_nodes(instance, [node], patience)

    def start_node(self, instance: Instance, node: ClusterNode, tell: Tell) -> None:
        """Starts one node, which must not run. Returns when ZooKeeper or a bookie listens on its port; for a broker
        returns at once. Raises KodoctlError as `prepare` and its function do, but ends no node then.
        """
        tools = self._tools(instance, tell)
        self._start(instance, tools, [node], tell)

    def resume_node(self, instance: Instance, node: ClusterNode, tell: Tell) -> None:
        """Continues a paused node. A bookie whose ZooKeeper session ended during the pause ends by itself a second
        later; in production a supervisor would start it again, and here this method does, which waits for that end up
        to 10 s. Raises the errors of `start_node`.
        """
        tell(ProgressStep(f"Resuming {node.name}"))
        paused = nodes.resume(self.folder(instance, node)) or 0.0
        if node.kind is not NodeKind.BOOKIE or paused < _SESSION:
            return
        deadline = time.monotonic() + _ENDS_WITHIN
        while (runs := self._runs(instance, node)) and time.monotonic() < deadline:
            time.sleep(_BETWEEN)
        if not runs:
            tell(
                ProgressStep(
                    f"{node.name} ended itself: its ZooKeeper session ended during the pause of {paused:.0f} s"
                )
            )
            self.start_node(instance, node, tell)

    def nodes(self, instance: Instance) -> tuple[ClusterNode, ...]:
        """The nodes of the instance's cluster, in the order of a start."""
        return nodes.of(_ports(instance))

    def folder(self, instance: Instance, node: ClusterNode) -> Folder:
        """Folder in which a node runs."""
        return self.homes.folder(instance.name).node(node.name)

    def states(self, instance: Instance) -> list[tuple[ClusterNode, NodeState]]:
        """(node, its state) for each node."""
        return [(node, nodes.state(self.folder(instance, node))) for node in self.nodes(instance)]

    def last_lines(self, instance: Instance, count: int) -> list[str]:
        """Returns the last `count` log lines of each node that died, node after node; if none died, those of the first
        broker. A node that `dev kill` ended does not count as died.
        """
        dead = [node for node, state in self.states(instance) if state is NodeState.DIED]
        first = next(node for node in self.nodes(instance) if node.kind is NodeKind.BROKER)
        return [line for node in dead or [first] for line in self.node_lines(instance, node, count)]

    def node_lines(self, instance: Instance, node: ClusterNode, count: int) -> list[str]:
        """The last lines of a node's log, `count` at most. If the node has ended, the lines that Java printed outside
        of the log come last, because they may name the reason.
        """
        folder = self.folder(instance, node)
        outside = [] if self._runs(instance, node) else logs.tail(folder.logs / "console.log", count)
        return [*logs.tail(folder.logs / node.log, count), *outside][-count:] if count else []

    def follow(self, instance: Instance) -> Iterator[str]:
        """Yields new log lines of the first broker, also after it restarts, until the reader stops."""
        first = next(node for node in self.nodes(instance) if node.kind is NodeKind.BROKER)
        return self.follow_node(instance, first)

    def follow_node(self, instance: Instance, node: ClusterNode) -> Iterator[str]:
        """Yields new log lines of a node, also after it restarts, until the reader stops."""
        return logs.follow(self.folder(instance, node).logs / node.log)

    def leftover(self, instance: Instance) -> str | None:
        """Text that names the folder with the instance's data; None if there is no such folder. Data can be left of an
        instance without a record: somebody may have deleted the record by hand.
        """
        data = self._data(instance)
        return f"the folder {data}" if data.exists() else None

    def wipe(self, instance: Instance) -> None:
        """Deletes data, logs and configuration of all nodes of a stopped cluster. The record of the instance and its
        tokens stay.
        """
        if self._data(instance).exists():
            shutil.rmtree(self._data(instance))

    def _data(self, instance: Instance) -> Path:
        return self.homes.folder(instance.name).path / "nodes"

    def _tools(self, instance: Instance, tell: Tell) -> _Tools:
        found = java.find(self.environ, versions.java_needed(instance.version))
        return _Tools(found, jars.ensure(self.homes.jars, instance.version, self.environ, tell))

    def _runs(self, instance: Instance, node: ClusterNode) -> bool:
        return nodes.state(self.folder(instance, node)) in (NodeState.RUNNING, NodeState.PAUSED)

    def _start_all(self, instance: Instance, tools: _Tools, tell: Tell) -> None:
        for kind in NodeKind:
            missing = [node for node in self.nodes(instance) if node.kind is kind and not self._runs(instance, node)]
            self._start(instance, tools, missing, tell)
            if kind is NodeKind.ZOOKEEPER:
                self._set_up(instance, tools, tell)

    def _start(self, instance: Instance, tools: _Tools, group: Sequence[ClusterNode], tell: Tell) -> None:
        """Starts all nodes of one kind at once. The caller waits for brokers, which have marks; other nodes listen
        themselves when this returns. Raises KodoctlError (K604) if another program has the port of one.
        """
        if not group:
            return
        waits = group[0].kind is not NodeKind.BROKER
        if waits:
            check_nodes(instance.name, {node.name: node.port for node in group}, is_free)
        tell(ProgressStep(f"Starting {', '.join(node.name for node in group)}"))
        for node in group:
            self._spawn(instance, tools, node)
        if waits:
            for node in group:
                self._wait_listening(instance, node)

    def _spawn(self, instance: Instance, tools: _Tools, node: ClusterNode) -> None:
        folder = self.folder(instance, node)
        parts = [*_jvm(tools, folder, node.kind, f"logs/{node.log}"), *_PROGRAM[node.kind]]
        settings = self._settings(instance, node, folder)
        files = {f"{node.kind.value}.conf": settings, "java.args": java.argument_file(parts)}
        node_files.write(folder, files, node.log)
        command = [str(tools.java.program), f"-Dkodoctl.dev={instance.name}/{node.name}", "@conf/java.args"]
        console = folder.logs / "console.log"
        started = process.start_detached(command, folder=folder.path, output=console, environ=self.environ)
        nodes.write_process(folder, started)
        if started is None:
            raise self._death_error(instance, node, "it ended at once")

    def _settings(self, instance: Instance, node: ClusterNode, folder: Folder) -> str:
        ports = _ports(instance)
        match node.kind:
            case NodeKind.ZOOKEEPER:
                return node_config.zookeeper(ports)
            case NodeKind.BOOKIE:
                return node_config.bookie(ports, node.number)
            case NodeKind.BROKER:
                tokens = None
                if instance.auth is Auth.TOKEN:
                    tokens = token_places(self.homes.folder(instance.name), folder)
                return node_config.broker(instance.name, ports, node.number, str(folder.scratch), tokens)

    def _wait_listening(self, instance: Instance, node: ClusterNode) -> None:
        deadline = time.monotonic() + _LISTENING
        while not nodes.listens(self.folder(instance, node), node.port):
            if not self._runs(instance, node):
                raise self._death_error(instance, node, "it ended before it listened")
            if time.monotonic() > deadline:
                why = self._why(instance, node, f"it does not listen after {_LISTENING:.0f} s")
                raise failure("K609", "broker not ready", *why)
            time.sleep(_BETWEEN)

    def _set_up(self, instance: Instance, tools: _Tools, tell: Tell) -> None:
        """Writes the cluster's metadata with Pulsar's own program, once for each cluster; blocks until it ends. Raises
        KodoctlError (K608).
        """
        first = self.nodes(instance)[0]
        folder = self.folder(instance, first)
        done = folder.data / "set-up"
        if done.exists():
            return
        tell(ProgressStep("Writing the cluster's metadata"))
        ports = _ports(instance)
        admin, binary = ports.brokers[0]
        parts = [
            *_jvm(tools, folder, NodeKind.ZOOKEEPER, "logs/setup.log"),
            _SETUP_PROGRAM,
            *("--cluster", instance.name),
            *("--metadata-store", node_config.metadata_url(ports)),
            *("--configuration-metadata-store", node_config.metadata_url(ports)),
            *("--web-service-url", f"http://{HOST}:{admin}"),
            *("--broker-service-url", f"pulsar://{HOST}:{binary}"),
        ]
        (folder.conf / "setup.args").write_text(java.argument_file(parts), encoding="utf-8")
        try:
            ended = subprocess.run(  # noqa: S603 - the user's own java
                [str(tools.java.program), "@conf/setup.args"],
                cwd=folder.path,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_SETUP,
            )
            problem = "" if ended.returncode == 0 else f"exit code {ended.returncode}"
            output = (ended.stdout + ended.stderr).splitlines()
        except subprocess.TimeoutExpired:
            problem, output = f"it did not end within {_SETUP:.0f} s", []
        if problem:
            lines = [*logs.tail(folder.logs / "setup.log", 200), *map(logs.printable, output)]
            reasons = "".join(f"\n| {line}" for line in logs.reasons(lines))
            raise failure("K608", "broker died before it was ready", f"the cluster's metadata: {problem}{reasons}")
        done.touch()

    def _death_error(self, instance: Instance, node: ClusterNode, problem: str) -> Exception:
        return failure("K608", "broker died before it was ready", *self._why(instance, node, problem))

    def _why(self, instance: Instance, node: ClusterNode, problem: str) -> tuple[str, Path]:
        """Reason of a node's end by its log, and the log's path."""
        lines = self.node_lines(instance, node, 2_000)
        reasons = "".join(f"\n| {line}" for line in logs.reasons(lines)) or "\n(its log is empty)"
        advice = logs.hint(lines, instance.name)
        detail = f"{node.name}: {problem}" + (f"; {advice}" if advice else "") + reasons
        return detail, self.folder(instance, node).logs / node.log

    def _stop_nodes(self, instance: Instance, group: Iterable[ClusterNode], patience: float) -> None:
        folders = [self.folder(instance, node) for node in group]
        with ThreadPoolExecutor(max(1, len(folders)), thread_name_prefix="stop") as pool:
            gone = list(pool.map(lambda folder: nodes.stop(folder, patience=patience), folders))
        left = [folder for folder, is_gone in zip(folders, gone, strict=True) if not is_gone]
        if left:
            raise still_there(*(known.pid for folder in left if (known := nodes.process_of(folder))))


def _ports(instance: Instance) -> ClusterPorts:
    assert instance.cluster is not None, "a standalone has another engine"
    return instance.cluster


def _jvm(tools: _Tools, folder: Folder, kind: NodeKind, log: str) -> list[str]:
    options = java.options(tools.java.feature, folder.scratch, _MEMORY[kind], log)
    return [*options, "-Dzookeeper.admin.enableServer=false", "-cp", java.class_path(tools.jars)]
