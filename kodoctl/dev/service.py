"""Start, stop, look at and remove instances: the programmatic face of `kodoctl dev`, for the command line and for tests.

Everything is passed in: folders, environment, whom to tell. One command at a time works on an instance.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kodoctl.dev import docker, logs, ready, tokens
from kodoctl.dev import instance as record
from kodoctl.dev.engine import Engine
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance
from kodoctl.dev.java_engine import JavaEngine
from kodoctl.dev.problems import failure, told
from kodoctl.dev.progress import Tell, quiet
from kodoctl.dev.words import typed
from kodoctl.errors import KodoctlError

STATUS_PATIENCE: Final = 3.0
_LOOK_BACK: Final = 300


class State(StrEnum):
    """What an instance is doing."""

    RUNNING = "running"
    NOT_READY = "not ready"
    STOPPED = "stopped"
    DIED = "died"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Status:
    """An instance and its state; `problem` says what is missing when it is not ready."""

    instance: Instance
    state: State
    problem: str | None = None


def engine_of(name: EngineName, homes: Homes, environ: Mapping[str, str]) -> Engine:
    """The engine of that name."""
    return JavaEngine(homes, environ) if name is EngineName.JAVA else docker.DockerEngine(homes, environ)


def known(homes: Homes, name: str) -> Instance:
    """Raises KodoctlError (K615) when there is no such instance."""
    with told(homes.data):
        found = record.read(homes.folder(name))
        others = [other.name for other in record.all_instances(homes)] if found is None else []
    if found is None:
        which = f"there are: {', '.join(others)}" if others else "there is none yet"
        raise failure("K615", "no such instance", f"`{name}`: {which}; start it with {typed('up', name)}")
    return found


def target(homes: Homes, engine: Engine, instance: Instance) -> ready.Target:
    """Whom to ask whether an instance is ready."""
    folder = homes.folder(instance.name)
    token = tokens.token(folder, instance, tokens.ADMIN) if instance.auth is Auth.TOKEN else None
    return ready.Target(instance.admin_url, token, engine.mark(instance))


def status(homes: Homes, environ: Mapping[str, str], name: str | None = None) -> list[Status]:
    """One instance, or all of them by name. Raises KodoctlError (K615) when the one is not there."""
    with told(homes.data):
        return [_status(homes, environ, one) for one in ([known(homes, name)] if name else record.all_instances(homes))]


def _status(homes: Homes, environ: Mapping[str, str], instance: Instance) -> Status:
    engine = engine_of(instance.engine, homes, environ)
    try:
        alive = engine.alive(instance)
    except KodoctlError as silence:  # nobody to ask; the others can still be told about
        return Status(instance, State.UNKNOWN, silence.diagnostics[0].detail)
    if not alive:
        return Status(instance, State.DIED if engine.died(instance) else State.STOPPED)
    problem = ready.not_ready(target(homes, engine, instance), STATUS_PATIENCE)
    if problem is None:
        return Status(instance, State.RUNNING)
    known_cause = logs.hint(engine.last_lines(instance, _LOOK_BACK), instance.name)
    return Status(instance, State.NOT_READY, f"{problem}; {known_cause}" if known_cause else problem)


def down(homes: Homes, environ: Mapping[str, str], name: str, tell: Tell = quiet) -> bool:
    """Stops a broker and keeps its data; whether it ran. Raises KodoctlError: K615, K620 (it cannot be stopped)."""
    instance = known(homes, name)
    with told(homes.data), record.lock(homes, name, tell):
        instance = known(homes, name)
        return _stop(homes, environ, instance)


def _stop(homes: Homes, environ: Mapping[str, str], instance: Instance) -> bool:
    engine = engine_of(instance.engine, homes, environ)
    ran = engine.alive(instance)
    if ran or engine.died(instance):
        engine.stop(instance)
        record.forget_process(homes.folder(instance.name), instance)
    return ran


def reset(homes: Homes, environ: Mapping[str, str], name: str, tell: Tell = quiet) -> Instance:
    """Stops a broker and removes it with all its data; what it was. Jars stay. Raises like `down`."""
    instance = known(homes, name)
    with told(homes.data), record.lock(homes, name, tell):
        _stop(homes, environ, instance)
        remove(homes, environ, instance)
    return instance


def remove(homes: Homes, environ: Mapping[str, str], instance: Instance) -> None:
    """Everything of a stopped instance."""
    folder = homes.folder(instance.name)
    engine_of(instance.engine, homes, environ).wipe(instance)
    shutil.rmtree(folder.path)


def claims(homes: Homes, besides: str) -> dict[int, str]:
    """Ports that other instances use or used. One whose record is damaged claims nothing."""
    found: dict[int, str] = {}
    for path in homes.data.iterdir():
        with suppress(KodoctlError):
            instance = record.read(homes.folder(path.name))
            if instance and instance.name != besides:
                found.update(dict.fromkeys(instance.ports.all(), instance.name))
    return found


def best_engine(environ: Mapping[str, str]) -> EngineName:
    """Docker when a daemon answers, else Java."""
    return EngineName.DOCKER if docker.answers(environ) else EngineName.JAVA
