"""Publications, replication slots and tables of sources, as they are in their databases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kodoctl.database.postgres import DatabaseError, connection_of
from kodoctl.pulsar.values.live_objects import (
    ALL_TABLES,
    DatabaseFacts,
    Live,
    LiveObject,
    PublicationFacts,
    SlotFacts,
    TableFacts,
)
from kodoctl.pulsar.values.publication_marker import owner_of, read_marker
from kodoctl.topology.resources import Address, PublicationResource, SlotResource, database_of, namespace_of_address

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName

Names = Mapping[str, "set[NamespaceName]"]  # of publications and slots -> the namespaces of their addresses

_NOW: Final = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
IDENTITY: Final = """
SELECT system_identifier::text || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
FROM pg_control_system()
"""
_SERVER: Final = """
SELECT current_database()::text, current_setting('wal_level'),
       current_setting('max_replication_slots')::int - (SELECT count(*)::int FROM pg_replication_slots),
       current_user::text,
       EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolreplication))
         OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication' AND pg_has_role(r.oid, 'MEMBER')),
       has_database_privilege(current_database(), 'CREATE'),
       pg_is_in_recovery()
"""
_PUBLICATIONS: Final = """
SELECT p.pubname::text, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, p.puballtables,
       ARRAY(SELECT n.nspname || '.' || c.relname || {partly}
             FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE r.prpubid = p.oid) || {schemas},
       obj_description(p.oid, 'pg_publication'), pg_has_role(p.pubowner, 'USAGE')
FROM pg_publication p WHERE p.pubname = ANY(%s)
"""
_COMMENT: Final = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
_SLOTS: Final = """
SELECT slot_name::text, plugin::text, active_pid, coalesce(confirmed_flush_lsn::text, ''),
       coalesce(pg_wal_lsn_diff({now}, confirmed_flush_lsn), 0)::bigint,
       coalesce(pg_wal_lsn_diff({now}, restart_lsn), 0)::bigint,
       wal_status IS NOT DISTINCT FROM 'lost'
FROM pg_replication_slots
WHERE slot_name = ANY(%s) AND database = current_database()
"""
_TAKEN: Final = """
SELECT slot_name::text, coalesce(database::text, 'none (it is physical)') FROM pg_replication_slots
WHERE slot_name = ANY(%s) AND database IS DISTINCT FROM current_database()
"""
_TABLES: Final = """
SELECT n.nspname || '.' || c.relname, c.relkind::text, c.relreplident::text, c.relpersistence = 'p',
       has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'),
       ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attnum = k.number
             WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indisprimary ORDER BY k.place),
       ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
             WHERE i.indrelid = c.oid AND i.indimmediate  -- the server passes over a deferrable primary key
               AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END),
       CASE WHEN c.relkind = 'p' THEN
           (SELECT min(p.oid::regclass::text) FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid
            WHERE t.isleaf AND p.relreplident <> c.relreplident) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%s)
"""


def read_sources(
    live: Live, addresses: Iterable[Address], variables: Mapping[str, str], tables: Mapping[str, frozenset[str]]
) -> Live:
    """Returns the live inventory with the publications and slots that have these addresses, if they exist, and with
    facts about their databases. A database that cannot be read has the reason in the `problem` of its facts.
    `variables`: variables of the environment, which have the URLs; `tables`: variable of a database -> the tables to
    look at (SCHEMA.TABLE). Without such addresses nothing is imported and nobody connects.
    """
    wanted: dict[str, dict[str, set[NamespaceName]]] = {}
    for address in addresses:
        if (place := database_of(address)) is not None:
            wanted.setdefault(place[0], {}).setdefault(place[1], set()).add(namespace_of_address(address))
    objects, databases = dict(live.objects), dict(live.databases)
    for variable, names in wanted.items():
        try:
            with connection_of(variable, variables) as connection:
                databases[variable] = _facts(connection, tables.get(variable, frozenset()), list(names))
                found = [
                    *_publications(connection, variable, names, live),
                    *_slots(connection, variable, names),
                ]
        except DatabaseError as problem:
            databases[variable] = DatabaseFacts(problem=str(problem))
        else:
            objects |= {one.resource.address: one for one in found}
    return replace(live, objects=objects, databases=databases)


def read_publication(connection: Any, wanted: PublicationResource, live: Live) -> LiveObject | None:
    """The publication as it is now, with its marker; None if it does not exist. `live`: has the cluster's identity and
    the ledgers, by which a marker of another owner is recognised. Raises psycopg's errors.
    """
    return next(iter(_publications(connection, wanted.database, {wanted.name: {wanted.namespace}}, live)), None)


def read_slot(connection: Any, wanted: SlotResource) -> SlotFacts | None:
    """Facts about the slot as it is now; None if the connected database has none. Raises psycopg's errors."""
    found = next(iter(_slots(connection, wanted.database, {wanted.name: {wanted.namespace}})), None)
    return found.facts if found and isinstance(found.facts, SlotFacts) else None


