"""Writer of publications and replication slots in the databases of sources. Each write compares the database with the
plan right before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kodoctl.database.change_objects import IDENTITY, read_comment, read_publication, read_slot
from kodoctl.database.postgres import DatabaseError, connection_of
from kodoctl.plan import serialization
from kodoctl.plan.changes import Change, Create, Delete, Update
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.values.live_objects import PublicationFacts
from kodoctl.pulsar.values.publication_marker import PublicationMarker, with_marker
from kodoctl.topology.change_sources import verification_slot
from kodoctl.topology.resources import DatabaseResource, PublicationResource, SlotResource

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from kodoctl.pulsar.values.live_objects import Live, LiveObject


_DROP_VERIFICATION: Final = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""


class SourceWriter:
    """Writer of publications and replication slots. `variables`: variables of the environment, which have the URLs of
    databases; `live`: the live inventory that the plan was checked with.

    Each method connects anew. It raises WriteFailedError if the database cannot be reached, refuses a statement, or is
    another one than in `live`.
    """

    def __init__(self, variables: Mapping[str, str], live: Live) -> None:
        self._variables, self._live = variables, live

    def create_publication(self, wanted: PublicationResource, owner: str) -> None:
        """Creates a publication, with its owner's marker, in one transaction. Raises WriteFailedError if the database
        has a publication of that name, or a slot of that name: PostgreSQL cannot read a slot by a publication that is
        younger than it.
        """
        with self._locked(wanted) as connection:
            if self._read(connection, wanted) is not None:
                raise WriteFailedError("it exists since the plan: plan again")
            _refuse_slot(connection, wanted, "a slot that is older than its publication cannot be read")
            connection.execute(_statement("CREATE PUBLICATION {name} FOR TABLE {tables} WITH ({options})", wanted))
            self._mark(connection, wanted, owner)

    def update_publication(self, before: PublicationResource, after: PublicationResource, owner: str) -> None:
        """Gives a publication the tables and options of `after` in one transaction; its marker stays. Raises
        WriteFailedError if the publication is gone, differs from `before`, or has another owner than `owner` and the
        one that the plan saw.
        """
        with self._locked(after) as connection:
            self._refuse_other(self._read(connection, after), before, owner)
            connection.execute(_statement("ALTER PUBLICATION {name} SET TABLE {tables}", after))
            connection.execute(_statement("ALTER PUBLICATION {name} SET ({options})", after))

    def delete_publication(self, before: PublicationResource, owner: str) -> None:
        """Drops a publication, and the slot that verifications of its source use (`verification_slot`); it is no error
        if one or both are gone. Raises WriteFailedError if the publication differs from `before` or has another owner
        than `owner` and the one that the plan saw; also, even if the publication is gone, if the replication slot of
        the same name still exists.
        """
        with self._locked(before) as connection:
            if (now := self._read(connection, before)) is not None:
                self._refuse_other(now, before, owner)
            _refuse_slot(connection, before, "it cannot be read without its publication, and keeps WAL for ever")
            if now is not None:
                connection.execute(_statement("DROP PUBLICATION {name}", before))
            connection.execute(_DROP_VERIFICATION, [verification_slot(before.name)])

    def mark_publication(self, publication: PublicationResource, owner: str | None) -> None:
        """Sets the marker of a publication to `owner`, or removes kodoctl's marker (None); a marker of another
        namespace or cluster is not removed. A publication that the role of the URL may not comment on, because an
        administrator made it, stays as it is. Raises WriteFailedError if the publication is gone, or if `owner` is not
        None and it has another owner than `owner` and the one that the plan saw.
        """
        with self._locked(publication) as connection:
            now = self._read(connection, publication)
            if now is None:
                raise WriteFailedError("it is gone since the plan: plan again")
            if owner is None and (now.is_foreign or now.marker is None):
                return
            self._refuse_owner(now, owner or str(now.marker))
            if isinstance(now.facts, PublicationFacts) and now.facts.owned:
                self._mark(connection, publication, owner)

    def delete_slot(self, before: SlotResource, owner: str, *, allowed: bool) -> None:
        """Drops a replication slot, and the slot that verifications of its source use (`verification_slot`); it is no
        error if one or both are gone. `allowed`: a user allowed the loss of the slot's position. Raises
        WriteFailedError if the slot exists and that is not allowed or a reader is connected to it, or if the
        publication of its name has another owner than `owner` and the one that the plan saw.
        """
        with self._locked(before) as connection:
            facts = read_slot(connection, before)
            self._refuse_owner(self._read(connection, _publication_of(before)), owner)
            if facts is not None and not allowed:
                raise WriteFailedError("it has a position that nobody allowed to lose: plan again")
            if facts is not None and facts.active_pid is not None:
                raise WriteFailedError(
                    f"process {facts.active_pid} sends to its reader: stop `kodo-consumer source run`"
                )
            connection.execute(_DROP_VERIFICATION, [verification_slot(before.name)])
            if facts is not None:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [before.name])

    def problem_of(self, change: Change) -> str:
        """Reads the publication that a change created, updated or deleted, or the slot that it deleted, and returns a
        text about the difference from the change; "" if there is none, or for any other change. Raises WriteFailedError
        if the database cannot be read.
        """
        match change:
            case Create(after=PublicationResource() as after) | Update(after=PublicationResource() as after):
                with self._connection(after) as connection:
                    found = self._read(connection, after)
                now = found.resource if found else None
                shown = serialization.describe(now) if now else "none"
                return "" if now == after else f"written, but the database shows {shown}"
            case Delete(before=PublicationResource() as gone):
                with self._connection(gone) as connection:
                    return "the database still has it" if self._read(connection, gone) else ""
            case Delete(before=SlotResource() as slot):
                with self._connection(slot) as connection:
                    return "the database still has it" if read_slot(connection, slot) else ""
            case _:
                return ""

    @contextmanager
    def _connection(self, resource: DatabaseResource) -> Iterator[Any]:
        """Context with a connection to the database that the plan was compared with."""
        try:
            with connection_of(resource.database, self._variables) as connection:
                planned = self._live.databases.get(resource.database)
                if planned is None or connection.execute(IDENTITY).fetchone() != (planned.identity,):
                    raise WriteFailedError(f"{resource.database} names another database since the plan: plan again")
                yield connection
        except DatabaseError as problem:
            raise WriteFailedError(str(problem)) from None

    @contextmanager
    def _locked(self, resource: DatabaseResource) -> Iterator[Any]:
        """Context with a transaction in which no other kodoctl writes the publication or the slot of this name."""
        with self._connection(resource) as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('kodoctl'), hashtext(%s))", [resource.name])
            yield connection

    def _read(self, connection: Any, publication: PublicationResource) -> LiveObject | None:
        return read_publication(connection, publication, self._live)

    def _mark(self, connection: Any, publication: PublicationResource, owner: str | None) -> None:
        from psycopg import sql

        identity, namespace = self._live.identity, publication.namespace
        uuid = identity.uuids.get(namespace.tenant) or ""
        marker = PublicationMarker(owner, str(namespace), identity.cluster, uuid) if owner is not None else None
        comment = with_marker(read_comment(connection, publication), marker)
        connection.execute(
            sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(sql.Identifier(publication.name), sql.Literal(comment))
        )

    def _refuse_other(self, now: LiveObject | None, planned: PublicationResource, owner: str) -> None:
        if now is None or now.resource != planned:
            raise WriteFailedError(
                f"it is {serialization.describe(now.resource) if now else 'gone'} since the plan: plan again"
            )
        self._refuse_owner(now, owner)

    def _refuse_owner(self, now: LiveObject | None, owner: str) -> None:
        """Raises WriteFailedError for a publication of another owner than `owner` and the owner that the plan shows."""
        if now is None or now.marker in (None, owner):
            return
        planned = self._live.objects.get(now.resource.address)
        if now.is_foreign or planned is None or planned.marker != now.marker:
            raise WriteFailedError(f"it belongs to the topology {now.marker}: plan again")


def _publication_of(slot: SlotResource) -> PublicationResource:
    return PublicationResource(slot.namespace, slot.database, slot.name, frozenset(), frozenset())


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
