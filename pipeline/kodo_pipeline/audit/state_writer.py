# adapter: writes tables
"""Writer of the state of an audit: tables of kodo_pipeline.landing.state_tables, which one commit adds to the landing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kodo_pipeline.audit.audit_state import (
    AuditState,
    basis_of,
    dead_cursors,
    ends_of,
    landed_rows,
    last_batch,
    letter_hash,
)
from kodo_pipeline.audit.settlement import open_places, state_frames
from kodo_pipeline.evidence.audit_evidence import RANKS, MessageStatus
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit, TableFiles
from kodo_pipeline.landing.state_tables import DEAD_LETTERS, LETTERS_SEEN, SETTLED
from kodo_pipeline.spark.concurrent_queries import run_queries
from kodo_pipeline.spark.spark_errors import words
from kodoctl.errors import KodoctlError, error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kodo_pipeline.audit.audit_inputs import AuditInputs
    from kodo_pipeline.audit.audit_state import SettledTotals
    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.audit.judged_rows import CarriedRows
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot
    from kodo_pipeline.landing.tables import Table

_NAMES: Final = "messages are meant for more than 10,000 different subscriptions"
_ADDED: Final = (SETTLED, DEAD_LETTERS)  # what an audit settles is added to them
# Of a file that is gone pyspark gives either of the first two; where the JVM has ended, there is no connection.
SPARK_FAILURES: Final = (PySparkException, Py4JError, ConnectionError)
_FILES: Final = 32  # of each of these, before they are put together


@dataclass(frozen=True, slots=True)
class StateBefore:
    """State from which an audit began. `snapshot`: files of its tables; `carried`: its rows, in which `reopened`
    messages, once settled, are open again because this audit judges them again.
    """

    snapshot: LandingSnapshot
    carried: CarriedRows
    reopened: int = 0


class StateWriter:
    """Writer of the state of one audit. The constructor takes the lock of audits, until `stack` is closed, and removes
    files of killed audits; where locks do not exist (Landing.alone), a conflicting commit is refused instead. No lock
    of another audit, KodoctlError or failure of Spark fails this audit: `save` returns the reason, and the next audit
    continues from the state that was committed last, if there is one.
    """

    def __init__(self, landing: Landing, inputs: AuditInputs, run: str, stack: ExitStack) -> None:
        self._landing, self._inputs, self._run = landing, inputs, run
        self._problem = ""
        try:
            alone = stack.enter_context(landing.alone(AUDIT_RUN))
            landing.sweep(AUDIT_RUN, alone=alone)
        except KodoctlError as problem:
            self._problem = _words(problem)

    def save(self, judged: AuditResult, totals: SettledTotals, known: StateBefore | None) -> str:
        """Commits the state for the next audit. Returns "", or the reason why it, or the constructor, failed. `totals`:
        second result of `judged.counted`; `known`: the state from which this audit began, None if it judged all rows.
        """
        if self._problem:
            return self._problem
        places: DataFrame | None = None
        try:
            places = open_places(judged, judged.messages).persist()
            places.count()  # where Spark knows that they are few, it does not shuffle all records to join them
            self._write(judged, places, totals, known)
        except (KodoctlError, *SPARK_FAILURES) as problem:
            with suppress(KodoctlError):
                self._landing.end(self._run, AUDIT_RUN, sweep=True)
            return _words(problem)
        finally:
            if places is not None:
                with suppress(*SPARK_FAILURES):
                    places.unpersist()
        return ""

    def _write(self, judged: AuditResult, places: DataFrame, totals: SettledTotals, known: StateBefore | None) -> None:
        landing, commits = self._landing, self._inputs.snapshot.commits
        landing.start(self._run, AUDIT_RUN)
        frames = state_frames(judged, judged.messages, places)
        settled = Counter(totals.fates) - Counter(judged.settled.fates)
        if not any(rank == RANKS[MessageStatus.DEAD] for _, rank in settled) and not (known and known.reopened):
            del frames[DEAD_LETTERS]
        tables = self._tables(frames, known)
        state = AuditState(
            basis_of(judged.ground, judged.keys), last_batch(commits), landed_rows(commits), ends_of(judged.ground),
            totals, _row_counts(tables, known), dead=dead_cursors(judged.ground),
        )  # fmt: skip
        if not state.is_small:
            raise KodoctlError(error("K573", "the landing cannot be used", _NAMES))
        behind = next((one.number for one in commits if one.run == AUDIT_RUN), None)
        # As batches are dated, by the cluster's clock, which only an ingest knows.
        at = max(one.at for one in commits)
        landing.commit(LandingCommit(AUDIT_RUN, at, tables=tables, facts=state.to_facts()), behind=behind)
        landing.end(self._run, AUDIT_RUN)

    def _tables(self, frames: dict[Table, DataFrame], known: StateBefore | None) -> dict[str, TableFiles]:
        landing, attempt = self._landing, f"state-{self._run}"
        writes = []
        for table, made in frames.items():
            frame = made
            replaced: tuple[str, ...] | None = ()
            if table in _ADDED and known is not None:
                if len(known.snapshot.files[table.name]) < _FILES and not known.reopened:
                    replaced = None  # they are added
                else:
                    before = known.carried.settled if table is SETTLED else known.carried.dead_letters
                    frame = before.unionByName(made)
            writes.append(partial(landing.write_frame, frame, table, attempt, replaced))
        written = run_queries(*writes)
        tables: dict[str, TableFiles] = {table.name: one for table, one in zip(frames, written, strict=True)}
        none = landing.write_rows(DEAD_LETTERS, attempt, ())
        tables.setdefault(DEAD_LETTERS.name, replace(none, replaced=None if known else ()))
        letters = [{"hash": letter_hash(one)} for one in self._inputs.letters]
        tables[LETTERS_SEEN.name] = replace(landing.write_rows(LETTERS_SEEN, attempt, letters), replaced=())
        return tables


def _row_counts(tables: Mapping[str, TableFiles], known: StateBefore | None) -> dict[str, int]:
    """Number of rows of each table after the commit, by table name, with rows of the former state that stay."""
    before = {} if known is None else known.snapshot.files
    return {
        name: one.rows + (sum(file.rows for file in before[name]) if one.replaced is None else 0)
        for name, one in tables.items()
    }


def _words(problem: Exception) -> str:
    return " ".join((str(problem) if isinstance(problem, KodoctlError) else words(str(problem))).split())
