"""Sources of change data, resolved: names of the replication slot and the publication, tables, and what is published."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from kodoctl.topology.model.source import Source, SourceTable
    from kodoctl.topology.model.topology import Topology

MAX_IDENTIFIER: Final = 63  # bytes of a PostgreSQL name
Operation = Literal["insert", "update", "delete", "truncate"]
_NO_SLOT_NAME: Final = re.compile("[^a-z0-9_]")


@dataclass(frozen=True, slots=True)
class TableMapping:
    """A table of a source. `name`: SCHEMA.TABLE as in the file; `spec`: its entry in the file."""

    name: str
    spec: SourceTable

    @property
    def parts(self) -> tuple[str, str]:
        """(schema, table), as the database has them, with their case and without quotes."""
        schema, _, table = self.name.partition(".")
        return schema, table


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """A source of a topology. `slot`: name of its replication slot and of its publication; `tables`: in the order of
    the file.
    """

    name: str
    slot: str
    spec: Source
    tables: tuple[TableMapping, ...]

    @property
    def publication(self) -> str:
        """Name of the publication: that of the slot."""
        return self.slot

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that the publication publishes: inserts alone if every table is an outbox, else also updates
        and truncates, and deletes if a table sends them. Truncates are published to be reported: no message says that
        the rows are gone.
        """
        rows = [table.spec for table in self.tables if table.spec.outbox is None]
        if not rows:
            return ("insert",)
        sends_deletes = any(row.deletes == "tombstone" for row in rows)
        return ("insert", "update", *(("delete",) if sends_deletes else ()), "truncate")

    def targets(self, topology: Topology) -> dict[str, list[TableMapping]]:
        """Tables by the ground topic to which their rows can go; rows of an outbox can go to every topic of the file.
        Ground topics without such a table are left out, and so is a table whose topic the file does not have.
        """
        found: dict[str, list[TableMapping]] = {}
        for table in self.tables:
            grounds = [table.spec.topic] if table.spec.outbox is None else topology.topics
            for ground in grounds:
                if ground in topology.topics:
                    found.setdefault(str(ground), []).append(table)
        return found


def change_sources(topology: Topology) -> tuple[ChangeSource, ...]:
    """Sources of change data of a topology, in the order of the file; () if the file has none."""
    return tuple(
        ChangeSource(
            name,
            slot_name(topology.name, name),
            source,
            tuple(TableMapping(table, spec) for table, spec in source.tables.items()),
        )
        for name, source in topology.sources.items()
    )


def slot_name(topology: str, source: str) -> str:
    """Name of the slot and the publication of a source, kodo_TOPOLOGY_SOURCE in lower case. `_` stands for every
    character that is not allowed in the name of a slot.
    """
    return _NO_SLOT_NAME.sub("_", f"kodo_{topology}_{source}".lower())


def verification_slot(slot: str) -> str:
    """Name of the slot from which `kodo-consumer source verify` reads the log a second time. The name has a digest of
    `slot`, because a name with more text could be that of another source, or too long.
    """
    return f"kodo_verify_{hashlib.sha256(slot.encode()).hexdigest()[:16]}"


def sourced_grounds(topology: Topology) -> frozenset[str]:
    """Ground topics to which a source of the topology can send: all of the file, if it has an outbox."""
    return frozenset(ground for source in change_sources(topology) for ground in source.targets(topology))
