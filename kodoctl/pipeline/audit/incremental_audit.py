"""Incremental audit: the verdict on all that landed, for the cost of what is new and what is open. What is settled is not
judged again but where something more is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kodoctl.errors import KodoctlError
from kodoctl.pipeline.audit.audit_inputs import load_inputs, with_ledger_note
from kodoctl.pipeline.audit.audit_state import basis_of, dead_cursors, landed_rows
from kodoctl.pipeline.audit.job import classify_landing
from kodoctl.pipeline.audit.judged_rows import CarriedRows
from kodoctl.pipeline.audit.last_audit import StateProblem, UsableState, usable_state
from kodoctl.pipeline.audit.reopened_messages import MOST, LastAudit, RowsBefore, mentioned_messages, reopened
from kodoctl.pipeline.audit.settlement import surprises
from kodoctl.pipeline.audit.state_writer import SPARK_FAILURES, StateBefore, StateWriter
from kodoctl.pipeline.ingest.data_rewrite import small_rows
from kodoctl.pipeline.ingest.state_tables import (
    DEAD_LETTERS,
    LETTERS_SEEN,
    MARKS,
    NUMBERS,
    OPEN_EVENTS,
    OPEN_RECORDS,
    SETTLED,
)
from kodoctl.pipeline.ingest.tables import EVENTS, TRANSITIONS, Table
from kodoctl.pipeline.spark.concurrent_queries import run_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodoctl.documents.audit_document import AuditBasis, AuditDocument
    from kodoctl.pipeline.audit.audit_inputs import AuditInputs
    from kodoctl.pipeline.audit.job import AuditResult
    from kodoctl.pipeline.audit.judged_rows import LandedTables
    from kodoctl.pipeline.ingest.landing_store import Landing, LandingSnapshot
    from kodoctl.pulsar.admin import Admin
    from kodoctl.pulsar.secret import Secret
    from kodoctl.topology.expand import Expansion

_ASKED: Final = "it was asked for"
_SMALL: Final = "few rows have landed"
_SPOKEN: Final = (
    "what is new is about more than 10,000 settled messages, or about some that were removed or cannot be told apart"
)
_FEW: Final = 200_000  # rows that are judged anew in less time than what is settled of them is read and kept
_TURNS: Final = 4  # messages that are judged again may speak of others


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`run`: id of the audit's run. `full`: all rows are judged, whatever was settled; `few`: so many rows always are, and no
    state is kept; `is_read_only`: none is kept either.
    """

    run: str
    full: bool = False
    few: int = _FEW
    is_read_only: bool = False


class JudgedLanding(NamedTuple):
    """`tables`: all rows that landed; `result`: those that were judged; `document`: the report on all."""

    tables: LandedTables
    result: AuditResult
    document: AuditDocument


def run_audit(
    spark: SparkSession,
    landing: Landing,
    expansion: Expansion,
    admin: Admin,
    ledger: str,
    keys: Secret | None,
    options: AuditOptions,
) -> AuditDocument:
    """The report on all that landed. `keys`: see kodoctl.pipeline.audit.job.classify_landing."""
    inputs = load_inputs(spark, landing, expansion, admin, ledger, keys)
    return with_ledger_note(judge_landing(spark, landing, inputs, options), ledger)


def judge_landing(spark: SparkSession, landing: Landing, inputs: AuditInputs, options: AuditOptions) -> AuditDocument:
    """The report on inputs that were read."""
    with judged_landing(spark, landing, inputs, options) as judged:
        return judged.document


@contextmanager
def judged_landing(
    spark: SparkSession, landing: Landing, inputs: AuditInputs, options: AuditOptions
) -> Iterator[JudgedLanding]:
    """The same, with the rows that were judged, which Spark keeps for further queries until the context ends."""
    few = sum(landed_rows(inputs.snapshot.commits).values()) <= options.few
    with ExitStack() as stack:
        yield _judged_few(spark, inputs, stack) if few else _judged(spark, landing, inputs, options, stack)


def _judged_few(spark: SparkSession, inputs: AuditInputs, stack: ExitStack) -> JudgedLanding:
    """Spark keeps the rows, without payloads, and their fates: to plan each of twenty queries, and to open files, of which
    each batch adds one, takes longer than to answer it.
    """

    def kept(frame: DataFrame) -> DataFrame:
        stack.callback(frame.unpersist)
        return frame.persist()

    tables = inputs.tables
    tables = replace(tables, events=kept(tables.events.drop("payload")), transitions=kept(tables.transitions))
    judged = stack.enter_context(
        classify_landing(spark, tables, inputs.ground, letters=inputs.letters, keys=inputs.keys)
    )
    judged = replace(judged, verdicts=kept(judged.verdicts))
    document = judged.document()
    document["judged"] = _basis(_SMALL, 0, 0, "")
    return JudgedLanding(tables, judged, document)


