# adapter: runs Spark
"""Incremental audit: a verdict on everything that landed, in a time that depends on new and open messages only. A
settled message is judged again only if a new row refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kodo_pipeline.audit.audit_inputs import with_ledger_note
from kodo_pipeline.audit.audit_state import basis_of, dead_cursors, landed_rows
from kodo_pipeline.audit.job import classify_landing
from kodo_pipeline.audit.judged_rows import CarriedRows
from kodo_pipeline.audit.last_audit import StateProblem, UsableState, usable_state
from kodo_pipeline.audit.reopened_messages import MOST, LastAudit, RowsBefore, mentioned_messages, reopen_messages
from kodo_pipeline.audit.settlement import surprises
from kodo_pipeline.audit.state_writer import SPARK_FAILURES, StateBefore, StateWriter
from kodo_pipeline.evidence.audit_evidence import MessageStatus
from kodo_pipeline.landing.data_rewrite import small_rows
from kodo_pipeline.landing.state_tables import (
    DEAD_LETTERS,
    LETTERS_SEEN,
    MARKS,
    NUMBERS,
    OPEN_EVENTS,
    OPEN_RECORDS,
    SETTLED,
)
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS, Table
from kodo_pipeline.spark.concurrent_queries import run_queries
from kodoctl.errors import ClusterError, KodoctlError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.audit.audit_document import AuditBasis, AuditDocument
    from kodo_pipeline.audit.audit_inputs import AuditInputs
    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.audit.judged_rows import LandedTables
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot

_ASKED: Final = "it was asked for"
_SMALL: Final = "few rows have landed"
_SPOKEN: Final = (
    "what is new is about more than 10,000 settled messages, or about some that were removed or cannot be told apart"
)
_FEW: Final = 200_000  # rows that are judged anew in less time than what is settled of them is read and kept
_TURNS: Final = 4  # messages that are judged again may speak of others


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit. `run`: id of the audit's run; `full`: judge all rows, settled messages included; `few`: a
    landing in which at most this number of messages and audit records ever landed is judged as a whole, and no state is
    stored; `is_read_only`: store no state.
    """

    run: str
    full: bool = False
    few: int = _FEW
    is_read_only: bool = False


class JudgedLanding(NamedTuple):
    """Result of an audit. `tables`: all landed rows, of a small landing without the column `payload`; `result`: the
    rows that were judged; `document`: the report, whose counts include settled messages.
    """

    tables: LandedTables
    result: AuditResult
    document: AuditDocument


def judge_landing(spark: SparkSession, landing: Landing, inputs: AuditInputs, options: AuditOptions) -> AuditDocument:
    """Audits `inputs`, and returns the report on everything that landed. Stores the state for the next audit in the
    landing, unless the landing has few rows, the options forbid it, or it cannot be stored (`judged.unsaved` in the
    report says why). Raises KodoctlError, such as K573 if files of the landing are missing or damaged, and exceptions
    of Spark.
    """
    with judged_landing(spark, landing, inputs, options) as judged:
        return judged.document


@contextmanager
def judged_landing(
    spark: SparkSession, landing: Landing, inputs: AuditInputs, options: AuditOptions
) -> Iterator[JudgedLanding]:
    """Context with the result of an audit (`judge_landing`), whose judged rows Spark caches until the block ends. If a
    finding is overdue, `inputs.delays` is asked in which partitions senders delayed all messages. If there are any, the
    audit is made once more with that knowledge, and the context has the second result; only the first audit stores the
    state. If the cluster does not answer, overdue messages stay doubts, and a note says so.
    """
    with ExitStack() as kept:
        judged = _Judge(spark, landing, inputs, options, kept).judged()
        overdue = {one["msg_topic"] for one in judged.document["findings"] if one["fate"] == MessageStatus.OVERDUE}
        if overdue and (delayed := _delayed(inputs, sorted(overdue), judged.document["notes"])):
            inputs = replace(inputs, bookings=replace(inputs.bookings, delayed=delayed))
            basis = judged.document["judged"]
            judged = _Judge(spark, landing, inputs, replace(options, is_read_only=True), kept).judged()
            judged.document["judged"] = basis
        with_ledger_note(judged.document, inputs.missing_ledger)
        yield judged


