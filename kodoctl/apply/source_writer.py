"""Writes of publications and replication slots. Each compares with the plan right before it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kodoctl.database.change_objects import read_publication, read_slot
from kodoctl.database.postgres import DatabaseError, connection_of
from kodoctl.plan import serialization
from kodoctl.plan.changes import Change, Create, Delete, Update
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.topology.resources import DatabaseResource, PublicationResource, SlotResource

if TYPE_CHECKING:
    from psycopg.sql import Composed


class SourceWriter:
    """Writer of the databases whose URLs are in `variables`, by name of the variable. Connects for each write."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def create_publication(self, wanted: PublicationResource) -> None:
        """Creates a publication. Raises WriteFailedError if one of that name exists, or a slot, which would be older
        than its publication and could not be read.
        """
        with self._connection(wanted) as connection:
            if read_publication(connection, wanted) is not None:
                raise WriteFailedError("it exists since the plan: plan again")
            _refuse_slot(connection, wanted, "a slot that is older than its publication cannot be read")
            connection.execute(_statement("CREATE PUBLICATION {name} FOR TABLE {tables} WITH ({options})", wanted))

    def update_publication(self, before: PublicationResource, after: PublicationResource) -> None:
        """Changes tables and operations in one transaction. Raises WriteFailedError if it is not as planned."""
        with self._connection(after) as connection, connection.transaction():
            _refuse_other(read_publication(connection, after), before)
            connection.execute(_statement("ALTER PUBLICATION {name} SET TABLE {tables}", after))
            connection.execute(_statement("ALTER PUBLICATION {name} SET ({options})", after))

    def delete_publication(self, before: PublicationResource) -> None:
        """Drops a publication; one that is gone is no error. Raises WriteFailedError if it is not as planned, or if its
        slot is still there.
        """
        with self._connection(before) as connection, connection.transaction():
            if (now := read_publication(connection, before)) is not None:
                _refuse_other(now, before)
                _refuse_slot(connection, before, "it cannot be read without its publication, and keeps WAL for ever")
                connection.execute(_statement("DROP PUBLICATION {name}", before))

    def delete_slot(self, before: SlotResource, *, allowed: bool) -> None:
        """Drops a slot; one that is gone is no error. Raises WriteFailedError if nobody allowed its loss (`allowed`), or
        if it has a reader.
        """
        with self._connection(before) as connection:
            facts = read_slot(connection, before)
            if facts is None:
                return
            if not allowed:
                raise WriteFailedError("it has a position that nobody allowed to lose: plan again")
            if facts.active_pid is not None:
                raise WriteFailedError(
                    f"process {facts.active_pid} sends to its reader: stop `kodo-consumer source run`"
                )
            connection.execute("SELECT pg_drop_replication_slot(%s)", [before.name])

    def problem_of(self, change: Change) -> str:
        """Difference of the database from a written change; "" if there is none, or if the change is of no database."""
        match change:
            case Create(after=PublicationResource() as after) | Update(after=PublicationResource() as after):
                with self._connection(after) as connection:
                    now = read_publication(connection, after)
                shown = serialization.describe(now) if now else "none"
                return "" if now == after else f"written, but the database shows {shown}"
            case Delete(before=PublicationResource() as gone):
                with self._connection(gone) as connection:
                    return "the database still has it" if read_publication(connection, gone) else ""
            case Delete(before=SlotResource() as slot):
                with self._connection(slot) as connection:
                    return "the database still has it" if read_slot(connection, slot) else ""
            case _:
                return ""

    @contextmanager
    def _connection(self, resource: DatabaseResource) -> Iterator[Any]:
        try:
            with connection_of(resource.database, self._variables) as connection:
                yield connection
        except DatabaseError as problem:
            raise WriteFailedError(str(problem)) from None


def _refuse_other(now: PublicationResource | None, planned: PublicationResource) -> None:
    if now != planned:
        raise WriteFailedError(f"it is {serialization.describe(now) if now else 'gone'} since the plan: plan again")


def _refuse_slot(connection: Any, publication: PublicationResource, why: str) -> None:
    slot = SlotResource(publication.namespace, publication.database, publication.name)
    if read_slot(connection, slot) is not None:
        raise WriteFailedError(f"the slot {slot.name} exists: {why}; plan again")


def _statement(template: str, publication: PublicationResource) -> Composed:
    from psycopg import sql

    options = sql.SQL("publish = {}, publish_via_partition_root = {}").format(
        sql.Literal(", ".join(sorted(publication.operations))), sql.Literal(publication.via_root)
    )
    return sql.SQL(template).format(
        name=sql.Identifier(publication.name), tables=_tables(publication.tables), options=options
    )


def _tables(names: Iterable[str]) -> Composed:
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(*name.split(".", 1)) for name in sorted(names))
