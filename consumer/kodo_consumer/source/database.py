"""A source's database: its slot, the snapshot before the first change, and the stream of changes.

The stream is the replication protocol over psycopg's libpq: PostgreSQL pushes messages of pgoutput, and we report the
position up to which all of them are stored. Everything after this position comes again at the next start.
"""

from __future__ import annotations

import logging
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.source.identity import System, forks_of
from kodo_consumer.source.pgoutput import Relation, RelationColumn, RowChange, Values
from kodo_consumer.source.positions import lsn_text, read_lsn, snapshot_slot
from kodo_consumer.source.row_mapping import GoneError, refused
from kodoctl.database.change_objects import IDENTITY
from kodoctl.database.postgres import DatabaseError, connection_of
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.values.publication_marker import read_marker
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    import psycopg

    from kodoctl.pulsar.values.publication_marker import PublicationMarker
    from kodoctl.topology.change_sources import ChangeSource, TableMapping

log = logging.getLogger("kodo.source")
_SETTINGS: Final = (
    "SET DateStyle = 'ISO'; SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = 1;"
    " SET bytea_output = 'hex'; SET client_encoding = 'UTF8'"
)
"""How values are written as text, in the stream and in the snapshot alike."""
_EPOCH_S: Final = 946_684_800  # PostgreSQL's epoch, in seconds since 1970
_FETCH: Final = 2_000  # rows of a snapshot at a time
_LOOK: Final = 1.0  # seconds between two calls of `on_wait`
_STATUS: Final = struct.Struct(">cQQQqB")
_DATA: Final = struct.Struct(">QQq")
_KEEPALIVE: Final = struct.Struct(">QqB")
_IN_USE: Final = "55006"  # SQLSTATE: the slot is read by another process
_DUPLICATE: Final = "42710"  # SQLSTATE: a slot of this name exists
_PRIMARY_KEY: Final = """
SELECT ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attnum = k.number
             WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indisprimary
                 AND (a.attgenerated = '' OR a.attname = ANY(%s)) ORDER BY k.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s OR (n.nspname = %s AND c.relname = %s)
"""
_PUBLICATION: Final = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
_UNPUBLISHED: Final = """
SELECT name FROM unnest(%s::text[]) name WHERE name NOT IN
    (SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s)
"""
_NAME: Final = "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s"
_SLOT: Final = """
SELECT active_pid, wal_status IS NOT DISTINCT FROM 'lost', confirmed_flush_lsn::text, plugin::text
FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""
_FREE: Final = """
SELECT current_setting('max_replication_slots')::int - (SELECT count(*)::int FROM pg_replication_slots)
"""
_SNAPSHOT_SLOTS: Final = 2  # the temporary one, and the one that is made of it
_TAKEN: Final = """
SELECT coalesce(database::text, 'none (it is physical)') FROM pg_replication_slots
WHERE slot_name = %s AND database IS DISTINCT FROM current_database()
"""


class SlotInUseError(DatabaseError):
    """Another process reads the slot, has made it, or reads the snapshot that comes before it."""


class SourceOwner(NamedTuple):
    """Topology of a source: its name, its namespace (TENANT/NAMESPACE), and functions that ask the cluster at each
    call. `read_uuid`: returns the UUID of its Pulsar tenant, None: it has none; `read_identity`: returns the identity
    of the database at the last apply, None: no apply wrote one. Both raise ClusterError.
    """

    topology: str
    namespace: str
    read_uuid: Callable[[], str | None]
    read_identity: Callable[[], str | None]


class SourceDatabase:
    """The database of a source. `environ` has the variable with the address; `accepted_gap`: position at which the slot
    may be although changes before it were passed over, None: a slot that passed changes over is an error. Methods get a
    connection of `connect`; psycopg's errors become DatabaseError where they leave its context.
    """

    def __init__(
        self, source: ChangeSource, owner: SourceOwner, environ: Mapping[str, str], accepted_gap: int | None = None
    ) -> None:
        self._source, self._owner, self._environ, self._accepted_gap = source, owner, environ, accepted_gap

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Context with a connection for statements, each of which is a transaction of its own. Values in text form look
        as in the stream. Raises DatabaseError, also for psycopg's errors inside the context.
        """
        with connection_of(self._source.spec.database, self._environ) as connection:
            connection.execute(_SETTINGS.encode())
            yield connection

    @contextmanager
    def replicate(self) -> Iterator[Replication]:
        """Context with a connection for replication. Until its stream starts, it runs SQL as well. It is closed at the
        end, even in the middle of a stream. Raises as `connect` does.
        """
        with connection_of(self._source.spec.database, self._environ, replication="database") as connection:
            replication = Replication(connection, self._source)
            try:
                for statement in _SETTINGS.split(";"):
                    replication.execute(statement)
                yield replication
            finally:
                connection.close()  # in the middle of a stream, too

    def check_identity(self, *identities: str) -> None:
        """Raises UsageError (K440) if one of the connections of this run is to another database than that of the last
        apply. `identities`: of all connections, one at least, as `identity_of` returns them. If nobody applied the
        source, or the ledger cannot be read, which is logged, the connections have to be to one database: else it
        raises DatabaseError.
        """
        variable = self._source.spec.database
        try:
            applied = self._owner.read_identity()
        except ClusterError as problem:
            text = "whether %s names the database of the last apply is not known: %s"
            log.warning(text, variable, one_line(str(problem), 300))
            applied = None
        now = set(identities)
        if applied is not None and now != {applied}:
            detail = (
                f"{variable} names the database {', '.join(sorted(now - {applied}))} (server/database), and"
                f" {self._source.publication} was applied in {applied}: nothing was sent. If the source moved for good,"
                " `kodoctl plan FILE` says what to do"
            )
            raise UsageError(error("K440", "another database than at the last apply", detail))
        if len(now) > 1:
            raise DatabaseError(f"{variable} led to different databases: {', '.join(sorted(now))} (server/database)")

    def check_owner(self, connection: Any) -> bool:
        """Raises UsageError (K790) if the publication belongs to another topology or cluster; a publication without an
        owner passes. If the cluster cannot be asked, that is logged, and the owner counts as one of this cluster.
        Returns False if there is no publication.
        """
        published = connection.execute(_PUBLICATION, [self._source.publication]).fetchone()
        owner = read_marker(published[0]) if published is not None else None
        place = self._owner.topology, self._owner.namespace
        if owner is not None and ((owner.topology, owner.namespace) != place or self._is_elsewhere(owner)):
            detail = (
                f"publication {self._source.publication} belongs to the topology {owner}: rename the source, or name"
                " another database"
            )
            raise UsageError(error("K790", "source cannot start", detail))
        return published is not None

    def slot_position(self, connection: Any) -> int | None:
        """Position up to which changes of the slot are confirmed; None: there is no slot yet, and none of the reasons
        below forbids it (`check_room` says whether the server has a slot free). Raises UsageError if the slot has lost
        its log or is of another plug-in than pgoutput; if the publication belongs to another topology or cluster; and,
        without a slot, if there is no publication, wal_level is not logical, or the server has a slot of this name that
        is physical or of another database. Raises SlotInUseError while another process is making the slot. That another
        process reads the slot is no error here.
        """
        is_published = self.check_owner(connection)
        found = connection.execute(_SLOT, [self._source.slot]).fetchone()
        if found is not None:
            _, is_lost, position, plugin = found
            if is_lost:
                detail = (
                    f"slot {self._source.slot} has lost its log (max_slot_wal_keep_size): changes are missing. Drop it by"
                    f" SELECT pg_drop_replication_slot('{self._source.slot}'); the next run sends all rows again"
                )
                raise UsageError(error("K792", "position of a source is lost", detail))
            if plugin != "pgoutput":
                detail = f"slot {self._source.slot} is of plug-in {plugin}, not of pgoutput: drop it if nobody needs it"
                raise UsageError(error("K790", "source cannot start", detail))
            if position is None:
                raise SlotInUseError(f"slot {self._source.slot} has no position yet: another `source run` is making it")
            return read_lsn(position)
        level = connection.execute("SELECT current_setting('wal_level')").fetchone()[0]
        if level != "logical":
            detail = f"wal_level of the server is {level}: set it to logical, and start the server again"
            raise UsageError(error("K790", "source cannot start", detail))
        if not is_published:
            detail = f"publication {self._source.publication} does not exist: `kodoctl apply FILE` makes it"
            raise UsageError(error("K790", "source cannot start", detail))
        if (taken := connection.execute(_TAKEN, [self._source.slot]).fetchone()) is not None:
            detail = (
                f"the database {taken[0]} of the same server has a slot {self._source.slot}, and names of slots are the"
                " server's: rename the source, or drop that slot"
            )
            raise UsageError(error("K790", "source cannot start", detail))
        return None

    def check_room(self, connection: Any) -> None:
        """Raises DatabaseError if the server has no room for the two slots of a snapshot: the rows would be sent again
        and again, because only the slot that is made after them says that they are sent.
        """
        free = connection.execute(_FREE).fetchone()[0]
        if free < _SNAPSHOT_SLOTS:
            raise DatabaseError(
                f"a snapshot takes {_SNAPSHOT_SLOTS} replication slots, and the server has {free} free: drop a slot that"
                " nobody needs, or raise max_replication_slots; no row was sent"
            )

    def _is_elsewhere(self, owner: PublicationMarker) -> bool:
        try:
            return owner.uuid != self._owner.read_uuid()
        except ClusterError as problem:
            text = "publication %s: whether it belongs to this cluster or to another is not known: %s"
            log.warning(text, self._source.publication, one_line(str(problem), 300))
            return False

    def check_position(self, position: int, covered: int) -> None:
        """Raises UsageError if the slot is at a `position` after `covered` and not at `accepted_gap`: then somebody
        moved the slot, or made it anew, and changes in between are passed over. `covered`: position up to which, by the
        last mark in the topics, everything is stored; 0: the broker has no mark, so a gap cannot be found, which is
        logged. So is an `accepted_gap` if there is no gap.
        """
        slot, at = self._source.slot, lsn_text(position)
        if not covered:
            log.warning(
                "slot %s is at %s: the broker does not know what was sent before, so a gap would not show", slot, at
            )
        elif position > covered and position != self._accepted_gap:
            detail = (
                f"slot {slot} is at {at}, and all is stored up to {lsn_text(covered)} only: somebody moved the slot, or"
                " made it anew, and what was committed in between is passed over. Drop the slot: the next run sends all"
                f" rows again. Or go on without these changes: --accept-gap {at}"
            )
            raise UsageError(error("K793", "changes of a source were passed over", detail))
        elif self._accepted_gap is not None and position <= covered:
            log.warning("slot %s is at %s, without a gap: leave --accept-gap out", slot, at)

    def log_end(self, connection: Any) -> int:
        """Position of the present end of the log on the server's disk: everything before it is flushed."""
        return read_lsn(connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0])

    def unpublished(self, connection: Any) -> list[str]:
        """Names of the source's tables, sorted, whose changes are not published now: they were dropped, renamed or
        taken out of the publication, or there is none.
        """
        names = [table.name for table in self._source.tables]
        found = connection.execute(_UNPUBLISHED, [names, self._source.publication]).fetchall()
        return sorted(name for (name,) in found)

    def present_name(self, connection: Any, relation: Relation) -> str:
        """Present name (`schema.table`) of a table, which is found by its number, because the log may have an earlier
        name; "" if the table does not exist any more.
        """
        found = connection.execute(_NAME, [relation.id]).fetchone()
        return found[0] if found else ""

    def root_of(self, connection: Any, relation: Relation) -> int:
        """Number (oid) of the topmost partitioned table to which a partition belongs now; for a topmost partitioned
        table its own; 0: the table is neither, or does not exist any more.
        """
        found = connection.execute("SELECT pg_partition_root(%s::oid::regclass)::oid::bigint", [relation.id]).fetchone()
        return (found and found[0]) or 0

    def primary_key(self, connection: Any, table: TableMapping, relation: Relation) -> list[str]:
        """Names of the columns of a table's primary key, in its order, as they are now, without generated columns that
        the log does not have: the log may have earlier names. []: it has none, or none is known. The table is found by
        its number, also if it was renamed; for a snapshot by its name. The key of a dropped table is known only if the
        log has it, and if it is a single column.
        """
        schema, name = table.parts
        place = [max(relation.id, 0), schema if relation.id < 0 else None, name]  # of a snapshot the name is certain
        columns = [column.name for column in relation.columns]
        found = connection.execute(_PRIMARY_KEY, [columns, *place]).fetchone()
        if found is not None:
            return list(found[0])
        logged = [column.name for column in relation.columns if column.is_key]
        return logged if relation.identity == "d" and len(logged) == 1 else []

    def fetch(self, connection: Any, relation: Relation, names: Sequence[str], row: Values) -> Values:
        """Reads the present values of the columns `names`, in this order, from the row whose replica identity (the
        columns that identify it in the log) has the values of `row`. The table is found by its number, also if it was
        renamed. Raises GoneError if there is no such row or no such table any more, or the log has no columns that
        identify the row, and UsageError (K791) if the table has no column of one of these names any more.
        """
        from psycopg.errors import UndefinedColumn
        from psycopg.sql import SQL, Identifier

        name = self.present_name(connection, relation)
        keys = [(column.name, row[place]) for place, column in enumerate(relation.columns) if column.is_key]
        if not keys or not name:
            raise GoneError
        schema, _, table = name.partition(".")
        query = SQL("SELECT {} FROM {} WHERE {}").format(
            SQL(", ").join(SQL("{}::text").format(Identifier(name)) for name in names),
            Identifier(schema, table),
            SQL(" AND ").join(SQL("{} = {}").format(Identifier(name), SQL("%s")) for name, _ in keys),
        )
        values = [value.decode() if isinstance(value, bytes) else None for _, value in keys]
        try:
            found = connection.execute(query, values).fetchone()
        except UndefinedColumn as problem:
            detail = (
                f"{problem.diag.message_primary} any more, and the log does not repeat a value that is read from the"
                " table: give the column its name back until this change is sent, or leave it out of `columns`"
            )
            raise refused(name, detail) from None
        if found is None:
            raise GoneError
        return [None if value is None else value.encode() for value in found]


