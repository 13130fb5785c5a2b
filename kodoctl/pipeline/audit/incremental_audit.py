"""Incremental audit: the verdict on all that landed, for the cost of what is new and what is open. What is settled is not
judged again but where something more is said of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from pyspark.errors import PySparkException

from kodoctl.errors import KodoctlError, error
from kodoctl.pipeline.audit.audit_inputs import load_inputs, with_ledger_note
from kodoctl.pipeline.audit.audit_state import (
    AuditState,
    basis_of,
    dead_cursors,
    ends_of,
    landed_rows,
    last_batch,
    letter_hash,
)
from kodoctl.pipeline.audit.job import classify_landing
from kodoctl.pipeline.audit.judged_rows import CarriedRows
from kodoctl.pipeline.audit.last_audit import StateProblem, UsableState, usable_state
from kodoctl.pipeline.audit.reopened_messages import MOST, LastAudit, RowsBefore, mentioned_messages, reopened
from kodoctl.pipeline.audit.settlement import (
    has_strange_numbers,
    open_places,
    settled_fates,
    state_frames,
    surprises,
)
from kodoctl.pipeline.ingest.data_rewrite import small_rows
from kodoctl.pipeline.ingest.landing_commits import AUDIT_RUN, LandingCommit, TableFiles
from kodoctl.pipeline.ingest.landing_store import FEW
from kodoctl.pipeline.ingest.state_tables import (
    LETTERS_SEEN,
    MARKS,
    NUMBERS,
    OPEN_EVENTS,
    OPEN_RECORDS,
    SETTLED,
)
from kodoctl.pipeline.ingest.tables import EVENTS, TRANSITIONS, Table
from kodoctl.pipeline.spark.concurrent_queries import run_queries
from kodoctl.pipeline.spark.spark_errors import words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodoctl.documents.audit_document import AuditBasis, AuditDocument
    from kodoctl.pipeline.audit.audit_inputs import AuditInputs
    from kodoctl.pipeline.audit.audit_state import SettledTotals
    from kodoctl.pipeline.audit.job import AuditResult
    from kodoctl.pipeline.ingest.landing_store import Landing, LandingSnapshot
    from kodoctl.pulsar.admin import Admin
    from kodoctl.pulsar.secret import Secret
    from kodoctl.topology.expand import Expansion

_ASKED: Final = "it was asked for"
_SMALL: Final = "few rows have landed"
_SPOKEN: Final = (
    "what is new is about more than 10,000 settled messages, or about some that were removed or cannot be told apart"
)
_STRANGE: Final = "an audit record has a number below 1"
_NAMES: Final = "messages are meant for more than 10,000 different subscriptions"
_TURNS: Final = 4  # messages that are judged again may speak of others
_FILES: Final = 32  # of names of settled messages, before they are put together


@dataclass(frozen=True, slots=True)
class _Before:
    """What an audit began with. `reopened`: messages that were settled and are judged again."""

    snapshot: LandingSnapshot
    carried: CarriedRows
    reopened: int = 0


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`run`: id of the audit's run. `full`: all rows are judged, whatever was settled; `few`: so many rows always are, and no
    state is kept.
    """

    run: str
    full: bool = False
    few: int = FEW


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
    if sum(landed_rows(inputs.snapshot.commits).values()) <= options.few:
        return _judged_all(spark, inputs, _SMALL)
    basis = basis_of(inputs.ground, inputs.keys)
    known = _ASKED if options.full else usable_state(landing, inputs.snapshot, basis)
    with ExitStack() as stack:
        writer = StateWriter(landing, inputs, options.run, stack)
        if isinstance(known, UsableState):
            try:
                found = _judged_new(spark, landing, inputs, known, writer)
            except (PySparkException, KodoctlError):  # files of the state are gone; of the landing's it is said again
                found = StateProblem.NONE
            if not isinstance(found, str):
                return found
            known = found
        return _judged_all(spark, inputs, known, writer)


def _judged_all(spark: SparkSession, inputs: AuditInputs, why: str, writer: StateWriter | None = None) -> AuditDocument:
    with classify_landing(spark, inputs.tables, inputs.ground, letters=inputs.letters, keys=inputs.keys) as judged:
        if writer is None:
            document, unsaved = judged.document(), ""
        else:
            document, unsaved = writer.count(judged, None)
    document["judged"] = _basis(why, 0, 0, unsaved)
    return document


def _judged_new(
    spark: SparkSession, landing: Landing, inputs: AuditInputs, known: UsableState, writer: StateWriter
) -> AuditDocument | str:
    """The report; or why all rows have to be judged."""
    carried = _carried(spark, landing, inputs, known)
    events, transitions = (landing.read_files(spark, table, known.fresh[table]) for table in (EVENTS, TRANSITIONS))
    tables = replace(inputs.tables, events=events, transitions=transitions)
    state, again = known.state, 0
    released = [key for key, digest in dead_cursors(inputs.ground).items() if state.dead.get(key) != digest]
    rows = sum(one.rows for files in known.fresh.values() for one in files)
    rows += state.kept[OPEN_EVENTS.name] + state.kept[OPEN_RECORDS.name]
    last = LastAudit(_rows_before(spark, landing, inputs, known), state.ends, released, rows)
    with ExitStack() as stack:
        for _ in range(_TURNS):
            with classify_landing(
                spark, tables, inputs.ground, letters=inputs.letters, keys=inputs.keys, carried=carried
            ) as judged:
                found, messages = run_queries(
                    partial(surprises, judged, carried, state.ends), partial(mentioned_messages, judged, carried, last)
                )
                if found:
                    return "; ".join(found)
                if messages is None or len(messages) > MOST:
                    break
                if not messages:
                    document, unsaved = writer.count(judged, _Before(known.snapshot, carried, again))
                    document["judged"] = _basis("", state.totals.messages, again, unsaved)
                    return document
                opened = reopened(judged, carried, last, messages, stack)
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
        numbers=read(NUMBERS),
        marks=read(MARKS),
        letters=frozenset(_hashes(landing, known.snapshot)),
        totals=known.state.totals,
        everything=inputs.tables.events,
    )


