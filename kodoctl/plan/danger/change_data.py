"""Sources of change data against their databases: what would fail, or lose changes, although the file is valid (K434),
a database that could not be read (K435), and slots that the first run makes (K436).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Where, error, note, warning
from kodoctl.plan.changes import Adopt, Change, Create, FieldChange, Update
from kodoctl.pulsar.values.live_objects import ALL_TABLES, DatabaseFacts, PublicationFacts, SlotFacts, TableFacts
from kodoctl.topology.change_sources import ChangeSource, TableMapping, change_sources
from kodoctl.topology.model.source import PayloadColumn
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.resources import Address, DatabaseResource, PublicationResource, SlotResource, database_of

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import GroundTopic

NOT_READY: Final = "a database that is not ready for change data"
NOT_READ: Final = "a source's database could not be read"
OTHER_DATABASE: Final = "another database than at the last apply"
_TABLE_KINDS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}


def change_data_findings(desired: Desired, live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields findings (errors, warnings and notes) about the declared sources whose database was read, and about every
    database that could not be read, or is another one than before: of these sources, or with a publication of these
    topologies.
    """
    yield from _unread(desired, live)
    written = {change.address: change for change in sorted(changes, key=lambda one: not isinstance(one, Adopt))}
    for expansion in desired.expansions:
        for source in change_sources(expansion.topology.spec):
            publication = _resource_of(expansion, source)
            facts = live.databases.get(source.spec.database)
            if publication.address in desired.objects and facts is not None and not facts.problem:
                yield from _Readiness(expansion, source, facts, live, written.get(publication.address)).findings()


def _resource_of(expansion: Expansion, source: ChangeSource) -> PublicationResource:
    tables, operations = frozenset(table.name for table in source.tables), frozenset(source.operations)
    return PublicationResource(expansion.namespace, source.spec.database, source.publication, tables, operations)


