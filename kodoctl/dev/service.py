"""Service of `kodoctl dev`: starts, stops, shows and removes instances, for the command line and for tests.

Folders, environment and a function that shows progress are arguments. Only one command at a time changes an instance;
another one waits.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kodoctl.dev import cluster_nodes as nodes
from kodoctl.dev import docker, logs, readiness, tokens
from kodoctl.dev import instance as record
from kodoctl.dev.cluster_engine import ClusterEngine
from kodoctl.dev.cluster_nodes import ClusterNode, NodeState
from kodoctl.dev.dev_errors import disk_errors, not_found
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance
from kodoctl.dev.java_engine import JavaEngine
from kodoctl.dev.progress import Tell, quiet
from kodoctl.dev.typed_command import dev_command
from kodoctl.errors import KodoctlError

if TYPE_CHECKING:
    from kodoctl.dev.broker_engine import BrokerEngine

STATUS_PATIENCE: Final = 3.0
_LOOK_BACK: Final = 300


class InstanceState(StrEnum):
    """State of an instance. DIED: it ended without `dev down`; UNKNOWN: its state cannot be determined, such as for
    Docker without a daemon.
    """

    RUNNING = "running"
    NOT_READY = "not ready"
    STOPPED = "stopped"
    DIED = "died"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """An instance and its state. `problem`: the condition that is not met if the instance is not ready, or the reason
    of an unknown state; `nodes`: the nodes of a cluster, else ().
    """

    instance: Instance
    state: InstanceState
    problem: str | None = None
    nodes: tuple[NodeStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node of a cluster; `pid` None if it does not run."""

    node: ClusterNode
    state: NodeState
    pid: int | None


def engine_of(instance: Instance, homes: Homes, environ: Mapping[str, str]) -> BrokerEngine:
    """Engine that runs this instance."""
    if instance.cluster is not None:
        return ClusterEngine(homes, environ)
    return JavaEngine(homes, environ) if instance.engine is EngineName.JAVA else docker.DockerEngine(homes, environ)


def find_instance(homes: Homes, name: str) -> Instance:
    """Reads the recorded instance `name`. Raises UsageError: K615 if there is none, K612 for an invalid name;
    KodoctlError (K621) if its record is damaged or, if there is none, the record of another instance.
    """
    with disk_errors(homes.data):
        found = record.read_instance(homes.folder(name))
        others = [other.name for other in record.all_instances(homes)] if found is None else []
    if found is None:
        which = f"there are: {', '.join(others)}" if others else "there is none yet"
        raise not_found("K615", "instance not found", f"`{name}`: {which}; start it with {dev_command('up', name)}")
    return found


def targets(homes: Homes, engine: BrokerEngine, instance: Instance) -> tuple[readiness.ReadinessTarget, ...]:
    """Returns the brokers of an instance for a check of their readiness, each with the administrator's token if the
    instance has tokens. Raises KodoctlError (K621) if its signing key is damaged.
    """
    folder = homes.folder(instance.name)
    token = tokens.token(folder, instance, tokens.ADMIN) if instance.auth is Auth.TOKEN else None
    pairs = zip(instance.admin_urls, engine.marks(instance), strict=True)
    return tuple(readiness.ReadinessTarget(url, token, mark) for url, mark in pairs)


def status(homes: Homes, environ: Mapping[str, str], name: str | None = None) -> list[InstanceStatus]:
    """Status of the instance `name`, or of all instances sorted by name (None). Waits up to 3 s for each reply of a
    broker. Raises the same errors as `find_instance`; for all, K621 if any record is damaged.
    """
    with disk_errors(homes.data):
        return [
            _status(homes, environ, one)
            for one in ([find_instance(homes, name)] if name else record.all_instances(homes))
        ]


