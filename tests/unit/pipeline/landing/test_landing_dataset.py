"""Files of a table as a dataset of Arrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from kodo_pipeline.landing.landing_dataset import rows_where


def test_a_condition_holds_for_rows_that_another_writer_wrote_again(tmp_path: Path) -> None:
    rows = [{"id": f"1:{number}", "payload": b"x"} for number in range(3)]
    write_deltalake(str(tmp_path), pa.Table.from_pylist(rows))
    table = DeltaTable(str(tmp_path))
    table.update(updates={"payload": "NULL"}, predicate="id = '1:1'")
    dataset = table.to_pyarrow_dataset()
    with pytest.raises(pa.ArrowNotImplementedError):  # else Arrow can, and what is there for it can go
        dataset.to_table(filter=pc.field("id") == "1:1")
    assert rows_where(dataset, pc.field("id") == "1:1").to_pylist() == [{"id": "1:1", "payload": None}]
    assert rows_where(dataset, pc.field("id") == "none").num_rows == 0
    assert rows_where(dataset, None).num_rows == 3