def _unread(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields a finding (K435) for each database that could not be read: a warning, because the rest can be carried out;
    an error for a destroy, which would leave its slot behind. One that is not the database of the last apply is an
    error (K440).
    """
    for variable, facts in sorted(live.databases.items()):
        if not facts.problem:
            continue
        where = next((one.where for one in desired.objects.values() if _is_in(one.resource.address, variable)), None)
        if facts.is_other:
            detail = f"{facts.problem}. Nothing there was looked at"
            yield error("K440", OTHER_DATABASE, detail, where)
        elif desired.destroyed:
            detail = (
                f"{facts.problem}; publication and slot there are not deleted, and a slot that nobody reads keeps WAL"
                " until the disk is full: set the variable, or let `kodoctl forget` give them up"
            )
            yield error("K435", NOT_READ, detail, where)
        elif where is not None or _owns_in(desired, live, variable):
            detail = f"{facts.problem}; whether publication and slot exist is unknown, and both are left alone"
            yield warning("K435", NOT_READ, detail, where)


def _is_in(address: Address, variable: str) -> bool:
    place = database_of(address)
    return place is not None and place[0] == variable


def _owns_in(desired: Desired, live: Live, variable: str) -> bool:
    ours = (entry for entry in live.entries if entry.name in desired.all_names)
    return any(_is_in(address, variable) for entry in ours for address in entry.owned)


@dataclass(frozen=True)
class _Readiness:
    """One source against the facts about its database. `change`: of its publication; None: it stays as it is."""

    expansion: Expansion
    source: ChangeSource
    facts: DatabaseFacts
    live: Live
    change: Change | None

    def findings(self) -> Iterator[Diagnostic]:
        yield from self._server()
        yield from self._slot()
        for table in self.source.tables:
            yield from self._table(table)

    def _error(self, detail: str, *path: str) -> Diagnostic:
        return error("K434", NOT_READY, f"source {self.source.name}: {detail}", self._where(*path))

    def _warning(self, detail: str, *path: str) -> Diagnostic:
        return warning("K434", NOT_READY, f"source {self.source.name}: {detail}", self._where(*path))

    def _where(self, *path: str) -> Where:
        return self.expansion.topology.where_key("sources", self.source.name, *path)

    def _in_live(self, kind: type[DatabaseResource]) -> DatabaseResource | None:
        for found in self.live.objects.values():
            one = found.resource
            if isinstance(one, kind) and (one.database, one.name) == (self.source.spec.database, self.source.slot):
                return one
        return None

    def _server(self) -> Iterator[Diagnostic]:
        if self.facts.standby:
            yield self._error("the database is a standby, which takes no publication: name the primary")
        if self.facts.wal_level != "logical":
            yield self._error(
                f"wal_level is {self.facts.wal_level}, and changes are decoded with logical alone: `ALTER SYSTEM SET"
                " wal_level = logical` and a restart of the server (a managed one: its parameter for logical replication)",
                "database",
            )
        if isinstance(self.change, Create) and not self.facts.may_create:
            yield self._error(
                f"role {self.facts.role} may not create a publication: GRANT CREATE ON DATABASE {self.facts.name} TO"
                f" {self.facts.role}, or have an administrator create it",
                "database",
            )
        yield from self._publication()

    def _publication(self) -> Iterator[Diagnostic]:
        """Yields findings about a publication that exists: one that no apply can change, or that it cannot mark."""
        found = self.live.objects.get(_resource_of(self.expansion, self.source).address)
        if (
            found is None
            or not isinstance(found.facts, PublicationFacts)
            or not isinstance(self.change, Adopt | Update)
        ):
            return
        name, role = self.source.publication, self.facts.role
        drop = f"an administrator has to drop it, `DROP PUBLICATION {name}`, and the next apply makes it"
        if isinstance(found.resource, PublicationResource) and ALL_TABLES in found.resource.tables:
            yield self._error(
                f"the publication {name} is FOR ALL TABLES, and PostgreSQL does not let it become one of the tables of"
                f" this file: {drop}"
            )
        elif isinstance(self.change, Update) and not found.facts.owned:
            yield self._error(f"role {role} does not own the publication {name}, and cannot change it: {drop}")
        elif not found.facts.owned and found.marker is None:
            yield self._warning(
                f"role {role} does not own the publication {name}, and leaves no mark on it: nothing tells another"
                " cluster with a source of this name that it is taken"
            )

    def _slot(self) -> Iterator[Diagnostic]:
        slot = self._in_live(SlotResource)
        drop = f"`SELECT pg_drop_replication_slot('{self.source.slot}')`"
        if slot is None:
            yield from self._without_slot()
            return
        facts = self.live.objects[slot.address].facts
        assert isinstance(facts, SlotFacts)
        if facts.plugin != "pgoutput":
            yield self._error(f"the slot {slot.name} decodes with {facts.plugin}, not with pgoutput: drop it, {drop}")
        if facts.lost:
            yield self._error(
                f"the slot {slot.name} is lost: the server removed WAL that was not sent (max_slot_wal_keep_size)."
                f" Drop it, {drop}; the next run begins with a snapshot, and deletes in between are not sent"
            )
        if isinstance(self.change, Create):
            yield self._error(
                f"the slot {slot.name} is older than its publication would be, and could never be read: drop it, {drop}"
            )
        for field in self.change.fields if isinstance(self.change, Update) else ():
            if isinstance(field, FieldChange) and field.name == "tables" and (new := field.after - field.before):
                yield self._warning(
                    f"rows that are in {', '.join(sorted(new))} already are not sent, only changes from now on",
                    "tables",
                )

    def _without_slot(self) -> Iterator[Diagnostic]:
        name, role = self.source.slot, self.facts.role
        if (other := self.facts.taken.get(name)) is not None:
            yield self._error(
                f"the database {other} of the same server has a slot {name}, and names of slots are the server's:"
                " rename the source, or drop that slot"
            )
            return
        needed = 2 if self.source.spec.snapshot else 1  # a temporary one, of which the slot is made
        if self.facts.free_slots < needed:
            yield self._error(
                f"the server has no room for the slot {name}: it has {self.facts.free_slots} free, and the first run takes"
                f" {needed}. Raise max_replication_slots, and restart it"
            )
        if not self.facts.may_replicate:
            yield self._warning(
                f"role {role} may not create the slot: the role of `kodo-consumer source run` needs ALTER ROLE …"
                " REPLICATION",
                "database",
            )
        first = " and sends the rows that are there" if self.source.spec.snapshot else ""
        detail = f"source {self.source.name}: the first `kodo-consumer source run` makes {name}{first}"
        yield note("K436", "a slot that the first run makes", detail, self._where())

    # --- tables

    def _table(self, table: TableMapping) -> Iterator[Diagnostic]:
        path = ("tables", table.name)
        facts = self.facts.tables.get(table.name)
        if facts is None:
            yield self._error(f"there is no table {table.name}, or {self.facts.role} may not see its schema", *path)
            return
        if facts.kind not in ("r", "p"):
            kind = _TABLE_KINDS.get(facts.kind, "no table")
            yield self._error(f"{table.name} is {kind}, and only tables are published", *path)
            return
        if not facts.logged:
            yield self._error(f"{table.name} is unlogged or temporary: its changes are in no WAL", *path)
        if self._is_written(table) and not facts.owned:
            owner = f"`ALTER TABLE {table.name} OWNER TO …`, or plan and apply as its owner"
            yield self._error(
                f"role {self.facts.role} does not own {table.name}, and cannot publish it: {owner}", *path
            )
        if not facts.readable:
            grant = f"GRANT SELECT ON {table.name} TO …"
            yield self._warning(f"role {self.facts.role} may not read {table.name}, as a snapshot does: {grant}", *path)
        missing = list(self._missing_columns(table, facts))
        yield from missing
        if not missing:
            yield from self._identity(table, facts)

    def _is_written(self, table: TableMapping) -> bool:
        if isinstance(self.change, Update):
            before = self.change.before
            return isinstance(before, PublicationResource) and table.name not in before.tables
        return isinstance(self.change, Create)

    def _missing_columns(self, table: TableMapping, facts: TableFacts) -> Iterator[Diagnostic]:
        for column, path in _columns_of(table):
            if column not in facts.columns:
                near = get_close_matches(column, sorted(facts.columns), 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(facts.columns))}"
                yield self._error(f"{table.name} has no column {column!r}; {hint}", "tables", table.name, *path)

    def _identity(self, table: TableMapping, facts: TableFacts) -> Iterator[Diagnostic]:
        """Yields errors about columns that the server does not log of a deleted row: its replica identity."""
        path = ("tables", table.name)
        full = f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"
        if facts.uneven is not None:
            yield self._error(
                f"partition {facts.uneven} has another replica identity than {table.name}, by which PostgreSQL names what"
                f" it logs: columns that are not logged would come as NULL. Give all the same one: {full}, and so for"
                " each partition",
                *path,
            )
        if {"update", "delete"} & set(self.source.operations) and facts.identity is None:
            yield self._error(
                f"{table.name} has no replica identity, so that PostgreSQL would refuse every UPDATE and DELETE on it"
                f" from the application: give it a primary key (a deferrable one does not count), or {full}",
                *path,
            )
            return
        if table.spec.outbox is not None:
            return
        key = table.spec.key or facts.key
        if not key:
            yield self._error(f"{table.name} has no primary key: name the columns of the message key in `key`", *path)
        ground = self.expansion.topology.spec.topics.get(table.spec.topic or "")
        if table.spec.deletes == "tombstone" and facts.identity is not None and ground is not None:
            needed = {*key, *(table.spec.properties[name] for name in _needed(ground) if name in table.spec.properties)}
            if lacking := sorted(needed - facts.identity):
                yield self._error(
                    f"a row deleted from {table.name} is logged without {', '.join(lacking)}, which its message needs:"
                    f" {full}, or write `deletes: ignore`",
                    *path,
                )


def _columns_of(table: TableMapping) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields (column, path below the table) for every column that a mapping names."""
    spec = table.spec
    if spec.outbox is not None:
        for name in ("topic", "key", "payload", "properties"):
            if (column := getattr(spec.outbox, name)) is not None:
                yield column, ("outbox", name)
        return
    yield from ((column, ("key",)) for column in spec.key or ())
    yield from ((column, ("properties", name)) for name, column in spec.properties.items())
    yield from ((column, ("columns",)) for column in spec.columns or ())
    if isinstance(spec.payload, PayloadColumn):
        yield spec.payload.column, ("payload", "column")


def _needed(ground: GroundTopic) -> set[str]:
    """Message properties that every message of a topic has to have: required ones, and the tenant's."""
    required = {name for name, need in ground.message_properties.items() if need == "required"}
    return required if ground.fair_by in (None, KEY) else {*required, str(ground.fair_by)}
