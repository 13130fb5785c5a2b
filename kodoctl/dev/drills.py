"""Fault drills on one node of a development cluster: kill, pause, resume, orderly stop, start."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from kodoctl.dev import cluster_nodes, readiness, service
from kodoctl.dev import instance as record
from kodoctl.dev.cluster_engine import ClusterEngine
from kodoctl.dev.cluster_nodes import ClusterNode, NodeKind, NodeState
from kodoctl.dev.dev_errors import disk_errors, failure, not_found, still_there
from kodoctl.dev.progress import Tell, quiet
from kodoctl.dev.typed_command import dev_command

if TYPE_CHECKING:
    from kodoctl.dev.instance import Homes, Instance

STOP_WITHIN: Final = 40.0
"""Seconds that a broker has to hand over its bundles before force ends it."""


class NodeAction(StrEnum):
    """Actions of a fault drill on a node."""

    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    START = "start"


def find(homes: Homes, environ: Mapping[str, str], name: str, node: str) -> tuple[ClusterEngine, Instance, ClusterNode]:
    """The engine, the instance and the node with these names. Raises UsageError: K615 (no such instance), K625 (no such
    node, or an instance that is no cluster).
    """
    instance = service.find_instance(homes, name)
    engine = service.engine_of(instance, homes, environ)
    if not isinstance(engine, ClusterEngine) or instance.cluster is None:
        detail = (
            f"`{name}` is a standalone, one process without nodes; a cluster: {dev_command('up --brokers 3', 'NAME')}"
        )
        raise not_found("K625", "unknown node", detail)
    return engine, instance, cluster_nodes.find_node(instance.cluster, node)


def carry_out(
    homes: Homes,
    environ: Mapping[str, str],
    name: str,
    node: str,
    action: NodeAction,
    tell: Tell = quiet,
    *,
    limit: float = readiness.DEADLINE,
) -> NodeState:
    """Carries out `action` on a node, and returns the node's state afterwards. Waits until no other command works on
    the instance; after a start also until the node is ready, for a broker at most `limit` seconds.

    Raises KodoctlError: K615, K625, K620 (KILL, STOP: the node does not end), K626 (its state does not permit the
    action), and those of a start.
    """
    find(homes, environ, name, node)
    with disk_errors(homes.data), record.lock(homes, name, tell):
        engine, instance, found = find(homes, environ, name, node)  # as the command left it that had the lock
        folder = engine.folder(instance, found)
        state = cluster_nodes.state(folder)
        runs = state in (NodeState.RUNNING, NodeState.PAUSED)
        if runs == (action is NodeAction.START):
            raise failure("K626", "not possible now", f"{found.name} of `{name}` is {state}: cannot {action} it")
        match action:
            case NodeAction.KILL:
                cluster_nodes.kill(folder)
                if cluster_nodes.state(folder) in (NodeState.RUNNING, NodeState.PAUSED):
                    known = cluster_nodes.process_of(folder)
                    raise still_there(*([known.pid] if known else []))
            case NodeAction.PAUSE:
                cluster_nodes.pause(folder)
            case NodeAction.RESUME:
                engine.resume_node(instance, found, tell)
            case NodeAction.STOP:
                engine.stop_node(instance, found, patience=STOP_WITHIN)
            case NodeAction.START:
                engine.start_node(instance, found, tell)
                _wait_ready(homes, engine, instance, found, tell, limit)
        return cluster_nodes.state(folder)


def _wait_ready(
    homes: Homes, engine: ClusterEngine, instance: Instance, node: ClusterNode, tell: Tell, limit: float
) -> None:
    """Waits until a broker serves clients. Other nodes are ready when they listen, for which the start has waited."""
    if node.kind is not NodeKind.BROKER:
        return
    target = service.targets(homes, engine, instance)[node.number - 1]
    runs = partial(_runs, engine, instance, node)
    problem = readiness.wait(partial(readiness.not_ready, [target]), alive=runs, limit=limit, tell=tell)
    if problem:
        detail = f"{node.name}: {problem}; see {dev_command(f'logs {node.name}', instance.name)}"
        raise failure("K609", "broker not ready", detail, engine.folder(instance, node).logs / node.log)


def _runs(engine: ClusterEngine, instance: Instance, node: ClusterNode) -> bool:
    return cluster_nodes.state(engine.folder(instance, node)) is NodeState.RUNNING
