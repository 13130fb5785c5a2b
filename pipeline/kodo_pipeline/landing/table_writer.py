"""Writers of a table's data files, by Arrow in this process or by Spark. Each Parquet file is of one partition, and
counts when a commit names it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import date
from functools import reduce
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kodo_pipeline.landing.data_files import DataFile, of_metadata, partition_path
from kodo_pipeline.landing.tables import DATE, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kodo_pipeline.landing.file_store import Storage

_OPEN: Final = 40  # files at a time
_ROWS: Final = 100_000  # of a row group
_AT_ONCE: Final = 16  # footers read side by side
_SUCCESS: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
ROW_GROUP: Final = 32 * 1024 * 1024
Partition = tuple[str | None, ...]


class PartFile:
    """Writer of one Parquet file of one partition: rows are added until `finish` or `abandon`, one of which must be
    called. The constructor creates the file. `folder`: folder of the table; `attempt`: name of the folder in it for the
    file; `partition`: text value of each partition column, None: null. The file has the table's columns without the
    partition columns (`schema`).
    """

    def __init__(self, folder: Storage, table: Table, attempt: str, partition: Mapping[str, str | None]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self.path = f"{attempt}/{partition_path(partition)}part-{secrets.token_hex(8)}.parquet"
        self.schema = pa.schema([one for one in table.arrow() if one.name not in table.partitions])
        self._table, self._stack, self._about = table, ExitStack(), list[Any]()
        self._out = self._stack.enter_context(folder.output(self.path))
        self._writer = parquet.ParquetWriter(self._out, self.schema, metadata_collector=self._about)
        self._rows: list[pa.RecordBatch] = []
        self._pending = 0, 0  # rows, bytes

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows with exactly the columns of `schema`, and writes them when there are enough for a row group. An
        error of the store is raised as it is; `abandon` converts it.
        """
        self._rows.append(rows)
        self._pending = self._pending[0] + rows.num_rows, self._pending[1] + rows.nbytes
        if self._pending[0] >= _ROWS or self._pending[1] >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._rows), row_group_size=_ROWS)
            self._rows, self._pending = [], (0, 0)

    def finish(self) -> DataFile:
        """Writes the remaining rows, closes the file, and returns its DataFile. Raises KodoctlError (K573)."""
        with self._stack:
            try:
                self._flush()
                self._writer.close()
            finally:
                self._writer.is_open = False  # else its deletion closes it again, and prints what that raises
            return of_metadata(self.path, self._out.tell(), self._about[0], self._table)

    def abandon(self, problem: BaseException) -> None:
        """Closes the file incomplete because of `problem`. It may stay in the folder, and no commit names it. Raises
        KodoctlError (K573) if `problem` is an OSError or a ValueError.
        """
        with suppress(Exception):  # it fails as what came before did
            self._writer.close()
        self._writer.is_open = False
        self._stack.__exit__(type(problem), problem, problem.__traceback__)


