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
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.adapters.pulsar.sequenced_producers import SequencedClient
from kodo_consumer.source.commit_proof import CommitStatus, Copy, Proof, ProofInputs, RequiredMessage, prove
from kodo_consumer.source.database import SourceDatabase, identity_of
from kodo_consumer.source.pgoutput import Begin, BrokenMessageError, Commit, Relation, RowChange, read_message
from kodo_consumer.source.positions import PLACES, Position, lsn_text, read_lsn
from kodo_consumer.source.row_mapping import GoneError
from kodo_consumer.source.runner import owner_of
from kodo_consumer.source.sender import SourceTopics
from kodo_consumer.source.stored_messages import read_back
from kodo_consumer.source.table_mappings import TableMappings
from kodoctl.database.postgres import DatabaseError
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.session import Session
from kodoctl.topology.change_sources import verification_slot

if TYPE_CHECKING:
    from kodo_consumer.source.identity import PartitionCopies, Span, System
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.loaded_topology import LoadedTopology

_MOST: Final = 300_000  # rows of the log in one verification; a transaction is always read whole
_FETCH: Final = 2_000  # of them at a time
_SKEW_MS: Final = 300_000  # how far back second copies are looked for, by the clocks of senders
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
    """State of the verifier's slot. `position`: up to where each commit is proved or accepted; `kept`: bytes of log
    that the server keeps because of it; `is_lost`: the server has removed log that the slot needs.
    """

    position: int
    kept: int
    is_lost: bool


class AcceptedCommits(NamedTuple):
    """Commits that `--accept` passed over, up to the position `end`. `commits`: their numbers by status, with those
    that are stored once; `is_whole`: False if the log has more than one call reads: there are at least so many.
    """

    end: int
    commits: Mapping[CommitStatus, int]
    is_whole: bool


class Verification(NamedTuple):
    """One verification: the log from `start` to `end`. `proof`: None if nothing was read: the verifier's slot was made
    by this call, or the server has removed log that it needs (`slot.is_lost`). `is_whole`: False if the log has more
    than one call reads, or was removed. `slot`: as it is afterwards; `accepted`: None: nothing was accepted.
    """

    start: int
    end: int
    proof: Proof | None
    is_whole: bool
    slot: SlotState
    accepted: AcceptedCommits | None = None


class _LogPart(NamedTuple):
    """The log up to `end`, with the messages that it requires. `silent`: the table of a change that requires none, one
    for each commit; `is_whole`: it has no more changes than one reading takes.
    """

    end: int
    expected: dict[Position, RequiredMessage]
    silent: dict[Position, str]
    is_whole: bool


