"""Last audit of a landing, for the next audit and for a removal of rows: the check whether its state can be used, and
the scope of an audit from the landed tables. Runs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kodo_pipeline.audit.audit_state import AuditState, fresh_files, is_of_other_rules
from kodo_pipeline.evidence.partition_history import read_tables
from kodo_pipeline.evidence.readings import audit_scope
from kodo_pipeline.landing.data_rewrite import small_rows
from kodo_pipeline.landing.landing_commits import last_reading, unfinished_runs
from kodo_pipeline.landing.state_tables import STATE
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, Table
from kodoctl.errors import KodoctlError

if TYPE_CHECKING:
    from kodo_pipeline.evidence.partition_history import Key
    from kodo_pipeline.evidence.readings import AuditScope
    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot
    from kodoctl.topology.expand import Expansion


class StateProblem(StrEnum):
    """Reasons why the state of the last audit cannot be used, as texts for people."""

    NONE = "no audit has left a state, or it is gone"
    OTHER_RULES = "the last audit was made by a kodoctl that judged by other rules"
    BASIS = "the subscriptions, the partitions, the keys or kodoctl are not those of the last audit"
    MIXED = "files of the landing were put together with newer ones, or deleted, since the last audit"


@dataclass(frozen=True, slots=True)
class UsableState:
    """State of the last audit, from which the next audit can continue. `snapshot`: files of the state's tables;
    `fresh`: files of `events` and `transitions` that the last audit did not judge, by table.
    """

    state: AuditState
    snapshot: LandingSnapshot
    fresh: Mapping[Table, Sequence[DataFile]]


def usable_state(landing: Landing, snapshot: LandingSnapshot, basis: str) -> UsableState | StateProblem:
    """Checks whether an audit can continue from the state of the last one. Returns the state, or the reason why not,
    also if the state cannot be read. `snapshot`: of the landing, with `events` and `transitions`; `basis`: present
    result of kodo_pipeline.audit.audit_state.basis_of.
    """
    try:
        of_state = landing.snapshot(*STATE)
        if not all(landing.table(table).holds(of_state.files[table.name]) for table in STATE):
            return StateProblem.NONE
    except KodoctlError:  # the next audit makes it anew
        return StateProblem.NONE
    state = AuditState.of(of_state.commits)
    if state is None or not state.is_whole(of_state.files):
        return StateProblem.OTHER_RULES if is_of_other_rules(of_state.commits) else StateProblem.NONE
    if state.basis != basis:
        return StateProblem.BASIS
    fresh = fresh_files(state, snapshot.files, snapshot.removed)
    return StateProblem.MIXED if fresh is None else UsableState(state, of_state, fresh)


def landed_scope(
    landing: Landing, snapshot: LandingSnapshot, expansion: Expansion, stored_from: Mapping[Key, int]
) -> AuditScope:
    """The subscriptions, partitions and lanes to judge, from the tables `coverage` and `cursors` in `snapshot`.

    Cursors of runs that began after the last finished run are left out: such a run was interrupted or still runs, and
    may not have read the messages that these cursors show as acknowledged. `stored_from`: id of the oldest ledger that
    each partition has now, {} if the cluster was not asked; if the ledger in which a range ends still exists, nothing
    between this range and the next can have been deleted. Raises KodoctlError (K573) if files cannot be read.
    """
    coverage, cursors = (
        small_rows(landing.table(table), snapshot.files[table.name]).to_pylist() for table in (COVERAGE, CURSORS)
    )
    runs = unfinished_runs(snapshot.commits)
    read = read_tables(coverage, (one for one in cursors if one["ingest_run"] not in runs), stored_from)
    reading = last_reading(snapshot.commits)
    return audit_scope(expansion, read, {} if reading is None else reading.facts.get("left", {}))
