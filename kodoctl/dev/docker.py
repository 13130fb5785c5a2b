"""Engine that runs Pulsar's image in Docker. Pure functions build the commands for `docker`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.dev import java, logs, node_config
from kodoctl.dev.broker_engine import PATIENCE, BrokerEngine, Launch
from kodoctl.dev.dev_errors import failure
from kodoctl.dev.instance import Auth, Homes, Instance
from kodoctl.dev.node_config import TokenPlaces
from kodoctl.dev.ports import HOST
from kodoctl.dev.progress import ProgressStep, Tell
from kodoctl.dev.tokens import ADMIN, token_file
from kodoctl.host.private_files import make_private, write_private
from kodoctl.host.programs import find_program

if TYPE_CHECKING:
    from kodoctl.dev.process import Process

_ANSWER_SECONDS: Final = 10
_WORK_SECONDS: Final = 120
_PULL_SECONDS: Final = 3600
_INSIDE: Final = "/pulsar"
_SETTINGS, _KEY, _OWN_TOKEN = "standalone.conf", "secret.key", "own-token"
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside the container; outside, ports are published on 127.0.0.1 only


def container(name: str) -> str:
    """Name of the instance's container, which is also the name of the Docker volume with its data."""
    return f"kodoctl-dev-{name}"


def image(version: str) -> str:
    """Name of the published image of a Pulsar release."""
    return f"apachepulsar/pulsar:{version}"


