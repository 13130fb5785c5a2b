"""Removal of the rows of settled messages that are older than a time.

One commit first records which rows are removed, with the figures that an audit needs of them; then the files that
contain these rows are replaced, in any order. The next maintenance finishes a removal that was killed; until then
audits ignore the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.audit.audit_state import basis_of
from kodo_pipeline.audit.last_audit import StateProblem, landed_scope, usable_state
from kodo_pipeline.landing.data_rewrite import rewrite, small_rows, stored_rows
from kodo_pipeline.landing.landing_commits import (
    REMOVAL_RUN,
    ROLLUP_RUN,
    LandingCommit,
    TableFiles,
)
from kodo_pipeline.landing.removal_record import RemovalRecord, RemovedTotals
from kodo_pipeline.landing.state_tables import REMOVALS, REMOVED_NUMBERS, REMOVED_PLACES
from kodo_pipeline.landing.tables import EVENTS, TABLES, TRANSITIONS, Table
from kodo_pipeline.upkeep.entry_ranges import EntryColumns, NumberRange, RangeIndex
from kodo_pipeline.upkeep.settled_rows import RemovalBounds, SettledRows, settled_rows
from kodoctl.errors import KodoctlError, LockedError, error

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.topology.expand import Expansion

_DAY: Final = 86_400_000
_TRIES: Final = 5  # of files that others replace meanwhile
_FILES: Final = 32  # of a commit
_MOST: Final = 10_000  # subscriptions that messages are meant for: whoever produces names them
_KILLED: Final = "the last removal was killed, and has to be ended first: a maintenance without --dry-run does it"
_NO_STATE: Final = (
    "no audit has left a state, which says what is settled (an audit of 200,000 rows or less leaves none)"
)
_FORGED: Final = "two records have one number and say different things: the rows are the evidence"
_NAMES: Final = "messages are meant for more than 10,000 different subscriptions"
_PLACED: Final = {
    EVENTS: ("msg_topic", "msg_partition", "ledger", "entry"),
    TRANSITIONS: ("msg_topic", "id", "target_topic", "target_id"),
}


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """Plan of a removal of rows of messages published before `before` (ms). `batch`: the last batch whose rows may be
    removed; `rows`: the rows to remove, None: nothing is removed; `why`: the reason why nothing is removed, else "";
    `last`: number of the commit of the last removal before the plan, None if there was none.
    """

    before: int
    batch: int = -1
    rows: SettledRows | None = None
    why: str = ""
    last: int | None = None


def removal_time(keep: int, now: int) -> int:
    """Time before which the rows of messages are to be removed: `keep` before `now`, rounded down to whole days (UTC),
    so that a file is not rewritten often. All in ms.
    """
    return (now - keep) // _DAY * _DAY


def plan_removal(landing: Landing, expansion: Expansion, keys: Secret | None, before: int) -> RemovalPlan:
    """Plans the removal of the rows of settled messages older than `before` (ms), or gives the reason why nothing may
    be removed. Changes nothing. `keys`: the producers' signing keys, the same as in the last audit, else its state is
    of no use; None: producers do not sign.
    """
    snapshot = landing.snapshot(*TABLES)
    last = RemovalRecord.of(snapshot.commits)
    if last is not None and not last.finished:
        return RemovalPlan(before, why=_KILLED)
    found = usable_state(landing, snapshot, landed_basis(landing, snapshot, expansion, keys))
    if isinstance(found, StateProblem):
        return RemovalPlan(before, why=_NO_STATE if found is StateProblem.NONE else f"{found}: run it again")
    state = found.state
    if any(state.totals.contradictions.values()):
        return RemovalPlan(before, why=_FORGED)
    rolled = [one.facts["batch"] for one in snapshot.commits if one.run == ROLLUP_RUN]
    bounds = RemovalBounds(before, min([state.batch, *rolled]), state.ends)
    every = replace(snapshot, files={**snapshot.files, **found.snapshot.files})
    rows = settled_rows(landing, every, bounds)
    if len(_totals(snapshot.commits).with_more(rows.totals).meant) > _MOST:
        return RemovalPlan(before, why=_NAMES)
    return RemovalPlan(before, bounds.batch, rows, last=None if last is None else last.number)


def landed_basis(landing: Landing, snapshot: LandingSnapshot, expansion: Expansion, keys: Secret | None) -> str:
    """Digest of everything on which the judgement of settled messages would depend in an audit now: version,
    subscriptions, lanes, signing keys (see kodo_pipeline.audit.audit_state.basis_of).
    """
    return basis_of(landed_scope(landing, snapshot, expansion, {}), keys)


def _totals(commits: Sequence[LandingCommit]) -> RemovedTotals:
    last = RemovalRecord.of(commits)
    return RemovedTotals() if last is None else last.totals


def remove_rows(landing: Landing, run: str, plan: RemovalPlan) -> None:
    """Carries out a plan. Does nothing if the plan has no rows. Raises LockedError if another removal was made since
    the plan, or if other writers keep replacing the same files.
    """
    if plan.rows is None or not plan.rows.places:
        return
    commits = landing.recover()
    last = RemovalRecord.of(commits)
    made = {
        table.name: landing.write_rows(table, f"removal-{run}", rows)
        for table, rows in (
            (REMOVED_PLACES, _place_rows(plan.rows, run)),
            (REMOVED_NUMBERS, _number_rows(plan.rows)),
        )
    }
    before = {} if last is None else last.kept
    record = RemovalRecord(
        run,
        max(plan.before, 0 if last is None else last.before),
        plan.batch,
        totals=_totals(commits).with_more(plan.rows.totals),
        kept={name: one.rows + before.get(name, 0) for name, one in made.items()},
    )
    _commit(landing, record, made, behind=plan.last)
    finish_removal(landing, run)


def _place_rows(rows: SettledRows, run: str) -> list[dict[str, Any]]:
    names = ("msg_topic", "msg_partition", "ledger")
    return [
        {**dict(zip(names, one.key, strict=True)), "first": one.first, "last": one.last, "run": run}
        for one in rows.places
    ]


def _number_rows(rows: SettledRows) -> list[dict[str, Any]]:
    def range_rows(names: Sequence[str], ranges: Sequence[NumberRange]) -> Iterator[dict[str, Any]]:
        for one in ranges:
            yield {**dict(zip(names, one.key, strict=True)), "first": one.first, "last": one.last, "rows": one.rows}

    return [
        *range_rows(("run", "topic", "subscription"), rows.records),
        *range_rows(("msg_topic", "partition", "run"), rows.producers),
    ]


def _commit(landing: Landing, record: RemovalRecord, made: Mapping[str, TableFiles], behind: int | None) -> None:
    # As batches are dated, by the cluster's clock, which only an ingest knows.
    at = max(one.at for one in landing.commits())
    landing.commit(LandingCommit(REMOVAL_RUN, at, tables=made, facts=record.to_facts()), behind=behind)


def finish_removal(landing: Landing, run: str) -> None:
    """Finishes the last removal, if it is not finished: replaces the files that still contain its rows, and commits
    that. Raises LockedError if other writers keep replacing the same files, KodoctlError (K573) if rows of a table of
    removals are missing.
    """
    snapshot = landing.snapshot(*REMOVALS)
    record = RemovalRecord.of(snapshot.commits)
    if record is None or record.finished:
        return
    if not record.is_whole(snapshot.files):
        detail = f"{landing.root.uri}: {REMOVED_PLACES.name} has not the rows that were committed to it: bring its files back"
        raise KodoctlError(error("K573", "the landing cannot be used", detail))
    rows = small_rows(landing.table(REMOVED_PLACES), snapshot.files[REMOVED_PLACES.name]).to_pylist()
    places = RangeIndex(
        NumberRange((one["msg_topic"], one["msg_partition"], one["ledger"]), one["first"], one["last"], 0)
        for one in rows
        if one["run"] == record.run
    )
    bounds = RemovalBounds(record.before, record.batch, {})
    for table in _PLACED:
        _replace_files(landing, table, bounds, places, run)
    nothing = {table.name: TableFiles.of(()) for table in REMOVALS}  # they have the former commit
    _commit(landing, record.as_finished(), nothing, behind=record.number)


def _replace_files(landing: Landing, table: Table, bounds: RemovalBounds, places: RangeIndex, run: str) -> None:
    place = landing.table(table)
    for attempt in range(_TRIES):
        files = [one for one in place.version().files if bounds.may_touch(one)]
        done = True
        for number in range(0, len(files), _FILES):
            name = f"{run}-{attempt}-{number}"
            done &= _replace(landing, table, files[number : number + _FILES], places, name)
        if done:
            return
    detail = f"others replace files of {landing.root.uri} all the time: run it again when they have ended"
    raise LockedError(error("K575", "another run is under way", detail))


def _replace(landing: Landing, table: Table, files: Sequence[DataFile], places: RangeIndex, run: str) -> bool:
    """Replaces files by files without the rows at `places`, in one commit. False if one of the files no longer
    exists.
    """
    import pyarrow.compute as pc

    place = landing.table(table)

    def stays(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(pc.invert(_goes(table, rows, places)))

    gone: list[DataFile] = []
    made: list[DataFile] = []
    for one in files:
        count = _count(landing, table, one, places)
        gone += [one] * (count > 0)
        if 0 < count < one.rows:
            made.append(rewrite(place, [one], _attempt(one, run), stays))
    if not gone or place.exchange(gone, made):
        return True
    place.folder.delete(one.path for one in made)  # their folder may have files that count
    return False


def _count(landing: Landing, table: Table, file: DataFile, places: RangeIndex) -> int:
    """Number of rows of the file to be removed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = pa.schema([table.arrow().field(name) for name in _PLACED[table]])
    found = stored_rows(landing.table(table), file, schema)
    return sum(pc.sum(_goes(table, rows, places)).as_py() or 0 for rows in found)


def _goes(table: Table, rows: pa.RecordBatch, places: RangeIndex) -> pa.Array:
    import pyarrow.compute as pc

    if table is EVENTS:
        return places.contains(EntryColumns.stored(rows))
    ends = (("msg_topic", "id"), ("target_topic", "target_id"))
    own, target = (places.contains(EntryColumns.named(rows, *one)) for one in ends)
    return pc.or_(own, target)


def _attempt(file: DataFile, run: str) -> str:
    return f"removal-{run}" if file.batch < 0 else f"{file.batch:09d}-removal-{run}"