def _delayed(inputs: AuditInputs, topics: list[str], notes: list[str]) -> frozenset[tuple[str, int, str]]:
    """Asks `inputs.delays` about the topics. If that raises ClusterError, adds a note to `notes` and returns nothing."""
    try:
        return inputs.delays(topics)
    except ClusterError as problem:
        reason = " ".join(str(problem).split())
        notes.append(f"overdue messages may be delayed by their senders; the cluster did not say: {reason}")
        return frozenset()


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judge of one landing. `kept`: stack that ends the caching of judged rows in Spark when it is closed."""

    spark: SparkSession
    landing: Landing
    inputs: AuditInputs
    options: AuditOptions
    kept: ExitStack

    def judged(self) -> JudgedLanding:
        """Judges all rows of the landing if there are at most `options.few`, if `options.full` is set, or if the state
        of the last audit cannot be used; else only the rows that the last audit did not settle.
        """
        inputs, options = self.inputs, self.options
        if sum(landed_rows(inputs.snapshot.commits).values()) <= options.few:
            return self._few_rows()
        basis = basis_of(inputs.ground, inputs.keys)
        known = _ASKED if options.full else usable_state(self.landing, inputs.snapshot, basis)
        with ExitStack() as writing:
            writer = None if options.is_read_only else StateWriter(self.landing, inputs, options.run, writing)
            if isinstance(known, UsableState):
                try:
                    found = self._new_rows(known, writer)
                except (
                    KodoctlError,
                    *SPARK_FAILURES,
                ):  # files of the state are gone; of the landing's it is said again
                    found = StateProblem.NONE
                if not isinstance(found, str):
                    return found
                known = found
            return self._all_rows(known, writer)

    def _few_rows(self) -> JudgedLanding:
        """Judges all rows of a small landing. Spark caches the rows, without payloads, and their outcomes: planning
        each of twenty queries, and opening files, of which each batch adds one, takes longer than answering the query.
        """
        tables = self.inputs.tables
        events, transitions = self._persist(tables.events.drop("payload")), self._persist(tables.transitions)
        tables = replace(tables, events=events, transitions=transitions)
        judged = self.kept.enter_context(self._classify(tables))
        judged = replace(judged, verdicts=self._persist(judged.verdicts))
        document = judged.document()
        document["judged"] = _basis(_SMALL, 0, 0, "")
        return JudgedLanding(tables, judged, document)

    def _all_rows(self, why: str, writer: StateWriter | None) -> JudgedLanding:
        judged = self.kept.enter_context(self._classify(self.inputs.tables))
        with _kept_messages(judged, writer):
            document, totals = judged.counted()
            unsaved = "" if writer is None else writer.save(judged, totals, None)
        document["judged"] = _basis(why, 0, 0, unsaved)
        return JudgedLanding(self.inputs.tables, judged, document)

    def _new_rows(self, known: UsableState, writer: StateWriter | None) -> JudgedLanding | str:
        """Judges the rows that are new or that the last audit left open. Returns the reason as text if the audit must
        judge all rows instead.
        """
        carried = self._load_carried(known)
        events, transitions = (
            self.landing.read_files(self.spark, table, known.fresh[table]) for table in (EVENTS, TRANSITIONS)
        )
        tables = replace(self.inputs.tables, events=events, transitions=transitions)
        state, again, last = known.state, 0, self._last_audit(known)
        with ExitStack() as turns:
            for _ in range(_TURNS):
                with ExitStack() as turn:
                    judged = turn.enter_context(self._classify(tables, carried))
                    with _kept_messages(judged, writer):
                        # Most audits find nothing, and have the report then.
                        found, messages, (document, totals) = run_queries(
                            partial(surprises, judged, carried, state.ends),
                            partial(mentioned_messages, judged, carried, last),
                            judged.counted,
                        )
                        if found:
                            return "; ".join(found)
                        if messages is None or len(messages) > MOST:
                            break
                        if not messages:
                            before = StateBefore(known.snapshot, carried, again)
                            unsaved = "" if writer is None else writer.save(judged, totals, before)
                            document["judged"] = _basis("", state.totals.messages, again, unsaved)
                            self.kept.enter_context(turns.pop_all())
                            self.kept.enter_context(turn.pop_all())
                            return JudgedLanding(self.inputs.tables, judged, document)
                    opened = reopen_messages(judged, carried, last, messages, turns)
                if opened is None:
                    break
                carried, again = opened, again + len(messages)
        return _SPOKEN

    def _persist(self, frame: DataFrame) -> DataFrame:
        self.kept.callback(frame.unpersist)
        return frame.persist()

    def _classify(
        self, tables: LandedTables, carried: CarriedRows | None = None
    ) -> AbstractContextManager[AuditResult]:
        inputs = self.inputs
        return classify_landing(
            self.spark,
            tables,
            inputs.ground,
            letters=inputs.letters,
            keys=inputs.keys,
            carried=carried,
            bookings=inputs.bookings,
        )

    def _last_audit(self, known: UsableState) -> LastAudit:
        files = {
            table: [one for one in self.inputs.snapshot.files[table.name] if one.batch <= known.state.batch]
            for table in known.fresh
        }
        before = RowsBefore(self.spark, self.landing, files, self.inputs.tables.removed)
        cursors = dead_cursors(self.inputs.ground).items()
        released = [key for key, digest in cursors if known.state.dead.get(key) != digest]
        rows = sum(one.rows for some in known.fresh.values() for one in some)
        rows += known.state.kept[OPEN_EVENTS.name] + known.state.kept[OPEN_RECORDS.name]
        return LastAudit(before, known.state.ends, released, rows)

    def _load_carried(self, known: UsableState) -> CarriedRows:
        def read_table(table: Table) -> DataFrame:
            return self.landing.read(self.spark, table, snapshot=known.snapshot)

        return CarriedRows(
            open_events=read_table(OPEN_EVENTS),
            open_records=read_table(OPEN_RECORDS),
            settled=read_table(SETTLED),
            dead_letters=read_table(DEAD_LETTERS),
            numbers=read_table(NUMBERS),
            marks=read_table(MARKS),
            letters=frozenset(_hashes(self.landing, known.snapshot)),
            totals=known.state.totals,
            everything=self.inputs.tables.events,
        )


@contextmanager
def _kept_messages(judged: AuditResult, writer: StateWriter | None) -> Iterator[None]:
    """Caches the grouped messages during the block if there is a `writer`: then the report and the state both read
    them.
    """
    if writer is None:
        yield
        return
    messages = judged.messages.persist()
    try:
        yield
    finally:
        messages.unpersist()


def _basis(why: str, settled: int, again: int, unsaved: str) -> AuditBasis:
    return {"all_rows": bool(why), "why": why, "settled_before": settled, "reopened": again, "unsaved": unsaved}


def _hashes(landing: Landing, snapshot: LandingSnapshot) -> list[int]:
    found = small_rows(landing.table(LETTERS_SEEN), snapshot.files[LETTERS_SEEN.name])
    return cast("list[int]", found.column("hash").to_pylist())
