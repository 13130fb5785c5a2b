"""Verifier of a source: a second reading of the database's log, by a slot of its own, against the stored messages.

The slot of the source itself cannot be read back: PostgreSQL decodes nothing before the position that was confirmed.
So the verifier keeps a slot that begins where the source is when it is first called, and moves this slot up to where
each commit is proved to be stored once. The log after this position stays on the server until then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.adapters.pulsar.sequenced_producers import SequencedClient
from kodo_consumer.source.commit_proof import Proof, ProofInputs, RequiredMessage, Span, prove, without_copy
from kodo_consumer.source.database import SourceDatabase, identity_of
from kodo_consumer.source.pgoutput import Begin, BrokenMessageError, Commit, Relation, RowChange, read_message
from kodo_consumer.source.positions import PLACES, Position, lsn_text, read_lsn
from kodo_consumer.source.row_mapping import GoneError
from kodo_consumer.source.runner import owner_of
from kodo_consumer.source.sender import SourceTopics
from kodo_consumer.source.stored_messages import id_prefix, stored_since
from kodo_consumer.source.table_mappings import TableMappings
from kodoctl.database.postgres import DatabaseError
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.binary.message_reader import Unread, read_all, read_facts
from kodoctl.pulsar.session import Session
from kodoctl.topology import defaults
from kodoctl.topology.change_sources import verification_slot

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.loaded_topology import LoadedTopology

_MOST: Final = 300_000  # rows of the log in one verification; a transaction is always read whole
_FETCH: Final = 2_000  # of them at a time
_POLL: Final = 0.2  # seconds between two looks at the position of the source
_SLOT: Final = """
SELECT confirmed_flush_lsn::text, wal_status IS NOT DISTINCT FROM 'lost',
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""
_COVERED: Final = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
_CHANGES: Final = """
SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""


_LEFT_OUT: Final = (
    "the log does not repeat a large value of it, and the source leaves it out if a later commit deleted the row"
)


class SlotState(NamedTuple):
    """State of the verifier's slot. `position`: up to where each commit is proved; `kept`: bytes of log that the server
    keeps because of it; `is_lost`: the server has removed log that the slot needs.
    """

    position: int
    kept: int
    is_lost: bool


class Verification(NamedTuple):
    """One verification: the log from `start` to `end`. `proof`: None: the verifier's slot was made by this call, and has
    no log yet. `is_whole`: False if the log has more than one call reads. `slot`: as it is afterwards.
    """

    start: int
    end: int
    proof: Proof | None
    is_whole: bool
    slot: SlotState


class _LogPart(NamedTuple):
    """The log up to `end`: the messages that it requires. `is_whole`: it has no more changes than one reading takes."""

    end: int
    expected: dict[Position, RequiredMessage]
    is_whole: bool


class SourceVerifier:
    """Verifier of one source. `environ` has the variable with the address of its database. Methods raise KodoctlError."""

    def __init__(
        self, topology: LoadedTopology, source: ChangeSource, connection: Connection, environ: Mapping[str, str]
    ) -> None:
        self._topology, self._source, self._connection = topology, source, connection
        self._database = SourceDatabase(source, owner_of(topology, source, connection), environ)
        self.slot = verification_slot(source.slot)

    def verify(self, wait: float, accepted: int | None = None) -> Verification:
        """Reads the log and the topics, and moves the verifier's slot up to where each commit is stored once. Makes the
        slot if there is none. `wait`: seconds to wait for commits that the source has not reported as stored;
        `accepted`: position up to which commits that are not stored once were accepted, None: none.
        """
        with ExitStack() as ends:
            queries = ends.enter_context(self._connected())
            if (state := self._state(queries)) is None:
                self._make(queries)
                made = self._state(queries)
                assert made is not None
                return Verification(made.position, made.position, None, is_whole=True, slot=made)
            if state.is_lost:
                return Verification(state.position, state.position, None, is_whole=False, slot=state)
            if accepted is not None:
                self._advance(queries, state, accepted)
                state = self._state(queries) or state
            client = ends.enter_context(closing(SequencedClient(self._connection)))
            system = identity_of(queries).partition("/")[0]
            topics = SourceTopics(self._connection, self._topology, self._source, system, client)
            part = self._read_log(queries, topics)
            covered = self._await_covered(queries, max((one.end for one in part.expected.values()), default=0), wait)
            session = ends.enter_context(Session(self._connection))
            stored = _Topics(session, topics, self._topology, id_prefix(self._source.slot, system))
            proof = prove(stored.read(state.position, part, covered))
            self._advance(queries, state, proof.end)
            return Verification(state.position, part.end, proof, part.is_whole, self._state(queries) or state)

    def end(self) -> bool:
        """Drops the verifier's slot. Returns False if there was none."""
        with self._connected(needs_slot=False) as queries:
            if self._state(queries) is None:
                return False
            queries.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
            return True

    @contextmanager
    def _connected(self, *, needs_slot: bool = True) -> Iterator[Any]:
        """Context with a connection for statements. Errors of the database become ClusterError (K794). `needs_slot`: the
        source has to have its slot.
        """
        try:
            with self._database.connect() as queries:
                self._database.check_identity(identity_of(queries))
                if not needs_slot:
                    self._database.check_owner(queries)
                elif self._database.slot_position(queries) is None:
                    raise self._problem(f"slot {self._source.slot} does not exist: `kodo-consumer source run` makes it")
                yield queries
        except (DatabaseError, BrokenMessageError) as problem:
            raise self._problem(str(problem)) from None

    def _problem(self, detail: str) -> ClusterError:
        return ClusterError(error("K794", "source cannot be verified", f"source {self._source.name}: {detail}"))

    def _state(self, queries: Any) -> SlotState | None:
        found = queries.execute(_SLOT, [self.slot]).fetchone()
        return None if found is None else SlotState(read_lsn(found[0]), int(found[2]), bool(found[1]))

    def _make(self, queries: Any) -> None:
        """Makes the verifier's slot at the position of the source."""
        queries.execute("SELECT pg_copy_logical_replication_slot(%s, %s, false)", [self._source.slot, self.slot])

    def _advance(self, queries: Any, state: SlotState, to: int) -> None:
        if to > state.position:
            queries.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.slot, lsn_text(to)])

    def _await_covered(self, queries: Any, wanted: int, seconds: float) -> int:
        """Waits until the source has reported everything up to `wanted` as stored. Returns its position."""
        until = time.monotonic() + seconds
        while True:
            found = queries.execute(_COVERED, [self._source.slot]).fetchone()
            covered = read_lsn(found[0]) if found and found[0] else 0
            if covered >= wanted or time.monotonic() >= until:
                return covered
            time.sleep(_POLL)

    def _read_log(self, queries: Any, topics: SourceTopics) -> _LogPart:
        """Reads the messages that the log requires, up to its present end."""
        tables = TableMappings(self._source, self._database, queries, lambda ground: topics.of(ground).target)
        end = read_lsn(queries.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0])
        expected: dict[Position, RequiredMessage] = {}
        open_: dict[Position, RequiredMessage] = {}
        lsn = place = at = rows = last = 0
        for data in self._changes(end):
            rows += 1
            match read_message(data):
                case Begin(lsn, at):
                    place, open_ = 0, {}
                case Relation() as relation:
                    tables.on_relation(relation)
                case RowChange() as change:
                    for number, one in enumerate(_required(tables, topics, change, Position(lsn, place), at)):
                        open_[Position(lsn, place + number)] = one
                    place += PLACES
                case Commit(last):
                    expected |= {where: one._replace(end=last) for where, one in open_.items()}
                case _:
                    pass
        return _LogPart(last if rows >= _MOST else end, expected, rows < _MOST)

    def _changes(self, end: int) -> Iterator[bytes]:
        """Yields the messages of pgoutput up to a position, over a connection of its own. They stay in the slot."""
        with (
            self._database.connect() as connection,
            connection.transaction(),
            connection.cursor(name="kodo_log") as rows,
        ):
            rows.itersize = _FETCH
            rows.execute(_CHANGES, [self.slot, lsn_text(end), _MOST, f'"{self._source.publication}"'])
            yield from (data for (data,) in rows)