class Event(NamedTuple):
    """A message of the stream. `data`: bytes of pgoutput, None for a sign of life; `end`: of a sign of life, the
    position up to which the server has sent everything; of another message, a position that does not say this.
    """

    data: bytes | None
    end: int


class Replication:
    """Connection for replication. `must_answer`: the server waits for a call of `confirm`. After `start` only `events`
    and `confirm` may be called. Methods raise DatabaseError, or psycopg's errors, which become DatabaseError where they
    leave the context of SourceDatabase.replicate. Not thread-safe.
    """

    def __init__(self, connection: Any, source: ChangeSource) -> None:
        self._connection, self._source = connection, source
        self._pg = connection.pgconn
        self.must_answer = False

    def execute(self, statement: str, on_wait: Callable[[], object] = lambda: None) -> list[tuple[Any, ...]]:
        """Runs a command of replication, or SQL. Returns its rows as texts, None for NULL. `on_wait`: called once a
        second while the server has not answered.
        """
        self._pg.send_query(statement.encode())
        while self._pg.is_busy():
            if not select.select([self._pg.socket], [], [], _LOOK)[0]:
                on_wait()
            self._pg.consume_input()
        result = list(iter(self._pg.get_result, None))[-1]
        self._check(result)
        return [
            tuple(
                None if (value := result.get_value(row, column)) is None else value.decode()
                for column in range(result.nfields)
            )
            for row in range(result.ntuples)
        ]

    def identity(self) -> str:
        """Identity of the database, as `identity_of` returns it."""
        return str(self.execute(IDENTITY)[0][0])

    def system(self) -> System:
        """Identity of the server."""
        found = self.execute("IDENTIFY_SYSTEM")[0]
        timeline, end = int(str(found[1])), read_lsn(str(found[2]))
        history = str(self.execute(f"TIMELINE_HISTORY {timeline}")[0][1]) if timeline > 1 else ""
        return System(str(found[0]), timeline, end, forks_of(history))

    def create_slot(self, on_wait: Callable[[], object]) -> int:
        """Creates the slot and returns its position; changes that are committed after it come through the slot. Blocks
        until all transactions that are open now have ended, and calls `on_wait` once a second meanwhile. Raises
        SlotInUseError if the slot exists.
        """
        command = f'CREATE_REPLICATION_SLOT "{self._source.slot}" LOGICAL pgoutput NOEXPORT_SNAPSHOT'
        return read_lsn(str(self.execute(command, on_wait)[0][1]))

    def create_snapshot(self, on_wait: Callable[[], object]) -> tuple[int, str]:
        """Creates a temporary slot, which ends with this connection. Returns its position, and the name of the snapshot
        of this position, which other connections can read until this one runs a further command. Blocks, and calls
        `on_wait`, as `create_slot` does. Raises SlotInUseError while another process reads its snapshot.
        """
        name = snapshot_slot(self._source.slot)
        found = self.execute(f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT', on_wait)
        return read_lsn(str(found[0][1])), str(found[0][2])

    def keep_slot(self) -> None:
        """Creates the source's slot as a copy of the temporary one of `create_snapshot`, at its position; the snapshot
        ends. Call it after the rows of the snapshot are stored: that the slot exists is the only sign of this. Raises
        SlotInUseError if the slot exists.
        """
        self.execute(
            f"SELECT pg_copy_logical_replication_slot('{snapshot_slot(self._source.slot)}', '{self._source.slot}', false)"
        )

    def start(self) -> None:
        """Begins the stream at the position that the server keeps for the slot. Waits for the server's answer, but not
        for changes: `events` reads them. Raises SlotInUseError if another process reads the slot.
        """
        options = f"proto_version '1', publication_names '\"{self._source.publication}\"'"
        command = f'START_REPLICATION SLOT "{self._source.slot}" LOGICAL 0/0 ({options})'
        self._check(self._pg.exec_(command.encode()))
        self._pg.nonblocking = 1

    def events(self, seconds: float, most: int) -> list[Event]:
        """Waits at most `seconds` for messages of the stream; returns at most `most`, perhaps none, also before the
        time is over. Sets `must_answer` if the server asks for an answer. Raises DatabaseError if the server has ended
        the stream.
        """
        found: list[Event] = []
        while len(found) < most:
            count, data = self._pg.get_copy_data(1)
            if count > 0:
                found.append(self._event(bytes(data)))
            elif count == 0:
                if found or not select.select([self._pg.socket], [], [], seconds)[0]:
                    break
                self._pg.consume_input()
                seconds = 0.0
            else:
                self._check(self._pg.get_result())
                raise DatabaseError("the server has ended the stream")
        return found

    def confirm(self, lsn: int) -> None:
        """Reports to the server that everything up to a position is stored, so that it need not come again; it may,
        after a crash of the server. Resets `must_answer`. Blocks until the report is sent.
        """
        self.must_answer = False
        now = int((time.time() - _EPOCH_S) * 1e6)
        self._pg.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now, 0))
        while self._pg.flush():
            select.select([], [self._pg.socket], [], 1.0)

    def _event(self, data: bytes) -> Event:
        if data[:1] == b"w":
            _, end, _ = _DATA.unpack_from(data, 1)
            return Event(data[25:], end)
        end, _, wants = _KEEPALIVE.unpack_from(data, 1)
        self.must_answer = self.must_answer or bool(wants)
        return Event(None, end)

    def _check(self, result: Any) -> None:
        from psycopg import pq

        if result is None or result.status in (
            pq.ExecStatus.COMMAND_OK,
            pq.ExecStatus.TUPLES_OK,
            pq.ExecStatus.COPY_BOTH,
        ):
            return
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        if state in (_IN_USE, _DUPLICATE):
            raise SlotInUseError(f"another `source run` has it: {text}")
        raise DatabaseError(text or self._pg.error_message.decode(errors="replace").strip() or "the connection is lost")


