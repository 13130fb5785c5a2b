"""Route reload: senders read the routes of a topology file again while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.outlet import Outlet
from kodo_consumer.policy_builder import judged, outlet_of
from kodo_consumer.runtime.topology_reload import FileReloader

if TYPE_CHECKING:
    from pathlib import Path

    from kodo_consumer.sending.environment import Environment
    from kodo_consumer.sending.level_senders import LevelSenders
    from kodoctl.topology.loaded_topology import LoadedTopology

_WORDS: Final = {
    "schema": "payload", "payload_type": "payload", "properties": "message_properties", "by_key": "subscription types",
    "ordered": "subscription types", "largest": "max_message_size",
}  # fmt: skip


class GroundLevels:
    """The levels of one ground topic that take messages, by the file that was read last."""

    def __init__(self, topology: LoadedTopology, topic: str) -> None:
        self._topology, self.topic = topology, topic

    def follow(self, topology: LoadedTopology) -> None:
        """Replaces the topology file."""
        self._topology = topology

    def outlet(self, level: str) -> Outlet:
        """Returns the outlet of a level. Raises UsageError if the level takes no messages."""
        return outlet_of(self._topology, self.topic, level)


def route_reloader(
    file: Path,
    surroundings: Environment,
    present: tuple[LoadedTopology, bytes | None],
    outlets: Callable[[LoadedTopology], Mapping[str, Outlet]],
    adopt: Callable[[LoadedTopology], None],
) -> FileReloader[LoadedTopology]:
    """Returns the reader of one sender's topology file, not started. `present`: the topology that the sender was made
    from, and the text of its file; `outlets`: function from a topology to the sender's outlets by name, which may raise
    KodoctlError; `adopt`: function that makes the sender use a new topology.
    """

    def read() -> LoadedTopology:
        topology = surroundings.topology(file)
        judged(topology)
        outlets(topology)
        return topology

    topology, text = present
    return FileReloader(file, read, topology, adopt, lambda old, new: restart_reasons(outlets(old), outlets(new)), text)


def level_reloader(
    source: tuple[Path, Environment, tuple[LoadedTopology, bytes | None]],
    levels: GroundLevels,
    level: str,
    routes: LevelSenders,
) -> FileReloader[LoadedTopology]:
    """Returns the reader of the topology file of a producer for one level, not started. A changed file gives `routes`
    its new routes.
    """

    def adopt(found: LoadedTopology) -> None:
        levels.follow(found)
        routes.follow(levels.outlet(level).dispatch)

    return route_reloader(*source, lambda found: {level: outlet_of(found, levels.topic, level)}, adopt)


def restart_reasons(old: Mapping[str, Outlet], new: Mapping[str, Outlet]) -> list[str]:
    """Returns the names of the settings, as the file calls them, that differ between old and new outlets and need a
    restart. Routes are left out, because they can change while a sender runs.
    """
    found = ["topics or levels"] if old.keys() != new.keys() else []
    for name in old.keys() & new.keys():
        pairs = [
            (one.name, getattr(old[name], one.name), getattr(new[name], one.name))
            for one in fields(Outlet)
            if one.compare
        ]
        found += [_WORDS.get(field, field) for field, before, after in pairs if before != after]
    return list(dict.fromkeys(found))
