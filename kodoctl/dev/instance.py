"""Instances on disk: one folder for each instance, and locks beside them. Independent of engines.

HOME/NAME/instance.json   settings, and the process that runs     HOME/NAME/data/     data of Pulsar
HOME/NAME/conf/           configuration, written at each start    HOME/NAME/logs/     broker.log, console.log
HOME/NAME/tokens/         one file for each role (with tokens)    HOME/.locks/        one file for each lock
HOME/NAME/nodes/NODE/     of a cluster: conf, data, logs and process of each node
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TextIO

from kodoctl.dev.dev_errors import failure
from kodoctl.dev.ports import HOST, ClusterPorts, Ports
from kodoctl.dev.process import Process
from kodoctl.dev.progress import ProgressStep, Tell
from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import make_private, write_private

FORMAT_VERSION: Final = 1
STANDALONE: Final = "standalone"
"""The name that every standalone gives its cluster."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


class Auth(StrEnum):
    """Access to the broker: for everybody on this machine, or for holders of a token."""

    NONE = "none"
    TOKEN = "token"  # noqa: S105


class EngineName(StrEnum):
    """Programs that can run the broker of an instance: the machine's Java, or Docker."""

    JAVA = "java"
    DOCKER = "docker"


@dataclass(frozen=True, slots=True)
class Homes:
    """Root folders, absolute: `data` for instances, `jars` for files that are downloaded once."""

    data: Path
    jars: Path

    def folder(self, name: str) -> Folder:
        """The folder of one instance. Raises UsageError (K612) if the name is invalid."""
        if not _NAME.fullmatch(name):
            detail = f"{name!r}: up to 31 of a-z, 0-9 and -, not starting with -"
            raise UsageError(error("K612", "not a name for an instance", detail))
        return Folder(self.data / name)


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths in the folder of one instance or node. Its methods neither read nor create files."""

    path: Path

    @property
    def record(self) -> Path:
        """File with the instance's settings and, if it was started, its process."""
        return self.path / "instance.json"

    @property
    def data(self) -> Path:
        """Folder in which Pulsar keeps messages and metadata."""
        return self.path / "data"

    @property
    def conf(self) -> Path:
        """Folder of Pulsar's configuration, written anew at each start."""
        return self.path / "conf"

    @property
    def logs(self) -> Path:
        """Folder of logs: the broker's or the node's own log, such as `broker.log`, and `console.log` (other output of
        Java).
        """
        return self.path / "logs"

    @property
    def scratch(self) -> Path:
        """Folder of the broker's temporary files, emptied at each start."""
        return self.path / "tmp"

    @property
    def key(self) -> Path:
        """File with the secret that signs tokens."""
        return self.path / "secret.key"

    @property
    def tokens(self) -> Path:
        """Folder with one file for each role, which contains its token."""
        return self.path / "tokens"

    def node(self, name: str) -> Folder:
        """Folder of one node of a cluster. It has the same paths as an instance's folder."""
        return Folder(self.path / "nodes" / name)


@dataclass(frozen=True, slots=True)
class Instance:
    """Settings of one instance. `ready_once` False: it was never ready, so it has no data of the user. `process`: the
    process of a standalone that runs on Java, None if it was stopped, or for another engine. `cluster`: ports of all
    nodes of a cluster (`ports` are then those of the first broker and bookie); None: a standalone broker.
    """

    name: str
    version: str
    engine: EngineName
    auth: Auth
    ports: Ports
    ready_once: bool = False
    process: Process | None = None
    cluster: ClusterPorts | None = None

    @property
    def cluster_name(self) -> str:
        """The name that the brokers give their cluster."""
        return self.name if self.cluster else STANDALONE

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Address of each broker's admin API."""
        return tuple(f"http://{HOST}:{admin}" for admin, _ in self._brokers())

    @property
    def broker_urls(self) -> tuple[str, ...]:
        """Address of each broker for clients."""
        return tuple(f"pulsar://{HOST}:{binary}" for _, binary in self._brokers())

    @property
    def admin_url(self) -> str:
        """Addresses of all brokers' admin API, separated by commas."""
        return ",".join(self.admin_urls)

    @property
    def broker_url(self) -> str:
        """Addresses of all brokers for clients, as one URL with commas."""
        return "pulsar://" + ",".join(f"{HOST}:{binary}" for _, binary in self._brokers())

    def _brokers(self) -> tuple[tuple[int, int], ...]:
        return self.cluster.brokers if self.cluster else ((self.ports.admin, self.ports.broker),)

    def all_ports(self) -> tuple[int, ...]:
        """All ports on which the instance listens."""
        return self.cluster.all() if self.cluster else self.ports.all()