class PartitionDays:
    """Computes the column `date` for the rows that one writer writes to a table, when it is called. The table's `days`
    limits the number of different days over all calls (0: no limit): after so many, each further day becomes null.
    """

    def __init__(self, table: Table) -> None:
        self._most, self._days = table.days, set[date]()

    def __call__(self, moments: pa.Array) -> pa.Array:
        """Returns the day (UTC) of each moment. If these have more new days than the maximum still allows, the earliest
        ones count, and the others become null.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        days = moments.cast(pa.date32())
        for day in sorted(pc.unique(days).drop_null().to_pylist()):
            if not self._most or len(self._days) < self._most:
                self._days.add(day)
        return pc.if_else(pc.is_in(days, pa.array(sorted(self._days), pa.date32())), days, None)


class TableWriter:
    """Writer of one attempt's files, in the folder `attempt` of the table's `folder`. Use it as a context manager;
    after the block `files` has every file, and no commit names them yet. If the block raises, files that are not
    finished are abandoned (see PartFile.abandon, which may raise another error), and all files stay in the folder.
    """

    def __init__(self, folder: Storage, table: Table, attempt: str) -> None:
        self._folder, self._table, self._attempt = folder, table, attempt
        self._open: dict[Partition, PartFile] = {}
        self._days = PartitionDays(table)
        self.files: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is not None:
            self._abandon(value)
            return
        try:
            for values in list(self._open):
                self._finish(values)
        except BaseException as problem:
            self._abandon(problem)
            raise

    def _abandon(self, problem: BaseException) -> None:
        """Closes all open files incomplete, also if that raises for one of them."""
        with ExitStack() as stack:
            for one in self._open.values():
                stack.callback(one.abandon, problem)

    def _finish(self, values: Partition) -> None:
        self.files.append(self._open.pop(values).finish())

    def write(self, batch: pa.RecordBatch, days: pa.Array | None = None) -> None:
        """Writes rows with the table's columns; neither rows nor columns need an order, and further columns are left
        out. `days`: value of `date` for each row, to which no maximum applies; None: the day of the table's time column
        as PartitionDays computes it. Raises the errors of PartFile.
        """
        import pyarrow as pa

        schema = self._table.arrow()
        rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema).combine_chunks().to_batches()
        for one in rows:
            for values, share in self._shares(one, days):
                found = self._file(values)
                found.add(share.select(found.schema.names))

    def _shares(self, rows: pa.RecordBatch, days: pa.Array | None) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Yields (values of the partition columns, rows) for each partition."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._table.partitions:
            yield (), rows
            return
        if days is None and DATE in self._table.partitions:
            days = self._days(rows.column(self._table.moment))
        keys = pa.table({name: days if name == DATE else rows.column(name) for name in self._table.partitions})
        distinct = keys.group_by(list(self._table.partitions), use_threads=False).aggregate([]).to_pylist()
        for one in distinct:
            values = tuple(None if value is None else str(value) for value in one.values())
            if len(distinct) == 1:
                yield values, rows
                continue
            same = [
                pc.is_null(keys.column(name))
                if value is None
                else pc.fill_null(pc.equal(keys.column(name), value), fill_value=False)
                for name, value in one.items()
            ]
            yield values, rows.filter(reduce(pc.and_, same).combine_chunks())

    def _file(self, values: Partition) -> PartFile:
        if (found := self._open.pop(values, None)) is None:
            if len(self._open) >= _OPEN:
                self._finish(next(iter(self._open)))  # the one that was written longest ago
            partition = dict(zip(self._table.partitions, values, strict=True))
            found = PartFile(self._folder, self._table, self._attempt, partition)
        self._open[values] = found
        return found


def write_frame(frame: DataFrame, folder: Storage, table: Table, attempt: str, *, few: bool = False) -> list[DataFile]:
    """Writes a frame with the table's columns (and `date` if the table has a time column), and returns the files;
    further columns are left out. Spark writes the files, after deleting whatever is in the folder `attempt`, and each
    footer is read for statistics; with `few`, the rows fit into this process, which collects and writes them, and
    nothing is deleted.
    """
    place = folder / attempt
    made = frame.select(*table.names, *([DATE] if table.moment else []))
    if few:
        with TableWriter(folder, table, attempt) as few_rows:
            for rows in made.toArrow().combine_chunks().to_batches():
                few_rows.write(rows, rows.column(DATE) if table.moment else None)
        return few_rows.files
    writer = made.write.mode("overwrite").option(_SUCCESS, "false")
    writer.partitionBy(*table.partitions).parquet(place.uri)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda name: _write_file(place, attempt, name, table), place.files())
        return [one for one in found if one is not None]


def _write_file(place: Storage, attempt: str, name: str, table: Table) -> DataFile | None:
    from pyarrow import parquet

    if not name.endswith(".parquet") or name.startswith(
        "_"
    ):  # checksums of Hadoop's file system; what a dead task left
        return None
    with place.input(name) as file:
        return of_metadata(f"{attempt}/{name}", file.size(), parquet.read_metadata(file), table)
