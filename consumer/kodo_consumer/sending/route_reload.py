"""Reload of routes: running producers and relays apply the routes of a changed topology file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.policy_builder import lint_warnings, send_target_of
from kodo_consumer.runtime.topology_reload import FileReloader

if TYPE_CHECKING:
    from pathlib import Path

    from kodo_consumer.sending.environment import Environment
    from kodo_consumer.sending.level_senders import LevelSenders
    from kodoctl.topology.loaded_topology import LoadedTopology

_WORDS: Final = {
    "schema": "payload", "payload_type": "payload", "properties": "message_properties", "by_key": "subscription types",
    "ordered": "subscription types", "undelayed": "subscription types", "largest": "max_message_size",
}  # fmt: skip


class GroundLevels:
    """Send targets of one ground topic, by level: those of the topology that `follow` got last, at first that of the
    constructor. `topic`: name of the ground topic.
    """

    def __init__(self, topology: LoadedTopology, topic: str) -> None:
        self._topology, self.topic = topology, topic

    def follow(self, topology: LoadedTopology) -> None:
        """Replaces the topology."""
        self._topology = topology

    def send_target(self, level: str) -> SendTarget:
        """Returns the send target of a level. Raises UsageError if the topology has no such ground topic, or if the
        level takes no messages, and InvalidFileError for a payload schema that cannot be used.
        """
        return send_target_of(self._topology, self.topic, level)


def route_reloader(
    file: Path,
    surroundings: Environment,
    present: tuple[LoadedTopology, bytes | None],
    send_targets: Callable[[LoadedTopology], Mapping[str, SendTarget]],
    adopt: Callable[[LoadedTopology], None],
) -> FileReloader[LoadedTopology]:
    """Returns a reader of the topology file for one sender, not started (see FileReloader). It adopts a topology whose
    send targets differ from those in use at most in their routes. Else it logs the settings that need a restart, or the
    faults of the file, also errors of lint rules, and changes nothing.

    Args:
        file: the topology file.
        surroundings: environment in which the file is loaded.
        present: the topology that the sender uses, and the bytes of the file that it was read from (None: unknown, and
            a change of the file before this call goes unnoticed).
        send_targets: returns the sender's send targets in a topology by name, also in the present one; raises
            KodoctlError.
        adopt: called with each topology that the sender has to follow, on the thread that reads the file.
    """

    def read_topology() -> LoadedTopology:
        topology = surroundings.topology(file)
        lint_warnings(topology)
        send_targets(topology)
        return topology

    topology, text = present
    return FileReloader(
        file,
        read_topology,
        topology,
        adopt,
        lambda old, new: restart_reasons(send_targets(old), send_targets(new)),
        text,
    )


def level_reloader(
    source: tuple[Path, Environment, tuple[LoadedTopology, bytes | None]],
    levels: GroundLevels,
    level: str,
    routes: LevelSenders,
) -> FileReloader[LoadedTopology]:
    """Returns the reader of the topology file of a producer for one level, not started. A file that it adopts (see
    `route_reloader`) gives `levels` its topology and `routes` its routes; the send target of `level` alone decides.
    `source`: (file, environment in which it is loaded, (topology in use, bytes of the file that it was read from, None:
    unknown)).
    """

    def adopt(found: LoadedTopology) -> None:
        levels.follow(found)
        routes.follow(levels.send_target(level).dispatch)

    return route_reloader(*source, lambda found: {level: send_target_of(found, levels.topic, level)}, adopt)


def restart_reasons(old: Mapping[str, SendTarget], new: Mapping[str, SendTarget]) -> list[str]:
    """Returns the settings that differ between old and new send targets of the same name and need a restart, in the
    words of the file (by the field of SendTarget if there is none), and `topics or levels` if targets were added or
    removed; empty: nothing needs a restart. Routes are left out, because they can change while a sender runs.
    """
    found = ["topics or levels"] if old.keys() != new.keys() else []
    for name in old.keys() & new.keys():
        pairs = [
            (one.name, getattr(old[name], one.name), getattr(new[name], one.name))
            for one in fields(SendTarget)
            if one.compare
        ]
        found += [_WORDS.get(field, field) for field, before, after in pairs if before != after]
    return list(dict.fromkeys(found))