def identity_of(connection: Any) -> str:
    """Identity of a database, as the ledger has it: SERVER/OID, the identifier of the server's files and the number of
    the database.
    """
    return str(connection.execute(IDENTITY).fetchone()[0])


def snapshot_rows(
    connection: Any, table: TableMapping, relation_id: int, snapshot: str
) -> Iterator[Relation | RowChange]:
    """Yields the table as a Relation with the id `relation_id` and with no column of a key, then each of its rows as an
    insert, as the exported snapshot of this name has them. The name of the table and its columns (without generated
    ones) are the present ones. Reads within one transaction of `connection`, which stays open until the last row was
    read, or the iterator is closed.
    """
    from psycopg.sql import SQL, Identifier, Literal

    columns = connection.execute(
        "SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attnum > 0"
        " AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        [SQL(".").join(map(Identifier, table.parts)).as_string(connection)],
    ).fetchall()
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(snapshot)))
        names = SQL(", ").join(Identifier(name) for (name,) in columns)
        query = SQL("DECLARE kodo_rows NO SCROLL CURSOR FOR SELECT {} FROM {}")
        connection.execute(query.format(names, Identifier(*table.parts)))
        is_first = True
        while True:
            result = connection.execute(f"FETCH {_FETCH} FROM kodo_rows").pgresult
            width = result.nfields
            if is_first:
                found = [
                    RelationColumn(result.fname(at).decode(), result.ftype(at), is_key=False) for at in range(width)
                ]
                yield Relation(relation_id, table.name, "d", tuple(found))
                is_first = False
            for row in range(result.ntuples):
                values = [result.get_value(row, column) for column in range(width)]
                yield RowChange(relation_id, None, only_key=False, new=values, is_insert=True)
            if result.ntuples < _FETCH:
                return