def _status(homes: Homes, environ: Mapping[str, str], instance: Instance) -> InstanceStatus:
    engine = engine_of(instance, homes, environ)
    try:
        alive = engine.alive(instance)
    except KodoctlError as silence:  # nobody to ask; the others can still be told about
        return InstanceStatus(instance, InstanceState.UNKNOWN, silence.diagnostics[0].detail)
    parts = _nodes(engine, instance)
    if not alive:
        return InstanceStatus(
            instance, InstanceState.DIED if engine.died(instance) else InstanceState.STOPPED, nodes=parts
        )
    if away := [f"{part.node.name} {part.state}" for part in parts if part.state is not NodeState.RUNNING]:
        return InstanceStatus(instance, InstanceState.NOT_READY, f"not running: {', '.join(away)}", parts)
    try:
        problem = readiness.not_ready(targets(homes, engine, instance), STATUS_PATIENCE)
    except KodoctlError as damage:  # of its key; the others can still be told about
        problem = damage.diagnostics[0].detail
    if problem is None:
        return InstanceStatus(instance, InstanceState.RUNNING, nodes=parts)
    known_cause = logs.hint(engine.last_lines(instance, _LOOK_BACK), instance.name)
    return InstanceStatus(
        instance, InstanceState.NOT_READY, f"{problem}; {known_cause}" if known_cause else problem, parts
    )


def _nodes(engine: BrokerEngine, instance: Instance) -> tuple[NodeStatus, ...]:
    if not isinstance(engine, ClusterEngine):
        return ()
    found = []
    for node, state in engine.states(instance):
        known = nodes.process_of(engine.folder(instance, node))
        runs = state in (NodeState.RUNNING, NodeState.PAUSED)
        found.append(NodeStatus(node, state, known.pid if known and runs else None))
    return tuple(found)


def down(homes: Homes, environ: Mapping[str, str], name: str, tell: Tell = quiet) -> bool:
    """Stops the broker of an instance and keeps its data. Returns True if it ran. Blocks until it has ended, and before
    that while another command works on the instance. Raises the errors of `find_instance`, KodoctlError: K618 (Docker),
    K620 (it does not end).
    """
    instance = find_instance(homes, name)
    with disk_errors(homes.data), record.lock(homes, name, tell):
        instance = find_instance(homes, name)
        return _stop(homes, environ, instance)


def _stop(homes: Homes, environ: Mapping[str, str], instance: Instance) -> bool:
    engine = engine_of(instance, homes, environ)
    ran = engine.alive(instance)
    if ran or engine.died(instance):
        engine.stop(instance)
        record.forget_process(homes.folder(instance.name), instance)
    return ran


def reset(homes: Homes, environ: Mapping[str, str], name: str, tell: Tell = quiet) -> Instance:
    """Stops the broker of an instance, removes the instance with all its data, and returns the removed instance.
    Downloaded jars stay. Needs no free space on the disk. Blocks and raises as `down` does.
    """
    find_instance(homes, name)
    with disk_errors(homes.data), record.lock(homes, name, tell):
        instance = find_instance(homes, name)  # as the command left it that had the lock
        engine_of(instance, homes, environ).stop(instance)
        remove(homes, environ, instance)
    return instance


def remove(homes: Homes, environ: Mapping[str, str], instance: Instance) -> None:
    """Deletes a stopped instance with its data, settings and tokens. The caller has made sure that it does not run. If
    this is interrupted, the record says that the instance has no data, so that no broker starts on a part of it.
    """
    folder = homes.folder(instance.name)
    with suppress(OSError):  # the disk may be full, and this makes room
        record.write(folder, replace(instance, ready_once=False, process=None))
    engine_of(instance, homes, environ).wipe(instance)
    shutil.rmtree(folder.path)


def claims(homes: Homes, besides: str) -> dict[int, str]:
    """Ports that belong to other instances than `besides`, running or not: port -> name of the instance. Instances with
    a damaged record are left out, and so are copies of an instance's folder.
    """
    found: dict[int, str] = {}
    for path in homes.data.iterdir():
        with suppress(KodoctlError):
            instance = record.read_instance(homes.folder(path.name))
            if instance and instance.name != besides:
                found.update(dict.fromkeys(instance.all_ports(), instance.name))
    return found


def best_engine(environ: Mapping[str, str]) -> EngineName:
    """Chooses the engine: Docker if its daemon answers within 10 s, else Java. Blocks meanwhile."""
    return EngineName.DOCKER if docker.answers(environ) else EngineName.JAVA