def read_instance(folder: Folder) -> Instance | None:
    """Reads the record of the instance in a folder. Returns None if there is no record, or if it is that of another
    instance, because the folder is a copy or was renamed. Raises KodoctlError (K621) if the record is damaged, or was
    written by another version of kodoctl.
    """
    try:
        content = json.loads(folder.record.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        content = None
    try:
        found = _parse(content)
    except (KeyError, TypeError, ValueError):
        detail = (
            "it is no record of this version of kodoctl\n"
            f"to start anew, end its broker by hand if it runs, then remove the folder {folder.path}"
        )
        raise failure("K621", "cannot read instance", detail, folder.record) from None
    return found if found.name == folder.path.name else None


def _parse(content: Any) -> Instance:
    if content["format_version"] != FORMAT_VERSION:
        raise ValueError
    return Instance(
        name=content["name"],
        version=content["version"],
        engine=EngineName(content["engine"]),
        auth=Auth(content["auth"]),
        ports=Ports(*(int(content["ports"][role]) for role in ("admin", "broker", "bookie"))),
        ready_once=content["ready_once"],
        process=Process(**content["process"]) if content["process"] else None,
        cluster=_parse_cluster(content.get("cluster")),
    )


def _parse_cluster(content: Any) -> ClusterPorts | None:
    if content is None:
        return None
    brokers = tuple((int(admin), int(binary)) for admin, binary in content["brokers"])
    return ClusterPorts(int(content["zookeeper"]), tuple(map(int, content["bookies"])), brokers)


def write(folder: Folder, instance: Instance) -> Instance:
    """Writes the record of an instance atomically, and returns the instance."""
    make_private(folder.path)
    text = json.dumps({"format_version": FORMAT_VERSION, **asdict(instance)}, indent=2)
    write_private(folder.record, text + "\n")
    return instance


def forget(folder: Folder) -> None:
    """Deletes the record of an instance, which must never have run, and its folder if that is empty then."""
    folder.record.unlink(missing_ok=True)
    with suppress(OSError):
        folder.path.rmdir()


def forget_process(folder: Folder, instance: Instance) -> Instance:
    """Records that the instance was stopped on purpose, and returns the instance without its process."""
    return write(folder, replace(instance, process=None))


def all_instances(homes: Homes) -> list[Instance]:
    """Every recorded instance, running or stopped, sorted by name; [] if there is no data folder. A copy of an
    instance's folder is none.

    Raises KodoctlError (K621) if a record is damaged or was written by another version of kodoctl.
    """
    if not homes.data.is_dir():
        return []
    names = sorted(path.name for path in homes.data.iterdir() if _NAME.fullmatch(path.name))
    return [instance for name in names if (instance := read_instance(homes.folder(name)))]


@contextmanager
def lock(homes: Homes, name: str, tell: Tell) -> Iterator[None]:
    """Context in which no other command works on the instance `name`. Blocks until another command ends, and calls
    `tell` if it has to wait. The system frees the lock if its holder dies.
    """
    folder = homes.data / ".locks"
    make_private(folder)
    with (folder / name).open("a") as file:
        take_lock(file, f"another kodoctl works on `{name}`; waiting for it", tell)
        yield


def take_lock(file: TextIO, waiting: str, tell: Tell) -> None:
    """Locks an open file, until the file is closed. Blocks while another process has the lock, and then first passes
    the text `waiting` to `tell`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell(ProgressStep(waiting))
        fcntl.flock(file, fcntl.LOCK_EX)