def _required(
    tables: TableMappings, topics: SourceTopics, change: RowChange, position: Position, time_ms: int
) -> Iterator[RequiredMessage]:
    """Yields the messages that a change requires. What has to be known of a message for that is its partition."""
    if (found := tables.of(change)) is None:
        return
    mapping, name, change = found
    doubt = _LEFT_OUT if mapping.reads_table(change) else ""  # the row may be another one by now
    try:
        for message in mapping.messages(change):
            placed = topics.place(message, position, time_ms)
            yield RequiredMessage(0, time_ms, name, placed.ready.partitions[placed.partition], doubt)
            position = position._replace(place=position.place + 1)
    except GoneError:
        for _ in range(mapping.count(change)):
            yield RequiredMessage(0, time_ms, name, "", doubt)
    except UsageError as problem:
        yield RequiredMessage(0, time_ms, name, "", f"the topic refuses it: {problem.diagnostics[0].detail}")


class _Topics:
    """Stored messages of a source. `prefix`: see `id_prefix`."""

    def __init__(self, session: Session, topics: SourceTopics, topology: LoadedTopology, prefix: str) -> None:
        self._session, self._topics, self._topology, self._prefix = session, topics, topology, prefix

    def read(self, start: int, part: _LogPart, covered: int) -> ProofInputs:
        """Reads the copies of the messages in a part of the log that begins at `start`. Without such messages no topic
        is read.
        """
        stored, spans = Counter[Position](), list[Span]()
        if part.expected:
            since = min(one.time for one in part.expected.values())
            for partition in self._partitions():
                for one in stored_since(self._session, partition, self._prefix, since):
                    if isinstance(one, Span):
                        spans.append(one)
                    elif not one.is_snapshot:
                        stored[one] += 1
        reading = ProofInputs(start, part.end, part.expected, stored, covered, spans, {})
        oldest = {partition: self._oldest(partition) for partition in without_copy(reading)}
        return replace(reading, oldest=oldest)

    def _partitions(self) -> Iterator[str]:
        for ground in self._topics.grounds:
            for level in defaults.active_levels(self._topology.spec.topics[ground]):
                yield from self._topics.of(ground, level).partitions

    def _oldest(self, partition: str) -> int | None:
        """Time of the oldest stored message, in ms since the epoch; None: the partition stores none."""
        facts = read_facts(self._session.admin, partition)
        unread = Unread(self._session.admin, self._session.client)
        for message in read_all(self._session.client, facts, unread):
            return message.publish_time
        return None