def _judged(
    spark: SparkSession, landing: Landing, inputs: AuditInputs, options: AuditOptions, stack: ExitStack
) -> JudgedLanding:
    known = _ASKED if options.full else usable_state(landing, inputs.snapshot, basis_of(inputs.ground, inputs.keys))
    with ExitStack() as writing:
        writer = None if options.is_read_only else StateWriter(landing, inputs, options.run, writing)
        if isinstance(known, UsableState):
            try:
                found = _judged_new(spark, landing, inputs, known, writer, stack)
            except (KodoctlError, *SPARK_FAILURES):  # files of the state are gone; of the landing's it is said again
                found = StateProblem.NONE
            if not isinstance(found, str):
                return found
            known = found
        judged = stack.enter_context(
            classify_landing(spark, inputs.tables, inputs.ground, letters=inputs.letters, keys=inputs.keys)
        )
        with _kept_messages(judged, writer):
            document, totals = judged.counted()
            unsaved = "" if writer is None else writer.save(judged, totals, None)
        document["judged"] = _basis(known, 0, 0, unsaved)
        return JudgedLanding(inputs.tables, judged, document)


@contextmanager
def _kept_messages(judged: AuditResult, writer: StateWriter | None) -> Iterator[None]:
    """The report and the state both group all messages: once, where there is a state."""
    if writer is None:
        yield
        return
    messages = judged.messages.persist()
    try:
        yield
    finally:
        messages.unpersist()


def _judged_new(
    spark: SparkSession,
    landing: Landing,
    inputs: AuditInputs,
    known: UsableState,
    writer: StateWriter | None,
    stack: ExitStack,
) -> JudgedLanding | str:
    """What is new or open, judged; or why all rows have to be. `stack`: keeps it."""
    carried = _carried(spark, landing, inputs, known)
    events, transitions = (landing.read_files(spark, table, known.fresh[table]) for table in (EVENTS, TRANSITIONS))
    tables = replace(inputs.tables, events=events, transitions=transitions)
    state, again = known.state, 0
    released = [key for key, digest in dead_cursors(inputs.ground).items() if state.dead.get(key) != digest]
    rows = sum(one.rows for files in known.fresh.values() for one in files)
    rows += state.kept[OPEN_EVENTS.name] + state.kept[OPEN_RECORDS.name]
    last = LastAudit(_rows_before(spark, landing, inputs, known), state.ends, released, rows)
    with ExitStack() as turns:
        for _ in range(_TURNS):
            with ExitStack() as turn:
                judged = turn.enter_context(
                    classify_landing(
                        spark, tables, inputs.ground, letters=inputs.letters, keys=inputs.keys, carried=carried
                    )
                )
                with _kept_messages(judged, writer):
                    found, messages, (document, totals) = run_queries(  # most audits find nothing, and have the report
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
                        stack.enter_context(turns.pop_all())
                        stack.enter_context(turn.pop_all())
                        return JudgedLanding(inputs.tables, judged, document)
                opened = reopened(judged, carried, last, messages, turns)
            if opened is None:
                break
            carried, again = opened, again + len(messages)
    return _SPOKEN


def _basis(why: str, settled: int, again: int, unsaved: str) -> AuditBasis:
    return {"all_rows": bool(why), "why": why, "settled_before": settled, "reopened": again, "unsaved": unsaved}


def _rows_before(spark: SparkSession, landing: Landing, inputs: AuditInputs, known: UsableState) -> RowsBefore:
    files = {
        table: [one for one in inputs.snapshot.files[table.name] if one.batch <= known.state.batch]
        for table in known.fresh
    }
    return RowsBefore(spark, landing, files, inputs.tables.removed)


def _carried(spark: SparkSession, landing: Landing, inputs: AuditInputs, known: UsableState) -> CarriedRows:
    def read(table: Table) -> DataFrame:
        return landing.read(spark, table, snapshot=known.snapshot)

    return CarriedRows(
        open_events=read(OPEN_EVENTS),
        open_records=read(OPEN_RECORDS),
        settled=read(SETTLED),
        dead_letters=read(DEAD_LETTERS),
        numbers=read(NUMBERS),
        marks=read(MARKS),
        letters=frozenset(_hashes(landing, known.snapshot)),
        totals=known.state.totals,
        everything=inputs.tables.events,
    )


def _hashes(landing: Landing, snapshot: LandingSnapshot) -> list[int]:
    found = small_rows(landing.table(LETTERS_SEEN), snapshot.files[LETTERS_SEEN.name])
    return cast("list[int]", found.column("hash").to_pylist())