def _hashes(landing: Landing, snapshot: LandingSnapshot) -> list[int]:
    found = small_rows(landing.table(LETTERS_SEEN), snapshot.files[LETTERS_SEEN.name])
    return cast("list[int]", found.column("hash").to_pylist())


class StateWriter:
    """Writer of the state of one audit. What cannot be written is no fault of the audit's: the next one judges all rows.
    `stack`: one audit at a time writes until it is closed.
    """

    def __init__(self, landing: Landing, inputs: AuditInputs, run: str, stack: ExitStack) -> None:
        self._landing, self._inputs, self._run = landing, inputs, run
        self._problem = ""
        try:
            alone = stack.enter_context(landing.alone(AUDIT_RUN))
            landing.sweep(AUDIT_RUN, alone=alone)
        except KodoctlError as problem:
            self._problem = _words(problem)

    def count(self, judged: AuditResult, known: _Before | None) -> tuple[AuditDocument, str]:
        """The report, and why what the next audit begins with was not committed; empty if it was. `known`: what this one
        began with. Both group all messages: once.
        """
        messages = judged.messages.persist()
        try:
            document, totals = judged.counted()
            return document, self._save(judged, totals, known)
        finally:
            messages.unpersist()

    def _save(self, judged: AuditResult, totals: SettledTotals, known: _Before | None) -> str:
        if self._problem:
            return self._problem
        if has_strange_numbers(judged):
            return _STRANGE
        try:
            self._write(judged, totals, known)
        except (KodoctlError, PySparkException) as problem:
            with suppress(KodoctlError):
                self._landing.end(self._run, AUDIT_RUN, sweep=True)
            return _words(problem)
        return ""

    def _write(self, judged: AuditResult, totals: SettledTotals, known: _Before | None) -> None:
        landing, commits = self._landing, self._inputs.snapshot.commits
        landing.start(self._run, AUDIT_RUN)
        messages = judged.messages
        places = open_places(judged, messages).persist()
        try:
            fates = Counter(totals.fates)
            for row in settled_fates(messages).collect():
                fates[row["family"], row["rank"]] += row["messages"]
            if known is None:
                places.count()  # where Spark knows that they are few, it does not shuffle all records to join them
            tables = self._tables(state_frames(judged, messages, places), known)
        finally:
            places.unpersist()
        state = AuditState(
            basis_of(judged.ground, judged.keys), last_batch(commits), landed_rows(commits), ends_of(judged.ground),
            replace(totals, fates=fates), _kept(tables, known), dead=dead_cursors(judged.ground),
        )  # fmt: skip
        if not state.is_small:
            raise KodoctlError(error("K573", "the landing cannot be used", _NAMES))
        behind = next((one.number for one in commits if one.run == AUDIT_RUN), None)
        # As batches are dated, by the cluster's clock, which only an ingest knows.
        at = max(one.at for one in commits)
        landing.commit(LandingCommit(AUDIT_RUN, at, tables=tables, facts=state.to_facts()), behind=behind)
        landing.end(self._run, AUDIT_RUN)

    def _tables(self, frames: dict[Table, DataFrame], known: _Before | None) -> dict[str, TableFiles]:
        landing, attempt = self._landing, f"state-{self._run}"
        writes = []
        for table, made in frames.items():
            frame = made
            replaced: tuple[str, ...] | None = ()
            if table is SETTLED and known is not None:
                if len(known.snapshot.files[SETTLED.name]) < _FILES and not known.reopened:
                    replaced = None  # they are added
                else:
                    frame = known.carried.settled.unionByName(made)
            writes.append(partial(landing.write_frame, frame, table, attempt, replaced))
        written = run_queries(*writes)
        tables: dict[str, TableFiles] = {table.name: one for table, one in zip(frames, written, strict=True)}
        letters = [{"hash": letter_hash(one)} for one in self._inputs.letters]
        tables[LETTERS_SEEN.name] = replace(landing.write_rows(LETTERS_SEEN, attempt, letters), replaced=())
        return tables


def _kept(tables: Mapping[str, TableFiles], known: _Before | None) -> dict[str, int]:
    """Rows of each table, with those that some are added to."""
    before = {} if known is None else known.snapshot.files
    return {
        name: one.rows + (sum(file.rows for file in before[name]) if one.replaced is None else 0)
        for name, one in tables.items()
    }


def _words(problem: KodoctlError | PySparkException) -> str:
    return " ".join((words(str(problem)) if isinstance(problem, PySparkException) else str(problem)).split())
