"""Rewriting of a table's data files into other files, by Arrow and without Spark. Only a few batches of rows are in
memory at a time, however large the files are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.table_writer import ROW_GROUP, PartFile
from kodoctl.errors import KodoctlError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.delta_tables import LandingTable

_ROWS: Final = 50_000  # read at a time, at most
_FILES: Final = 16  # read side by side: a store answers each in tens of milliseconds
Change = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


def rewrite(table: LandingTable, files: Sequence[DataFile], attempt: str, change: Change | None = None) -> DataFile:
    """Writes the rows of `files` (one at least, all of one partition) into one new file and returns it; it counts when
    a commit names it. `attempt`: name of the folder for the new file, in the table's folder; `change`: called with each
    batch of rows, and may change rows or leave some out; None: the rows stay as they are. If anything raises, an
    incomplete file stays in the folder, and no commit names it.
    """
    made = PartFile(table.folder, table.table, attempt, files[0].partition)
    try:
        for one in files:
            for batch in stored_rows(table, one, made.schema):
                made.add(batch if change is None else change(batch))
        return made.finish()
    except BaseException as problem:
        made.abandon(problem)
        raise


def stored_rows(table: LandingTable, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file with the columns of `schema`; columns that the file lacks are null. The iteration
    raises KodoctlError (K573) if the file does not exist or has another number of rows than recorded.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with table.folder.input(file.path) as opened:
        found = parquet.ParquetFile(opened, pre_buffer=False, buffer_size=1024 * 1024)
        names = [name for name in schema.names if name in found.schema_arrow.names]
        if found.metadata.num_rows != file.rows:
            difference = f"has {found.metadata.num_rows:,} of {many(file.rows, 'row')}"
            detail = f"{table.folder.uri}/{file.path} {difference}: bring it back, or land elsewhere"
            raise KodoctlError(error("K573", "the landing cannot be used", detail))
        for batch in found.iter_batches(_at_once(found.metadata), columns=names):
            columns: list[Any] = [
                batch.column(one.name).cast(one.type) if one.name in names else pa.nulls(batch.num_rows, one.type)
                for one in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def small_rows(table: LandingTable, files: Iterable[DataFile]) -> pa.Table:
    """Reads all rows of these files into memory, several files at a time. For tables without partitions."""
    import pyarrow as pa

    schema = table.table.arrow()
    with ThreadPoolExecutor(_FILES) as pool:
        parts = pool.map(lambda one: list(stored_rows(table, one, schema)), files)
        batches = [batch for part in parts for batch in part]
    # Columns without a chunk are what Spark cannot take over.
    return pa.Table.from_batches(batches, schema) if batches else schema.empty_table()


def _at_once(about: Any) -> int:
    size = max((about.row_group(one).total_byte_size / max(about.row_group(one).num_rows, 1)
                for one in range(about.num_row_groups)), default=1)  # fmt: skip
    return int(max(1, min(_ROWS, ROW_GROUP / max(size, 1))))
