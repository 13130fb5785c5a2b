"""Files of a table of the landing as one Arrow dataset, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from kodo_pipeline.landing.file_store import STORE
from kodo_pipeline.landing.tables import DATE

if TYPE_CHECKING:
    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.file_store import Storage
    from kodo_pipeline.landing.tables import Table


def dataset_of(folder: Storage, table: Table, files: Sequence[DataFile]) -> Any:
    """Makes an Arrow dataset of files in `folder`, with the columns of `table`. A filter on a partition column skips
    files without opening them.
    """
    from pyarrow import dataset

    system, base = _system(folder, files)
    format_ = dataset.ParquetFileFormat()
    fragments = [
        format_.make_fragment(f"{base}{one.path}", filesystem=system, partition_expression=_expression(one))
        for one in files
    ]
    return dataset.FileSystemDataset(fragments, table.delta(), format_, system)


def rows_where(rows: Any, wanted: Any) -> Any:
    """Reads the rows of a dataset that meet the condition `wanted` (None: all rows) into one Arrow table."""
    import pyarrow as pa

    try:
        return rows.to_table(filter=wanted)
    except (
        pa.ArrowNotImplementedError
    ):  # a file of another writer has string views, which no condition on a file compares
        return pa.concat_tables(pa.Table.from_batches([one]).filter(wanted) for one in rows.to_batches())


def _system(folder: Storage, files: Sequence[DataFile]) -> tuple[Any, str]:
    """Returns (file system, prefix of a path in the file system). For an object store the file system is that of
    delta-rs, because Arrow's fails when a busy store refuses a read of a few bytes
    (kodo_pipeline.landing.file_store.read_again).
    """
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs

    if folder.local is not None:
        system, base = folder.opened()
        return system, f"{base}/"
    return fs.PyFileSystem(DeltaStorageHandler(folder.address, STORE, {one.path: one.size for one in files})), ""


def _expression(file: DataFile) -> Any:
    import pyarrow.compute as pc

    known: list[Any] = [
        pc.field(name).is_null()
        if value is None
        else pc.field(name) == (date.fromisoformat(value) if name == DATE else value)
        for name, value in file.partition.items()
    ]
    return reduce(and_, known) if known else pc.scalar(value=True)