class SourceVerifier:
    """Verifier of one source. `environ` has the variable with the address of its database; `signer`: verifies the
    source's messages, None: they are not signed. Methods raise KodoctlError.
    """

    def __init__(
        self,
        topology: LoadedTopology,
        source: ChangeSource,
        connection: Connection,
        environ: Mapping[str, str],
        signer: Signer | None = None,
    ) -> None:
        self._topology, self._source, self._connection, self._signer = topology, source, connection, signer
        self._database = SourceDatabase(source, owner_of(topology, source, connection), environ)
        self.slot = verification_slot(source.slot)

    def verify(self, wait: float, accepted: int | None = None) -> Verification:
        """Reads the log and the topics, and moves the verifier's slot up to where each commit is stored once, or to
        `accepted` if that is later. Makes the slot if there is none, and reads and accepts nothing then, nor if it has
        lost its log; else reads about 300,000 rows at most, and as many up to `accepted`. `wait`: seconds to wait for
        commits that the source has not reported as stored; `accepted`: position up to which a person accepted commits
        that are not stored once, None: none were accepted.
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
            end = self._database.log_end(queries)
            if accepted is not None:
                _check_accepted(accepted, state, end)
            client = ends.enter_context(closing(SequencedClient(self._connection)))
            topics = SourceTopics(
                self._connection, self._topology, self._source, self._system(queries), client, self._signer
            )
            session = ends.enter_context(Session(self._connection))
            passed = None
            if accepted is not None:
                part = self._read_log(queries, topics, accepted)
                proof = prove(_read_topics(session, topics, state.position, part, self._covered(queries)))
                passed = AcceptedCommits(accepted, proof.commits, part.is_whole)
                self._advance(queries, state, accepted)
                state = self._state(queries) or state
            part = self._read_log(queries, topics, end)
            covered = self._await_covered(queries, max((one.end for one in part.expected.values()), default=0), wait)
            proof = prove(_read_topics(session, topics, state.position, part, covered))
            self._advance(queries, state, proof.end)
            after = self._state(queries) or state
            return Verification(state.position, part.end, proof, part.is_whole, after, passed)

    def end(self) -> bool:
        """Drops the verifier's slot on the database. Returns False, without effect, if there is no such slot."""
        with self._connected(needs_slot=False) as queries:
            if self._state(queries) is None:
                return False
            queries.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
            return True

    @contextmanager
    def _connected(self, *, needs_slot: bool = True) -> Iterator[Any]:
        """Context with a connection for statements. Errors of the database become ClusterError (K794). `needs_slot`:
        the source has to have its slot.
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

    def _system(self, queries: Any) -> System:
        """The server, by a connection for replication."""
        with self._database.replicate() as replication:
            self._database.check_identity(identity_of(queries), replication.identity())
            return replication.system()

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

    def _covered(self, queries: Any) -> int:
        """Position up to which the source has reported everything as stored; 0: it has reported nothing."""
        found = queries.execute(_COVERED, [self._source.slot]).fetchone()
        return read_lsn(found[0]) if found and found[0] else 0

    def _await_covered(self, queries: Any, wanted: int, seconds: float) -> int:
        """Waits until the source has reported everything up to `wanted` as stored. Returns its position."""
        until = time.monotonic() + seconds
        while True:
            covered = self._covered(queries)
            if covered >= wanted or time.monotonic() >= until:
                return covered
            time.sleep(_POLL)

    def _read_log(self, queries: Any, topics: SourceTopics, end: int) -> _LogPart:
        """Reads the messages that the log requires, up to a position."""
        tables = TableMappings(self._source, self._database, queries, lambda ground: topics.of(ground).target)
        part = _LogPart(end, {}, {}, is_whole=True)
        unmapped: dict[int, RequiredMessage] = {}
        open_: dict[Position, RequiredMessage] = {}
        silent = ""
        lsn = place = at = rows = last = 0
        for data in self._changes(end):
            rows += 1
            match read_message(data):
                case Begin(lsn, at):
                    place, open_, silent = 0, {}, ""
                case Relation() as relation:
                    unmapped.pop(relation.id, None)
                    try:
                        tables.on_relation(relation)
                    except UsageError as problem:
                        unmapped[relation.id] = _refused(problem, relation.name, "", at)
                case RowChange() as change:
                    count = len(open_)
                    if (refused := unmapped.get(change.relation)) is not None:
                        open_[Position(lsn, place)] = refused._replace(time=at)
                    else:
                        for number, one in enumerate(_required(tables, topics, change, Position(lsn, place), at)):
                            open_[Position(lsn, place + number)] = one
                    if len(open_) == count and not silent:
                        silent = tables.name_of(change.relation) or "a table that is not in the file"
                        part.silent[Position(lsn, place)] = silent
                    place += PLACES
                case Commit(last):
                    part.expected.update((where, one._replace(end=last)) for where, one in open_.items())
                case _:
                    pass
        return part if rows < _MOST else part._replace(end=last, is_whole=False)

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


def _check_accepted(accepted: int, state: SlotState, end: int) -> None:
    """Raises UsageError for a position to which `--accept` cannot go. `end`: of the log."""
    at = lsn_text(accepted)
    if accepted > end:
        detail = f"--accept {at}: the log ends at {lsn_text(end)}, and nobody knows what is committed after it"
    elif accepted < state.position:
        detail = f"--accept {at}: each commit up to {lsn_text(state.position)} is proved or accepted already"
    else:
        return
    raise UsageError(error("K004", "wrong value", detail))


def _required(
    tables: TableMappings, topics: SourceTopics, change: RowChange, position: Position, time_ms: int
) -> Iterator[RequiredMessage]:
    """Yields the messages that a change requires, without the position after its commit. A message that cannot be
    mapped or placed has a `doubt`, and no partition.
    """
    if (found := tables.of(change)) is None:
        return
    mapping, name, change = found
    doubt = _LEFT_OUT if mapping.reads_table(change) else ""  # the row may be another one by now
    ground = ""
    try:
        for message in mapping.messages(change):
            ground = message.topic
            placed = topics.place(message, position, time_ms)
            yield RequiredMessage(0, time_ms, name, ground, placed.ready.partitions[placed.partition], doubt)
            position = position._replace(place=position.place + 1)
    except GoneError:
        for _ in range(mapping.count(change)):
            yield RequiredMessage(0, time_ms, name, mapping.topic, "", doubt)
    except UsageError as problem:
        yield _refused(problem, name, ground, time_ms)


def _refused(problem: UsageError, table: str, ground: str, time_ms: int) -> RequiredMessage:
    """Message that a change requires, and the present file or table refuses. `ground`: "": its topic is unknown."""
    return RequiredMessage(
        0, time_ms, table, ground, "", f"the present file refuses it: {problem.diagnostics[0].detail}"
    )


def _read_topics(session: Session, topics: SourceTopics, start: int, part: _LogPart, covered: int) -> ProofInputs:
    """Reads the copies of the messages in a part of the log that begins at `start`. If the part requires no message,
    only the marks are read; if it has no change, nothing is read.
    """
    identity, expected = topics.identity, part.expected
    stored, doubts, strangers = Counter[Copy](), dict[Copy, str](), Counter[str]()
    first: dict[str, Position | None] = {}
    spans: list[Span] = []
    if changes := [*expected, *part.silent]:
        before = min(changes).lsn
        marks = read_back(
            session, topics.home, identity, lambda found, _: any(one.start < one.end <= before for one in found.spans)
        )
        spans = marks.spans
        identity.learn(span.routing for span in spans)
    if expected:
        wanted: dict[str, set[Position]] = {}
        for place, one in expected.items():
            if one.end <= covered and not one.doubt:
                wanted.setdefault(one.partition, set()).add(place)
        since = min(one.time for one in expected.values()) - _SKEW_MS
        least = min(expected)
        for ground, partition in topics.partitions():
            is_enough = partial(_has_all, wanted.get(partition, set()), least, since)
            copies = read_back(session, partition, identity, is_enough, start=start)
            for place, count in copies.changes.items():
                stored[ground, place] += count
            doubts |= {(ground, place): why for place, why in copies.doubts.items()}
            strangers += copies.strangers
            first[partition] = copies.first
    return ProofInputs(
        start, part.end, expected, stored, covered, spans, first, identity.routing, doubts, strangers, part.silent
    )


def _has_all(wanted: set[Position], least: Position, since: int, copies: PartitionCopies, began: int) -> bool:
    """True if a reading has the copies of all `wanted` changes, and begins before the position `least`, or before the
    time `since` by the clocks of senders: only second copies can be further back. A reading that lacks a copy goes on
    to the first message of the partition. `began`: publish time of the first message that was read, 0: there is none.
    """
    is_far = began < since or (copies.first is not None and copies.first < least)
    return is_far and wanted <= copies.changes.keys() | copies.doubts.keys()
