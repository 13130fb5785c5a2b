"""Conversion of landings of older kodoctls to Delta tables, in the same place.

Former landings were Parquet folders that count when a manifest names them. They are converted, because their messages
may be on no cluster any more, and because Spark's checkpoint, which records how far each partition was read, stays
valid. Delta tables that lack later columns get these. After a kill the next call continues: the manifests are removed
last, and until then every other command refuses the landing. Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.landing_commits import ROLLUP_RUN, LandingCommit, TableFiles
from kodo_pipeline.landing.landing_store import FORMER, GUARD, Landing, guard, is_former
from kodo_pipeline.landing.recorded_tables import RECORDED
from kodo_pipeline.landing.table_writer import TableWriter
from kodo_pipeline.landing.tables import COMMITS, COUNTED, TABLES, Table
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.landing.file_store import Storage

_FORMAT: Final = 1  # of former manifests
_RUN: Final = "convert"
_FOLDERS: Final = "folders"
_ROWS: Final = 20_000  # read at a time
_TABLES: Final = (*TABLES, *COUNTED, *RECORDED, COMMITS)  # those of audits are made anew


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """Result of a conversion. `batches`, `rows`: numbers converted, including those of an earlier call that was killed;
    `columns`: names of the added columns, by table.
    """

    batches: int
    rows: int
    columns: Mapping[str, list[str]] = field(default_factory=dict)


def convert(landing: Landing, report: Callable[[LandingCommit], None]) -> ConversionResult:
    """Converts the landing: turns manifests of a former kodoctl into commits, and adds the columns that its Delta
    tables lack. Calls `report` with the commit of each manifest, also if an earlier call that was killed has made it,
    but not for rollups, which are not converted. Raises UsageError (K801) if there is nothing to convert, KodoctlError
    for a damaged landing, LockedError while an ingest or another conversion has the lock.
    """
    with landing.alone() if landing.root.exists() else nullcontext(True) as alone:
        added = {table.name: names for table in _TABLES if (names := landing.table(table).add_columns())}
        if is_former(landing.root):
            return replace(_convert_manifests(landing, report, alone=alone), columns=added)
    if not added:
        detail = f"{landing.root.uri} has no landing of a former kodoctl"
        raise UsageError(error("K801", "nothing has landed", detail))
    return ConversionResult(0, 0, added)


def _convert_manifests(landing: Landing, report: Callable[[LandingCommit], None], *, alone: bool) -> ConversionResult:
    known = {(one.batch, one.run) for one in landing.recover(former=True)}
    landing.sweep(alone=alone)
    landing.start(_RUN)
    rows = count = 0
    manifests = landing.root / FORMER
    for former in sorted(_former(manifests), key=lambda one: (one.at, one.batch is not None, one.batch or 0, one.run)):
        commit = former
        if (former.batch, former.run) not in known:
            tables = {table.name: _convert(landing, table, former) for table in TABLES if table.name in former.tables}
            facts = {name: fact for name, fact in former.facts.items() if name != _FOLDERS}
            commit = LandingCommit(former.run, former.at, former.batch, tables, facts)
            landing.commit(commit, former=True)
        report(commit)
        rows += sum(one.rows for one in commit.tables.values())
        count += commit.batch is not None
    landing.end(_RUN)
    _remove(landing)
    return ConversionResult(count, rows)


def _former(manifests: Storage) -> Iterator[LandingCommit]:
    """Yields the former manifests as commits, whose facts have the folder of each table under _FOLDERS. Rollups are
    left out, because they are counted anew.
    """
    for name, form in manifests.documents().items():
        if name == GUARD:
            continue
        try:
            found = _former_commit(form)
        except (KeyError, TypeError, AttributeError, ValueError):
            detail = f"{manifests.uri}/{name}: no manifest of kodoctl's: something else wrote, or changed, it"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None
        if found.run != ROLLUP_RUN:
            yield found


def _former_commit(form: Mapping[str, Any]) -> LandingCommit:
    if form["format"] != _FORMAT:
        raise ValueError(form["format"])
    tables = {table: TableFiles(one["rows"]) for table, one in form["tables"].items()}
    facts = {**form["facts"], _FOLDERS: {table: one["folder"] for table, one in form["tables"].items()}}
    return LandingCommit(form["run"], form["at"], form["batch"], tables, facts)


def _convert(landing: Landing, table: Table, former: LandingCommit) -> TableFiles:
    folder = landing.root / former.facts[_FOLDERS][table.name]
    begin = former.run if former.batch is None else f"{former.batch:09d}-{former.run}"
    with TableWriter(landing.root / table.name, table, f"{begin}-{_RUN}") as writer:
        for batch in _rows(folder, table):
            writer.write(batch)
    made = TableFiles.of(writer.files)
    if made.rows != former.tables[table.name].rows:
        detail = f"{folder.uri} has {made.rows:,} of {former.tables[table.name].rows:,} rows: bring its files back"
        raise KodoctlError(error("K573", "the landing cannot be used", detail))
    return made


def _rows(folder: Storage, table: Table) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the Parquet files of a former table. Columns that the files lack, because kodoctl added them
    later, are null. Spark wrote times in 96 bits; they are read in microseconds.
    """
    import pyarrow as pa
    from pyarrow import parquet

    for name in folder.files():
        if not name.endswith(".parquet"):
            continue
        with folder.input(name) as file:
            found = parquet.ParquetFile(file, coerce_int96_timestamp_unit="us")
            for batch in found.iter_batches(_ROWS):
                columns = [
                    batch.column(one.name) if one.name in batch.schema.names else pa.nulls(batch.num_rows, one.type)
                    for one in table.arrow()
                ]
                yield pa.RecordBatch.from_arrays(columns, names=table.names)


def _remove(landing: Landing) -> None:
    """Removes the former folders and then the manifests. Folders whose files count stay, also if a former kodoctl ran
    on tables that were Delta already.
    """
    counted = landing.snapshot(*TABLES, *COUNTED, former=True).files
    for table in (*TABLES, *COUNTED):
        folder = landing.root / table.name
        kept = {one.path.partition("/")[0] for one in counted[table.name]}
        for name in folder.folders():
            if name not in kept and not name.startswith("_"):
                (folder / name).remove()
    (landing.root / FORMER).remove()
    guard(landing.root)
