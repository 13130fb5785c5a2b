"""Engine that runs a standalone Pulsar with the machine's own Java, in one detached process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.dev import jars, java, logs, node_config, node_files, process, versions
from kodoctl.dev.broker_engine import PATIENCE, BrokerEngine, Launch
from kodoctl.dev.dev_errors import still_there, too_little_room
from kodoctl.dev.instance import Auth, Folder, Homes, Instance
from kodoctl.dev.node_config import TokenPlaces
from kodoctl.dev.tokens import ADMIN, token_file

if TYPE_CHECKING:
    from kodoctl.dev.process import Process
    from kodoctl.dev.progress import Tell

_ROOM: Final = 200_000_000
"""Free bytes that a start needs: a broker reserves 16 MB at a time, and keeps a journal."""


@dataclass(frozen=True, slots=True)
class JavaEngine(BrokerEngine):
    """Engine of standalone brokers: runs the `java` found in `environ`, with downloaded jars."""

    homes: Homes
    environ: Mapping[str, str]

    def prepare(self, instance: Instance, tell: Tell) -> Launch:
        """Downloads jars if they are missing, and returns a function that starts the broker and returns its process,
        None if that ended at once. Raises KodoctlError: K601 and K602 (Java), K603 and K606 (Maven), K607 (disk full).
        """
        folder = self.homes.folder(instance.name)
        found = java.find(self.environ, versions.java_needed(instance.version))
        if problem := too_little_room(folder.path, shutil.disk_usage(folder.path).free, _ROOM, "data and logs"):
            raise problem
        classpath = jars.ensure(self.homes.jars, instance.version, self.environ, tell)

        def launch() -> Process | None:
            places = token_places(folder, folder) if instance.auth is Auth.TOKEN else None
            settings = node_config.render(instance.ports, str(folder.scratch), tokens=places)
            arguments = _arguments(found, classpath, instance, folder)
            node_files.write(folder, {"standalone.conf": settings, "java.args": arguments}, log_file(folder).name)
            command = [str(found.program), f"-Dkodoctl.dev={instance.name}", "@conf/java.args"]
            console = folder.logs / "console.log"
            return process.start_detached(command, folder=folder.path, output=console, environ=self.environ)

        return launch

    def marks(self, instance: Instance) -> tuple[str, ...]:
        """Path of the instance's scratch folder, by which its broker is recognised."""
        return (str(self.homes.folder(instance.name).scratch),)

    def alive(self, instance: Instance) -> bool:
        """True if the broker's process runs. Its pid and its start time must both match."""
        return instance.process is not None and process.alive(instance.process)

    def revive(self, instance: Instance, tell: Tell) -> None:
        """Does nothing: a single process has no other parts."""

    def died(self, instance: Instance) -> bool:
        """True if the recorded process does not run. A deliberate stop removes the process from the record."""
        return instance.process is not None and not self.alive(instance)

    def stop(self, instance: Instance, *, patience: float = PATIENCE) -> None:
        """Ends the process, by force after `patience` seconds; does nothing if it does not run. Raises KodoctlError
        (K620) if even force did not end it.
        """
        if instance.process and not process.stop(instance.process, patience=patience):
            raise still_there(instance.process.pid)

    def last_lines(self, instance: Instance, count: int) -> list[str]:
        """The last lines of the broker's own log, `count` at most. If the broker has ended, the lines that Java printed
        outside of the log come last, because they may name the reason.
        """
        folder = self.homes.folder(instance.name)
        console = [] if self.alive(instance) else logs.tail(folder.logs / "console.log", count)
        return [*logs.tail(log_file(folder), count), *console][-count:] if count else []

    def follow(self, instance: Instance) -> Iterator[str]:
        """Yields new log lines, also after a restart, until the reader stops."""
        return logs.follow(log_file(self.homes.folder(instance.name)))

    def leftover(self, instance: Instance) -> str | None:
        """Text that names the folder with the instance's data; None if there is no such folder. Data can be left of an
        instance without a record: somebody may have deleted the record by hand.
        """
        data = self.homes.folder(instance.name).data
        return f"the folder {data}" if data.exists() else None

    def wipe(self, instance: Instance) -> None:
        """Deletes the data folder of a stopped instance. Settings, logs and tokens stay. Does nothing if there is no
        data folder.
        """
        data = self.homes.folder(instance.name).data
        if data.exists():
            shutil.rmtree(data)


def log_file(folder: Folder) -> Path:
    """The file of the broker's own log."""
    return folder.logs / "broker.log"


def token_places(folder: Folder, node: Folder) -> TokenPlaces:
    """Locations of key and token for the broker's configuration: the key as a path relative to the folder `node`, in
    which the broker runs, because the broker accepts no absolute path with spaces; the token as a URL.
    """
    return TokenPlaces(os.path.relpath(folder.key, node.path), token_file(folder, ADMIN).as_uri())


def _arguments(found: java.Java, classpath: list[Path], instance: Instance, folder: Folder) -> str:
    parts = java.arguments(found.feature, classpath, scratch=folder.scratch, bookie_port=instance.ports.bookie)
    return java.argument_file(parts)
