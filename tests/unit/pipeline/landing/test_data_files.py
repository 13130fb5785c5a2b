"""Data files: one partition each, with statistics that never exclude a row they hold."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kodo_pipeline.landing import table_writer
from kodo_pipeline.landing.data_files import DataFile, partition_path
from kodo_pipeline.landing.file_store import Storage
from kodo_pipeline.landing.table_writer import PartFile, TableWriter
from kodo_pipeline.landing.tables import COVERAGE, EVENTS, ROLLUP, Table
from pyarrow import parquet

from kodoctl.errors import KodoctlError

DAY = datetime(2026, 1, 1, 23, 59, 59, 999_999, UTC)


def written(folder: Path, table: Table, *batches: list[dict[str, Any]]) -> list[DataFile]:
    with TableWriter(Storage(str(folder)), table, "000000007-run") as writer:
        for rows in batches:
            for one in pa.Table.from_pylist(rows, schema=table.arrow()).to_batches():
                writer.write(one)
    return sorted(writer.files, key=lambda one: one.path)


def event(topic: str | None, at: datetime | None, **columns: Any) -> dict[str, Any]:
    return {"topic": topic, "publish_ts": at} | columns


def test_rows_go_into_a_file_of_each_day_and_topic(tmp_path: Path) -> None:
    rows = [event("orders", DAY, ledger=5), event("a:b=c", DAY), event("orders", DAY + timedelta(microseconds=1)),
            event(None, None), event("orders", datetime(1969, 12, 31, 23, tzinfo=UTC))]  # fmt: skip
    files = written(tmp_path, EVENTS, rows, [event("orders", DAY, ledger=9)])
    assert {(one.partition["date"], one.partition["topic"]): one.rows for one in files} == {
        ("2026-01-01", "orders"): 2, ("2026-01-01", "a:b=c"): 1, ("2026-01-02", "orders"): 1, (None, None): 1,
        ("1969-12-31", "orders"): 1,
    }  # fmt: skip
    for one in files:
        assert one.path.startswith(f"000000007-run/{partition_path(one.partition)}")
        assert one.path.count("=") == 2, "what a name has of = and : is written otherwise"
        assert one.batch == 7
        assert one.size == (tmp_path / one.path).stat().st_size
        assert parquet.ParquetFile(tmp_path / one.path).schema_arrow.names == [
            name for name in EVENTS.names if name != "topic"
        ], "what the folders say is in no file"
    stats = json.loads(next(one for one in files if one.rows == 2).stats)
    assert (stats["numRecords"], stats["minValues"]["ledger"], stats["maxValues"]["ledger"]) == (2, 5, 9)
    assert (stats["minValues"]["publish_ts"], stats["maxValues"]["publish_ts"]) == (
        "2026-01-01T23:59:59.999Z",
        "2026-01-02T00:00:00.000Z",
    ), "bounds in whole milliseconds lie outside"
    assert stats["nullCount"]["reason"] == 2
    assert "reason" not in stats["minValues"]


def test_days_that_are_given_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([event("orders", DAY, id=str(number)) for number in range(3)], schema=EVENTS.arrow())
    with TableWriter(Storage(str(tmp_path)), EVENTS, "000000007-run") as writer:
        writer.write(rows.to_batches()[0], pa.array([date(2026, 1, 5), None, date(2026, 1, 5)], pa.date32()))
    assert {one.partition["date"]: one.rows for one in writer.files} == {"2026-01-05": 2, None: 1}


def test_a_table_without_partitions_has_one_file(tmp_path: Path) -> None:
    (file,) = written(tmp_path, COVERAGE, [{"split_id": "x" * 65, "rows": 1}], [{"split_id": "y", "rows": 2}])
    assert (file.partition, file.rows, file.since, file.until) == ({}, 2, None, None)
    stats = json.loads(file.stats)
    assert "split_id" not in stats["minValues"], "a long text says nothing"
    assert "full" not in stats["minValues"]
    assert written(tmp_path, COVERAGE) == []


def test_a_sender_that_invents_days_makes_no_file_of_each(tmp_path: Path) -> None:
    days = [event("orders", DAY + timedelta(days=number)) for number in range(80)]
    files = written(tmp_path, EVENTS, days)
    assert len(files) == 51
    (other,) = (one for one in files if one.partition["date"] is None)
    assert other.rows == 30
    assert other.touches(int((DAY + timedelta(days=60)).timestamp() * 1000), None), "its statistics tell"


def test_windows_of_every_day_have_a_partition_and_few_files_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "_OPEN", 3)
    rows = [{"window_ts": DAY + timedelta(days=number), "arrivals": 1} for number in range(60)]
    files = written(tmp_path, ROLLUP, rows, rows)
    assert sum(one.rows for one in files) == 120
    assert {one.partition["date"] for one in files} == {
        (date(2026, 1, 1) + timedelta(days=one)).isoformat() for one in range(60)
    }


def test_many_rows_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_writer, "_ROWS", 10)
    (file,) = written(tmp_path, COVERAGE, *([{"rows": number} for number in range(7)] for _ in range(4)))
    about = parquet.ParquetFile(tmp_path / file.path).metadata
    assert (about.num_rows, about.num_row_groups) == (28, 4)
    assert json.loads(file.stats)["maxValues"]["rows"] == 6


def test_what_the_store_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KodoctlError, match="K573"):
        written(tmp_path / "file", COVERAGE, [{"rows": 1}])
    (batch,) = pa.Table.from_pylist([{"rows": 1}], schema=COVERAGE.arrow()).to_batches()
    writer = TableWriter(Storage(str(tmp_path)), COVERAGE, "a")
    writer.write(batch)
    full = OSError("no space")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)no space"):
        writer.__exit__(type(full), full, None)


@pytest.mark.parametrize("problem", [OSError("no space"), None], ids=["in the block", "after it"])
def test_no_file_stays_open_when_the_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: OSError | None
) -> None:
    writer = TableWriter(Storage(str(tmp_path)), EVENTS, "a")
    rows = [event("orders", DAY), event("mail", DAY), event("jobs", DAY)]
    writer.write(*pa.Table.from_pylist(rows, schema=EVENTS.arrow()).to_batches())
    files = list(writer._open.values())

    def fails(_: PartFile) -> None:
        raise OSError("no space")

    monkeypatch.setattr(PartFile, "_flush", fails)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)no space"):
        writer.__exit__(None if problem is None else OSError, problem, None)
    assert [one._writer.is_open for one in files] == [False] * 3


@pytest.mark.parametrize(
    ("since", "until", "touched"),
    [(None, None, True), (10, 20, True), (5, 10, False), (5, 11, True), (20, 30, True), (21, 30, False)],
)
def test_files_are_passed_over_by_the_bounds_of_their_times(
    since: int | None, until: int | None, *, touched: bool
) -> None:
    assert DataFile("000000001-r/part-0.parquet", 1, 3, {}, 10, 20).touches(since, until) is touched
    assert DataFile("r.parquet", 1, 3, {}).touches(since, until), "no bounds: nobody knows"
    assert DataFile("date=2026-01-01/000000001-part-1.parquet", 1, 3, {}).batch == -1, "no ingest wrote it"


def test_what_a_dead_task_of_spark_left_is_no_file_of_the_attempt(tmp_path: Path) -> None:
    (one,) = written(tmp_path, EVENTS, [event("orders", DAY)])
    attempt, _, name = one.path.partition("/")
    place = Storage(str(tmp_path / attempt))
    found = table_writer._write_file(place, attempt, name, EVENTS)
    assert found is not None
    assert (found.path, found.rows, found.partition) == (one.path, 1, one.partition)
    left = tmp_path / attempt / "_temporary/0/_temporary/attempt_1" / name
    left.parent.mkdir(parents=True)
    left.write_bytes((tmp_path / one.path).read_bytes())
    (tmp_path / attempt / f".{Path(name).name}.crc").touch()
    every = [table_writer._write_file(place, attempt, there, EVENTS) for there in place.files()]
    assert [one for one in every if one is not None] == [found], "its rows would count twice"
