"""Nodes of a cluster: their names, their processes, and their records of the last deliberate end."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kodoctl.dev import process
from kodoctl.dev.dev_errors import failure, not_found
from kodoctl.dev.process import Process
from kodoctl.host.private_files import make_private, write_private

if TYPE_CHECKING:
    from kodoctl.dev.instance import Folder
    from kodoctl.dev.ports import ClusterPorts

_RECORD: Final = "process.json"
_PAUSED_AT: Final = "paused-at"
_HEARD_WITHIN: Final = 5.0


class NodeKind(StrEnum):
    """Kinds of nodes, in the order of a start."""

    ZOOKEEPER = "zookeeper"
    BOOKIE = "bookie"
    BROKER = "broker"


class NodeState(StrEnum):
    """State of a node. STOPPED, KILLED and DIED: it does not run, because of an orderly stop (`dev stop` or `dev down`)
    or because it was never started, because of `dev kill`, or for another reason. `dev down` makes KILLED and DIED
    nodes STOPPED.
    """

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    KILLED = "killed"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One node of a cluster. `number` counts from 1; `port`: port on which the node listens when it is ready (of a
    broker the admin port).
    """

    kind: NodeKind
    number: int
    port: int

    @property
    def name(self) -> str:
        """Name of the node in commands: `zookeeper`, `bookie-2`, `broker-1`."""
        return self.kind.value if self.kind is NodeKind.ZOOKEEPER else f"{self.kind.value}-{self.number}"

    @property
    def log(self) -> str:
        """Name of the node's log file."""
        return f"{self.kind.value}.log"


def of(ports: ClusterPorts) -> tuple[ClusterNode, ...]:
    """Nodes of a cluster with these ports, in the order of a start."""
    return (
        ClusterNode(NodeKind.ZOOKEEPER, 1, ports.zookeeper),
        *(ClusterNode(NodeKind.BOOKIE, number, port) for number, port in enumerate(ports.bookies, 1)),
        *(ClusterNode(NodeKind.BROKER, number, admin) for number, (admin, _) in enumerate(ports.brokers, 1)),
    )


def find_node(ports: ClusterPorts, name: str) -> ClusterNode:
    """The node with this name. Raises UsageError (K625) if the cluster has none."""
    found = next((node for node in of(ports) if node.name == name), None)
    if found is None:
        raise not_found("K625", "unknown node", f"{name!r}: nodes are {', '.join(node.name for node in of(ports))}")
    return found


def state(folder: Folder) -> NodeState:
    """State of the node with this folder, as NodeState says: STOPPED if it was never started or was stopped in order,
    DIED if its process ended though nobody stopped or killed it. Raises KodoctlError (K621) if its record is damaged.
    """
    known, ended = _read_record(folder)
    if known is not None and process.alive(known):
        return NodeState.PAUSED if process.is_paused(known) else NodeState.RUNNING
    if ended is not None:
        return ended
    return NodeState.STOPPED if known is None else NodeState.DIED


def process_of(folder: Folder) -> Process | None:
    """Returns the process that was recorded for a node when it was started. The process may have ended since. Returns
    None if the node was never started, or was stopped in order. Raises KodoctlError (K621) if the record is damaged.
    """
    return _read_record(folder)[0]


def listens(folder: Folder, port: int) -> bool:
    """True if the node's own process listens on the port; False if another program has the port."""
    known = process_of(folder)
    return known is not None and process.listens(known, port)


def write_process(folder: Folder, started: Process | None) -> None:
    """Records the process that was just started for a node; None: no process."""
    (folder.path / _PAUSED_AT).unlink(missing_ok=True)  # of an earlier process, which was killed while it was paused
    _write(folder, started, None)


def stop(folder: Folder, *, patience: float) -> bool:
    """Ends a node in order, and by force after `patience` seconds. Returns False if it still runs. A node that had died
    or was killed counts as stopped from then on; if the disk is full, it stays as it was, and one that ran has died.
    """
    known = process_of(folder)
    if known is None:
        return True
    gone = process.stop(known, patience=patience)
    if gone:
        with suppress(OSError):  # the disk may be full, and other nodes have to end too
            _write(folder, None, NodeState.STOPPED)
    return gone


def kill(folder: Folder) -> bool:
    """Ends a node at once (SIGKILL), and waits up to 10 s. Returns True if it ran and has ended."""
    known = process_of(folder)
    if known is None or not process.send(known, signal.SIGKILL) or not process.wait_gone(known, 10.0):
        return False
    _write(folder, known, NodeState.KILLED)
    return True


def pause(folder: Folder) -> bool:
    """Stops a node's process (SIGSTOP): its connections stay open and it answers nothing. Waits up to 5 s until it has
    stopped. Returns False if it did not run.
    """
    was_paused = state(folder) is NodeState.PAUSED
    paused = _signal(folder, signal.SIGSTOP, NodeState.PAUSED)
    if paused and not was_paused:
        write_private(folder.path / _PAUSED_AT, str(time.monotonic()))  # one clock for all processes since the boot
    return paused


def resume(folder: Folder) -> float | None:
    """Continues a paused node (SIGCONT), and waits up to 5 s until it runs. Returns the seconds since its pause, 0 if
    it was not paused, or None if it did not run.
    """
    if not _signal(folder, signal.SIGCONT, NodeState.RUNNING):
        return None
    mark = folder.path / _PAUSED_AT
    if not mark.exists():
        return 0.0
    since = float(mark.read_text(encoding="utf-8"))
    mark.unlink()
    return time.monotonic() - since


def _signal(folder: Folder, number: signal.Signals, wanted: NodeState) -> bool:
    """Sends a signal, and waits up to 5 s until the process has the state `wanted`. Returns False if it did not run."""
    known = process_of(folder)
    if known is None or not process.send(known, number):
        return False
    deadline = time.monotonic() + _HEARD_WITHIN
    while state(folder) is not wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return True


def _read_record(folder: Folder) -> tuple[Process | None, NodeState | None]:
    try:
        content = json.loads((folder.path / _RECORD).read_text(encoding="utf-8"))
        known = Process(**content["process"]) if content["process"] else None
        return known, NodeState(content["ended"]) if content["ended"] else None
    except FileNotFoundError:
        return None, None
    except (ValueError, KeyError, TypeError):
        detail = "it is no record of this version of kodoctl; end the process by hand, then remove the file"
        raise failure("K621", "cannot read instance", detail, folder.path / _RECORD) from None


def _write(folder: Folder, known: Process | None, ended: NodeState | None) -> None:
    make_private(folder.path)
    content = {"process": asdict(known) if known else None, "ended": ended.value if ended else None}
    write_private(folder.path / _RECORD, json.dumps(content) + "\n")
