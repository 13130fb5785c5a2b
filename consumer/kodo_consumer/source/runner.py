"""Runner of a source: the loop from the database to the broker. It has one thread; answers come on other threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.adapters.pulsar.cluster_admin import applied_database, tenant_uuid
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodo_consumer.source.database import Event, Replication, SourceDatabase, SourceOwner, identity_of, snapshot_rows
from kodo_consumer.source.pgoutput import Begin, BrokenMessageError, Commit, Relation, RowChange, Truncate, read_message
from kodo_consumer.source.positions import PLACES, Position, lsn_text
from kodo_consumer.source.progress import OpenTransaction, Progress
from kodo_consumer.source.row_mapping import NO_MESSAGE, GoneError
from kodo_consumer.source.sender import Numbering, SourceSender, UnconfirmedMessage
from kodo_consumer.source.table_mappings import TableMappings, at
from kodoctl.database.postgres import DatabaseError
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many
from kodoctl.topology.names import NamespaceName

if TYPE_CHECKING:
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.loaded_topology import LoadedTopology

log = logging.getLogger("kodo.source")
_FIRST: Final = "it has not connected yet"
_OPEN: Final = "the server makes the slot when all open transactions have ended"
_WINDOW: Final = 10_000  # messages without a receipt
_TURN: Final = 1_000  # messages of the stream in one turn
_WAIT: Final = 0.2  # seconds that a turn waits for the stream
_CONFIRM_EVERY: Final = 0.5  # seconds
_MARK_EVERY: Final = 60.0  # seconds
_COVER_MOVED: Final = 2.0  # seconds between two marks of what is stored, while there are messages
_COVER_IDLE: Final = 60.0  # and while there are none
_SILENT: Final = 10.0  # seconds without a receipt after which the broker is in trouble
_MOST_PAUSE: Final = 30.0  # seconds between two tries
_MARKS_WITHIN: Final = 20.0  # seconds that the last marks are waited for


class EndedError(Exception):
    """Raised inside a run because the event that `serve` got is set: the run ends, and nothing is wrong."""


@dataclass(slots=True)
class _Life:
    """State that ends with the connections. `asked`: the run is to end; `out`: messages without a receipt; `failure`:
    why one of them is not stored; `transaction`, `lsn`, `place`, `time`: of the change that is read now. Times are
    monotonic, but for `time`.

    `mappings`: None: no sender is open yet; `unpublished`: why changes of a table do not come, "": all come. `covered`:
    position that a stored mark names, and that alone is reported to the server; `covering`: the next such mark is on
    its way; `moved`: there were changes since.
    """

    progress: Progress = field(default_factory=Progress)
    out: set[UnconfirmedMessage] = field(default_factory=set)
    failure: str = ""
    mappings: TableMappings | None = None
    unpublished: str = ""
    transaction: OpenTransaction | None = None
    lsn: int = 0
    place: int = 0
    time: int = 0
    server_end: int = 0
    covered: int = 0
    covering: bool = False
    moved: bool = False
    covered_at: float = -math.inf
    confirmed_at: float = field(default_factory=monotonic)
    marked_at: float = field(default_factory=monotonic)
    answered_at: float = field(default_factory=monotonic)
    replication: Replication | None = None
    asked: threading.Event = field(default_factory=threading.Event)

    def map_tables(self, mappings: TableMappings) -> None:
        """Takes the mappings of this life."""
        self.mappings = mappings

    def on_sign_of_life(self, end: int) -> None:
        """The server has sent everything up to a position."""
        self.server_end = end


class Source:
    """Runs one source. One thread calls `serve`. `counts`, since the start: messages `sent` and `known` (the broker had
    them already); changes `superseded` (left out, because a later commit deleted the row); `truncates`;
    `schema_changes`; `restarts` (new connections after a failure). `lag`: seconds between the last commit and its
    receipt. `turned_at`: monotonic time of the last turn. `trouble`: reason why it does not work now; "": it works.
    `accepted_gap`: position of a slot that somebody moved, to go on without the changes before it; None: no gap is
    accepted.
    """

    def __init__(
        self,
        topology: LoadedTopology,
        source: ChangeSource,
        connection: Connection,
        environ: Mapping[str, str],
        signer: Signer | None = None,
        *,
        accepted_gap: int | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.trouble = _FIRST
        self.lag = 0.0
        self.turned_at = time.monotonic()
        self._topology, self._source, self._connection, self._signer = topology, source, connection, signer
        self._database = SourceDatabase(source, owner_of(topology, source, connection), environ, accepted_gap)
        self._numbering = Numbering()
        self._answers: deque[tuple[UnconfirmedMessage, Unconfirmed | Rejected | None]] = deque()
        self._some = threading.Event()
        self._columns: dict[str, tuple[Any, ...]] = {}  # by table, as they were last
        self._refused: set[Position] = set()  # messages that the broker did not store
        self._life = _Life()

    @property
    def waiting(self) -> int:
        """Number of messages without a receipt."""
        return len(self._life.out)

    @property
    def confirmed(self) -> int:
        """Position in the database's log up to which all is stored: at first that of the slot, then of the last stored
        mark; 0: not known yet, as after each lost connection.
        """
        return self._life.covered

    def serve(self, asked_to_end: threading.Event, *, drain_timeout: float) -> None:
        """Sends changes until `asked_to_end` is set; then waits at most `drain_timeout` seconds for receipts, and 20 s
        each for those of the last marks. A database or broker that fails is tried again. Raises KodoctlError for
        anything that only a person can mend, after the same wait for the messages before it; it does not wait if the
        broker refused a message.
        """
        failures = 0
        while not asked_to_end.is_set():
            self._life = _Life(asked=asked_to_end)
            began = time.monotonic()
            try:
                self._run(drain_timeout)
            except EndedError:
                if self._life.replication is None and self._source.spec.snapshot:
                    log.warning("the snapshot was not sent whole: the next run begins it again")
            except (DatabaseError, ClusterError, BrokenMessageError, OSError) as problem:
                self._answers.clear()
                self._void_numbers()
                failures = 1 if time.monotonic() - began > _MOST_PAUSE else failures + 1
                pause = min(_MOST_PAUSE, 2.0 ** min(failures - 2, 8))
                self.trouble = one_line(str(problem), 300)
                self.counts["restarts"] += 1
                log.error("next try in %.1f s: %s", pause, self.trouble)  # noqa: TRY400
                self.turned_at = time.monotonic()
                asked_to_end.wait(pause)

    # ---- one life of the connections

    def _run(self, drain_timeout: float) -> None:
        with ExitStack() as ends:
            queries = ends.enter_context(self._database.connect())
            replication = ends.enter_context(self._database.replicate())
            self._database.check_identity(identity_of(queries), replication.identity())
            position = self._database.slot_position(queries)
            sender = SourceSender(
                connection=self._connection,
                topology=self._topology,
                source=self._source,
                system=replication.system(),
                numbering=self._numbering,
                signer=self._signer,
                out=self._life.out,
                on_answer=self._on_answer,
                settle=self._settle,
                keep_alive=self._keep_alive,
            )
            ends.callback(sender.close)
            self._life.map_tables(TableMappings(self._source, self._database, queries, sender.target))
            made = self._make_slot(replication, queries, sender) if position is None else None
            replication.start()
            sender.open_coverage()
            self._life.covered = position or made or 0
            self._life.replication = replication
            if position is not None:
                covered = sender.read_coverage(position, self._database.log_end(queries))
                self._database.check_position(position, covered)
                sender.send_begin(position)
            elif not self._source.spec.snapshot:
                sender.send_begin(made or 0)
            self._works()
            self._check_published(queries)
            names = ", ".join(table.name for table in self._source.tables)
            log.info("changes of %s, slot %s", names, self._source.slot)
            try:
                self._stream(replication, queries, sender)
            except EndedError:
                self._drain(sender, drain_timeout)
            except UsageError:
                if not self._life.failure:
                    self._drain(sender, drain_timeout)
                raise

    def _make_slot(self, replication: Replication, queries: Any, sender: SourceSender) -> int:
        """Makes the slot, after the rows that are there are sent. Returns its position."""
        if not self._source.spec.snapshot:
            made = replication.create_slot(self._on_open_transactions)
            log.info("slot %s is made at %s", self._source.slot, lsn_text(made))
            return made
        self._database.check_room(queries)
        lsn, snapshot = replication.create_snapshot(self._on_open_transactions)
        log.info("snapshot at %s: the rows that are there are sent first", lsn_text(lsn))
        self._life.time = time.time_ns() // 1_000_000
        self._life.transaction, self._life.lsn, self._life.place = self._life.progress.begin(self._life.time), lsn, 0
        before = self.counts["sent"]
        for number, table in enumerate(self._source.tables):
            if table.spec.outbox is not None:
                log.info("%s is an outbox: rows that are there already are sent as well", table.name)
            for row in snapshot_rows(queries, table, -1 - number, snapshot):
                if isinstance(row, Relation):
                    self._on_relation(row)
                else:
                    self._on_change(row, sender, is_snapshot=True)
                if len(self._life.out) >= _WINDOW:
                    self._await_room()
        self._settle()
        sender.send_marks(end=False)
        sender.open_coverage()
        sender.send_coverage(0, lsn)
        self._settle()
        replication.keep_slot()
        if self._life.transaction is not None:
            self._life.transaction.end, self._life.transaction = lsn, None
        log.info("snapshot is sent: %s", many(self.counts["sent"] - before, "row"))
        return lsn

    def _on_open_transactions(self) -> None:
        """Notes that the source is alive while the server waits for transactions of others. Raises EndedError if the
        source is to end.
        """
        self._check_end()
        self.turned_at = time.monotonic()
        if self.trouble != _OPEN:
            log.info(_OPEN)
        self.trouble = _OPEN

    def _stream(self, replication: Replication, queries: Any, sender: SourceSender) -> None:
        while True:
            self._check_end()
            self.turned_at = time.monotonic()
            if len(self._life.out) >= _WINDOW:
                self._some.wait(0.05)
            else:
                for event in replication.events(_WAIT, _TURN):
                    self._on_event(event, sender)
            self._read_answers()
            self._cover(sender)
            self._confirm(replication)
            if self.turned_at - self._life.marked_at >= _MARK_EVERY:
                self._life.marked_at = self.turned_at
                self._settle()
                sender.send_marks(end=False)
                self._check_published(queries)

    def _check_published(self, queries: Any) -> None:
        """Sets `unpublished`, and so `trouble`, while a table of the file is not published: its changes are lost."""
        missing = self._database.unpublished(queries)
        self._life.unpublished = ""
        if missing:
            self._life.unpublished = f"{', '.join(missing)} is not in the publication: its changes are lost until it is"
            log.error("%s; `kodoctl plan FILE` shows why", self._life.unpublished)

    def _drain(self, sender: SourceSender, seconds: float) -> None:
        """Waits for receipts, confirms, and sends the last marks, which say that the numbers of this process are over,
        and which of them are void, because their messages have no receipt.
        """
        replication = self._life.replication
        if replication is None or not self._await_answers(seconds):
            log.warning("some messages have no receipt: the next run sends them again, and the broker stores each once")
        if replication is not None:
            self._cover(sender, at_once=True)
            self._await_answers(_MARKS_WITHIN)
            self._confirm(replication, at_once=True)
        self._void_numbers()
        sender.send_marks(end=True)
        if not self._await_answers(_MARKS_WITHIN):
            log.warning("the last marks have no receipt: nobody can tell whether all messages came")

    # ---- messages of the stream

    def _on_event(self, event: Event, sender: SourceSender) -> None:
        if event.data is None:
            self._life.on_sign_of_life(event.end)
            return
        match read_message(event.data):
            case RowChange() as change:
                self._on_change(change, sender)
            case Begin(lsn, at):
                self._life.transaction, self._life.lsn, self._life.place, self._life.time = (
                    self._life.progress.begin(at),
                    lsn,
                    0,
                    at,
                )
            case Commit(end):
                assert self._life.transaction is not None
                self._life.transaction.end, self._life.transaction = end, None
            case Relation() as relation:
                self._on_relation(relation)
            case Truncate(relations):
                self.counts["truncates"] += 1
                assert self._life.mappings is not None
                names = ", ".join(filter(None, map(self._life.mappings.name_of, relations)))
                text = "TRUNCATE of %s at %s: no message says that its rows are gone"
                log.warning(text, names, lsn_text(self._life.lsn))
            case None:
                pass

    def _on_relation(self, relation: Relation) -> None:
        assert self._life.mappings is not None
        name = self._life.mappings.on_relation(relation)
        if not name:
            return
        columns = tuple((column.name, column.type) for column in relation.columns)
        before = self._columns.get(name)
        if before is not None and before != columns:
            self.counts["schema_changes"] += 1
            difference = _difference(before, columns)
            log.warning("%s has other columns from %s on: %s", name, lsn_text(self._life.lsn), difference)
        self._columns[name] = columns

    def _on_change(self, change: RowChange, sender: SourceSender, *, is_snapshot: bool = False) -> None:
        assert self._life.mappings is not None
        found, transaction = self._life.mappings.of(change), self._life.transaction
        place = self._life.place
        self._life.place += PLACES
        if found is None or transaction is None:
            self._life.mappings.on_stranger(change.relation, self._life.lsn)
            return
        mapping, name, change = found
        self._life.moved = True
        position = Position(self._life.lsn, place, is_snapshot)
        try:
            for message in mapping.messages(change):
                if sender.send(message, position, self._life.time, transaction):
                    self.counts["sent"] += 1
                else:
                    self._on_known(position)
                position = position._replace(place=place + 1)
        except GoneError:
            self.counts["superseded"] += 1
            text = "%s at %s: left out, its row was deleted by a later commit, and a large value with it"
            log.warning(text, name, position)
        except UsageError as problem:
            raise UsageError(*(at(one, name, position) for one in problem.diagnostics)) from None

    def _on_known(self, position: Position) -> None:
        if position in self._refused:
            detail = f"the broker refused {position}, and stored later messages: drop the slot to send all rows again"
            raise UsageError(error("K792", "position of a source is lost", detail))
        self.counts["known"] += 1

    # ---- receipts

    def _on_answer(self, token: UnconfirmedMessage, receipt: Unconfirmed | Rejected | None) -> None:
        """Keeps an answer for the next turn. Runs on a thread of the client library."""
        self._answers.append((token, receipt))
        if receipt is not None or not self._some.is_set():
            self._some.set()

    def _read_answers(self) -> None:
        """Handles the answers that came. Raises ClusterError for a message that is not stored, UsageError if it never
        will be.
        """
        self._some.clear()
        last = None
        for _ in range(len(self._answers)):
            token, receipt = self._answers.popleft()
            self._life.out.discard(token)
            if receipt is None:
                if token.transaction is not None:
                    token.transaction.out -= 1
                    last = token.transaction
                elif token.mark is not None:
                    token.sequencer.marked_sent(token.mark)
                elif token.covers:
                    self._life.covered, self._life.covering = max(self._life.covered, token.covers), False
                continue
            if token.number is not None:
                token.sequencer.give_up(token.number)
            if token.begins:
                self._life.failure = f"{token.partition}: {receipt.reason}"
                continue
            if token.position is None:
                self._life.covering = self._life.covering and not token.covers
                continue
            if isinstance(receipt, Rejected) or receipt.reason.startswith("ProducerBlocked"):
                self._refused.add(token.position)
            self._life.failure = f"{token.partition}: {receipt.reason}"
            if isinstance(receipt, Rejected):
                detail = f"{token.partition}, {token.position}: {receipt.reason}"
                raise UsageError(error("K791", NO_MESSAGE, detail))
        if last is not None:
            self._life.answered_at = time.monotonic()
            self.lag = max(0.0, time.time() - last.time / 1000)
        if self._life.failure:
            raise ClusterError(error("K715", "message without receipt", self._life.failure))
        if not self._life.out:
            self._life.answered_at = time.monotonic()
        silent = time.monotonic() - self._life.answered_at
        if silent > _SILENT:
            if not self.trouble:
                log.warning("the broker has stored nothing for %.0f s; %s wait", silent, many(self.waiting, "message"))
            self.trouble = f"the broker has stored nothing for {silent:.0f} s"
        elif self.trouble != self._life.unpublished:
            self._works()

    def _works(self) -> None:
        if self.trouble and self.trouble not in {_FIRST, _OPEN, self._life.unpublished}:
            log.warning("it works again")
        self.trouble = self._life.unpublished

    def _await_room(self) -> None:
        while len(self._life.out) >= _WINDOW:
            self._check_end()
            self._some.wait(0.05)
            self._keep_alive()

    def _settle(self) -> None:
        """Waits until every message has its receipt. Raises as `_read_answers`."""
        while self._life.out:
            self._check_end()
            self._some.wait(0.05)
            self._keep_alive()

    def _check_end(self) -> None:
        if self._life.asked.is_set():
            raise EndedError

    def _keep_alive(self) -> None:
        self.turned_at = time.monotonic()
        self._read_answers()
        if self._life.replication is not None:
            self._confirm(self._life.replication)

    def _await_answers(self, seconds: float) -> bool:
        """Waits at most `seconds` for all receipts. Returns False if some are missing."""
        deadline = time.monotonic() + seconds
        while self._life.out and time.monotonic() < deadline:
            self._some.wait(0.05)
            self._keep_alive()
        return not self._life.out

    def _confirm(self, replication: Replication, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or replication.must_answer or now - self._life.confirmed_at >= _CONFIRM_EVERY:
            self._life.confirmed_at = now
            replication.confirm(self._life.covered)

    def _cover(self, sender: SourceSender, *, at_once: bool = False) -> None:
        """Sends a mark with the position up to which all is stored, if one is due. Only the position of a stored mark
        is reported to the server, so a slot that is further on than the last mark was moved by somebody else.
        """
        life, now = self._life, time.monotonic()
        end = life.progress.advance(life.server_end)
        pause = _COVER_MOVED if life.moved else _COVER_IDLE
        if end > life.covered and not life.covering and (at_once or now - life.covered_at >= pause):
            life.covered_at, life.covering = now, True
            life.moved = bool(life.out) or life.transaction is not None
            sender.send_coverage(life.covered, end)

    def _void_numbers(self) -> None:
        """The numbers of messages without a receipt become void: these messages are sent again with others."""
        for token in self._life.out:
            if token.number is not None:
                token.sequencer.give_up(token.number)


def owner_of(topology: LoadedTopology, source: ChangeSource, connection: Connection) -> SourceOwner:
    """Owner of a source: its topology, and functions that read the cluster when they are called."""
    namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
    return SourceOwner(
        topology.spec.name,
        str(namespace),
        partial(tenant_uuid, connection, topology.spec.tenant),
        partial(applied_database, connection, namespace, topology.spec.name, source.spec.database),
    )


def _difference(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    gone, new = (
        [name for name, _ in one if (name, _) not in other] for one, other in ((before, after), (after, before))
    )
    return (
        "; ".join(f"{what} {', '.join(names)}" for what, names in (("without", gone), ("with", new)) if names)
        or "another order"
    )