def read_comment(connection: Any, publication: PublicationResource) -> str | None:
    """The comment on a publication; None if it has no comment, or does not exist. Raises psycopg's errors."""
    found = connection.execute(_COMMENT, [publication.name]).fetchone()
    return found[0] if found else None


def _facts(connection: Any, tables: frozenset[str], slots: list[str]) -> DatabaseFacts:
    server = connection.execute(_SERVER).fetchone()
    rows = connection.execute(_TABLES, [sorted(tables)]).fetchall() if tables else []
    found = {
        name: TableFacts(
            kind,
            frozenset(columns),
            tuple(key),
            frozenset(columns if identity == "f" else indexed) or None,
            readable,
            owned,
            logged,
            uneven,
        )
        for name, kind, identity, logged, readable, owned, columns, key, indexed, uneven in rows
    }
    taken = dict(connection.execute(_TAKEN, [slots]).fetchall())
    identity = connection.execute(IDENTITY).fetchone()[0]
    return replace(DatabaseFacts("", identity, False, *server), tables=found, taken=taken)


def _publications(connection: Any, variable: str, names: Names, live: Live) -> list[LiveObject]:
    """The publications with these names, once for each namespace. A table of which a publication has a part only
    (columns, rows) is marked in its name, and so is a publication of all tables: neither is as any file declares.
    """
    recent = connection.info.server_version >= 150_000
    partly = "CASE WHEN r.prqual IS NULL AND r.prattrs IS NULL THEN '' ELSE ' (in part)' END" if recent else "''"
    schemas = "ARRAY(SELECT n.nspname || '.*' FROM pg_publication_namespace s JOIN pg_namespace n ON n.oid = s.pnnspid WHERE s.pnpubid = p.oid)"
    query = _PUBLICATIONS.format(partly=partly, schemas=schemas if recent else "ARRAY[]::text[]")
    found = []
    for name, insert, update, delete, truncate, root, everything, tables, comment, owned in connection.execute(
        query, [list(names)]
    ):
        flags = {"insert": insert, "update": update, "delete": delete, "truncate": truncate}
        operations = frozenset(operation for operation, on in flags.items() if on)
        listed = frozenset([ALL_TABLES] if everything else tables)
        for namespace in names[name]:
            publication = PublicationResource(namespace, variable, name, listed, operations, root)
            owner, is_foreign = owner_of(read_marker(comment), namespace, live)
            found.append(LiveObject(publication, owner, PublicationFacts(owned, is_foreign)))
    return found


def _slots(connection: Any, variable: str, names: Names) -> list[LiveObject]:
    return [
        LiveObject(
            SlotResource(namespace, variable, name),
            facts=SlotFacts(plugin, pid, confirmed, unconfirmed, retained, lost),
        )
        for name, plugin, pid, confirmed, unconfirmed, retained, lost in connection.execute(
            _SLOTS.format(now=_NOW), [list(names)]
        )
        for namespace in names[name]
    ]