def run_command(instance: Instance, conf_folder: Path) -> list[str]:
    """Arguments of `docker` that start an instance. Ports are open on 127.0.0.1 only, and have the same numbers inside
    and outside of the container, because clients connect to the address that the broker advertises.
    """
    name = container(instance.name)
    published = [
        part
        for port in (instance.ports.admin, instance.ports.broker)
        for part in ("--publish", f"{HOST}:{port}:{port}")
    ]
    files = (_SETTINGS, _KEY, _OWN_TOKEN) if instance.auth is Auth.TOKEN else (_SETTINGS,)
    binds = [f"type=bind,src={conf_folder / file},dst={_INSIDE}/conf/{file},readonly" for file in files]
    mounted = [part for bind in binds for part in ("--mount", bind)]
    return [
        *("run", "--detach", "--name", name),
        *published,
        *mounted,
        *("--mount", f"type=volume,src={name},dst={_INSIDE}/data"),
        *("--env", f"PULSAR_MEM=-Xms256m -Xmx{java.HEAP_MB}m -XX:MaxDirectMemorySize={java.DIRECT_MB}m"),
        *("--env", "PULSAR_GC=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
        image(instance.version),
        *("bin/pulsar", "standalone", "--no-functions-worker", "--no-stream-storage"),
        *("--bookkeeper-port", str(instance.ports.bookie)),
    ]


def _token_places(instance: Instance) -> TokenPlaces | None:
    if instance.auth is not Auth.TOKEN:
        return None
    return TokenPlaces(f"file://{_INSIDE}/conf/{_KEY}", f"file://{_INSIDE}/conf/{_OWN_TOKEN}")


def answers(environ: Mapping[str, str]) -> bool:
    """True if the program `docker` exists and its daemon answers within 10 s. Blocks meanwhile."""
    program = find_program("docker", environ)
    if program is None:
        return False
    try:
        return _run(program, ["info"], environ, _ANSWER_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(
    program: str, arguments: list[str], environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the user's own docker
        [program, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=seconds,
        env=dict(environ),
    )


@dataclass(frozen=True, slots=True)
class DockerEngine(BrokerEngine):
    """Engine that runs the `docker` found in `environ`. Container and volume are named after the instance."""

    homes: Homes
    environ: Mapping[str, str]

    def prepare(self, instance: Instance, tell: Tell) -> Launch:
        """Downloads the image if it is missing, and returns a function that starts the container and returns None. Both
        raise KodoctlError (K618) if no daemon answers or Docker refuses.
        """
        self._require_daemon()
        wanted = image(instance.version)
        if self._try(["image", "inspect", wanted]).returncode != 0:
            tell(ProgressStep(f"Fetching the image {wanted}, once: more than 1 GB"))
            self._do(["pull", "--quiet", wanted], _PULL_SECONDS)

        def launch() -> Process | None:
            self._write(instance)
            self._try(["rm", "--force", container(instance.name)])  # one that died or was stopped
            self._do(run_command(instance, self.homes.folder(instance.name).conf), _WORK_SECONDS)
            return None

        return launch

    def _write(self, instance: Instance) -> None:
        """Writes the files to mount. The container runs as another user, so the files are readable for all, in a folder
        that only its owner can enter.
        """
        folder = self.homes.folder(instance.name)
        make_private(folder.conf)
        content = node_config.render(
            instance.ports, *self.marks(instance), bind=_EVERYWHERE, tokens=_token_places(instance)
        )
        write_private(folder.conf / _SETTINGS, content.encode(), 0o644)
        if instance.auth is Auth.TOKEN:
            write_private(folder.conf / _KEY, folder.key.read_bytes(), 0o644)
            write_private(folder.conf / _OWN_TOKEN, token_file(folder, ADMIN).read_bytes(), 0o644)

    def marks(self, instance: Instance) -> tuple[str, ...]:
        """One path, of a folder inside the container, that has the name of the instance: see BrokerEngine."""
        return (f"/tmp/{container(instance.name)}",)  # noqa: S108

    def alive(self, instance: Instance) -> bool:
        """True if the container of the instance runs. Raises KodoctlError (K618) if no daemon answers."""
        return self._running(instance) == "true"

    def revive(self, instance: Instance, tell: Tell) -> None:
        """Does nothing: a single container has no other parts."""

    def died(self, instance: Instance) -> bool:
        """True if the container exists and does not run. A deliberate stop removes the container. Raises KodoctlError
        (K618) if no daemon answers.
        """
        return self._running(instance) == "false"

    def _running(self, instance: Instance) -> str:
        """`true` or `false`, as Docker says; "" if there is no container. Raises KodoctlError (K618) if no daemon
        answers.
        """
        answer = self._try(["inspect", "--format", "{{.State.Running}}", container(instance.name)])
        if answer.returncode == 0:
            return answer.stdout.strip()
        self._require_daemon()
        return ""

    def stop(self, instance: Instance, *, patience: float = PATIENCE) -> None:
        """Ends the container, by force after `patience` seconds, and removes it; the volume with the data stays. Does
        nothing if there is no container. Raises KodoctlError (K618) if no daemon answers or Docker refuses.
        """
        if self._running(instance):
            self._do(["stop", "--time", f"{patience:.0f}", container(instance.name)], _WORK_SECONDS)
            self._do(["rm", "--force", container(instance.name)], _WORK_SECONDS)

    def last_lines(self, instance: Instance, count: int) -> list[str]:
        """Returns the last `count` lines of `docker logs`, as `logs.printable` makes them: control characters become
        escapes. Lines of standard error come last. [] if `count` is 0 or less, or if Docker has no logs of the
        container. Raises KodoctlError (K618) if there is no `docker`, or if it does not end within 2 minutes.
        """
        if count <= 0:
            return []
        answer = self._try(["logs", "--tail", str(count), container(instance.name)])
        return (
            [logs.printable(line) for line in (answer.stdout + answer.stderr).splitlines()]
            if answer.returncode == 0
            else []
        )

    def follow(self, instance: Instance) -> Iterator[str]:
        """Yields new log lines, printable and without line ends, until the container ends or the reader stops. Docker's
        own errors are lines too. Raises KodoctlError (K618) at the first line if there is no `docker`.
        """
        command = [self._program(), "logs", "--follow", "--tail", "0", container(instance.name)]
        with subprocess.Popen(  # noqa: S603 - the user's own docker
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(self.environ),
        ) as reader:
            assert reader.stdout is not None
            try:
                yield from map(logs.printable, reader.stdout)
            finally:
                reader.terminate()

    def leftover(self, instance: Instance) -> str | None:
        """Text that names the Docker volume of this name; None if there is none. The volume may be of an instance in
        another KODOCTL_DEV_HOME, because Docker has one set of volumes. Raises KodoctlError (K618) if no daemon
        answers.
        """
        name = container(instance.name)
        if self._try(["volume", "inspect", name]).returncode == 0:
            return f"the Docker volume {name}"
        self._require_daemon()
        return None

    def wipe(self, instance: Instance) -> None:
        """Deletes container and volume. A refusal of Docker to delete one of them is ignored. Raises KodoctlError
        (K618) if there is no `docker`, or it does not end within 2 minutes.
        """
        self._try(["rm", "--force", container(instance.name)])
        self._try(["volume", "rm", "--force", container(instance.name)])

    def _require_daemon(self) -> None:
        if not answers(self.environ):
            detail = "no Docker daemon answers; start it, or make another instance with --engine java"
            raise failure("K618", "Docker cannot be used", detail)

    def _program(self) -> str:
        found = find_program("docker", self.environ)
        if found is None:
            raise failure("K618", "Docker cannot be used", "there is no `docker` on the PATH")
        return found

    def _try(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return self._call(arguments, _WORK_SECONDS)

    def _do(self, arguments: list[str], seconds: float) -> None:
        answer = self._call(arguments, seconds)
        if answer.returncode != 0:
            output = (answer.stderr or answer.stdout).splitlines()
            lines = [line for line in output if line.strip() and "--help" not in line]  # the last may name help
            detail = f"`docker {arguments[0]}` failed: {logs.printable(lines[-1]) if lines else 'it does not say why'}"
            raise failure("K618", "Docker cannot be used", detail)

    def _call(self, arguments: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        try:
            return _run(self._program(), arguments, self.environ, seconds)
        except subprocess.TimeoutExpired:
            detail = f"`docker {arguments[0]}` did not end within {seconds:.0f} s"
            raise failure("K618", "Docker cannot be used", detail) from None
