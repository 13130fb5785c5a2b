"""Maintenance of a landing, without Spark: the same rows in fewer files, once, whoever is killed or comes in between."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kodo_pipeline.landing import data_rewrite
from kodo_pipeline.landing.delta_tables import ConcurrentCommitError, LandingTable
from kodo_pipeline.landing.landing_commits import (
    HISTORY,
    ROLLUP_RUN,
    LandingCommit,
    batches,
    batches_with_messages,
    last_begin,
    last_reading,
    newest_batch,
    read_at,
    rows_of,
    times_of,
    unfinished_runs,
)
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.table_writer import PartFile
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, ROLLUP, TABLES
from kodo_pipeline.upkeep import landing_maintenance
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, is_due, maintain

from kodoctl.errors import KodoctlError
from tests.unit.pipeline.landings import DAY, anew, batch, event, stored


def fill(landing: Landing, most: int = 10, begin: int = 0) -> None:
    """So many batches, of two rows each."""
    for number in range(begin, most):
        landing.commit(batch(landing, number))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten batches."""
    folder = tmp_path_factory.mktemp("template")
    fill(Landing(str(folder), "trade", None))
    return folder


@pytest.fixture
def filled(template: Path, landing: Landing, tmp_path: Path) -> Landing:
    """A copy for one test: to fill one takes ten times as long."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return landing


def parquet_files(landing: Landing, table: str = "events") -> list[str]:
    return [
        name
        for name in (landing.root / table).files()
        if name.endswith(".parquet") and not name.startswith("_delta_log")
    ]


def age(landing: Landing, hours: float) -> None:
    """All files are so much older, and were replaced so much earlier."""
    at = time.time() - 3600 * hours
    for path in Path(landing.root.uri).rglob("*.parquet"):
        os.utime(path, (at, at))


def test_small_files_become_one_with_the_same_rows(filled: Landing) -> None:
    before = sorted(stored(filled), key=str)
    done = maintain(MaintenanceRequest(filled, "m1"))
    assert (done.files["events"], done.files["coverage"], done.files["cursors"]) == ((10, 1), (10, 1), (0, 0))
    assert sorted(stored(filled), key=str) == before
    (file,) = anew(filled).snapshot(EVENTS).files["events"]
    assert (file.batch, file.rows, file.since) == (9, 20, round(DAY.timestamp() * 1000))
    assert len(parquet_files(filled)) == 11, "readers that began before may read the others"
    again = maintain(MaintenanceRequest(filled, "m2"))
    assert again.files["events"] == (1, 1)
    assert maintain(MaintenanceRequest(filled, "m3", retain=0)).removed >= 20
    assert parquet_files(filled) == [file.path]
    assert not [one for one in Path(filled.root.uri, "events").iterdir() if not list(one.iterdir())]


def test_files_of_other_partitions_and_beyond_what_was_counted_stay_apart(landing: Landing) -> None:
    for number in range(6):
        rows = [event(number, f"t:{number % 2}", DAY + timedelta(days=day)) for day in range(2)]
        found = landing.write_rows(EVENTS, f"{number:09d}-r", rows)
        landing.commit(LandingCommit("r", 1, number, {EVENTS.name: found}))
        if number == 3:
            landing.commit(LandingCommit(ROLLUP_RUN, 1, facts={"batch": 3}))
    before = sorted(stored(landing), key=str)
    maintain(MaintenanceRequest(landing, "m1"))
    files = landing.snapshot(EVENTS).files["events"]
    assert sorted((one.batch, one.partition["topic"], one.partition["date"]) for one in files) == [
        (batch, f"t:{batch % 2}", f"2026-01-0{2 + day}") for batch in (2, 3, 4, 5) for day in range(2)
    ]
    assert sorted(stored(landing), key=str) == before


@pytest.mark.parametrize("stage", ["rewritten", "exchanged", "removing", "log"])
def test_a_maintenance_that_is_killed_leaves_every_row_once(
    filled: Landing, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    before = sorted(stored(filled), key=str)

    def dying(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    owner, name = {
        "rewritten": (LandingTable, "exchange"), "exchanged": (LandingTable, "tidy_log"),
        "removing": (landing_maintenance, "remove_unnamed"), "log": (Landing, "commit"),
    }[stage]  # fmt: skip
    filled.start("m1", "maintain")
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises(KeyboardInterrupt):
            maintain(MaintenanceRequest(filled, "m1"))
    after = anew(filled)
    assert sorted(stored(after), key=str) == before
    after.commit(batch(after, 10))
    after.sweep("maintain", alone=True)
    assert maintain(MaintenanceRequest(after, "m2", retain=0)).files["events"][1] <= 2
    assert len(stored(after)) == 22
    assert sorted(parquet_files(after)) == sorted(one.path for one in after.snapshot(EVENTS).files["events"])


def test_of_two_maintenances_at_once_one_leaves_the_files_alone(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, other = LandingTable.exchange, anew(filled)

    def late(self: LandingTable, *arguments: Any) -> bool:
        if self.table is EVENTS and not done:
            done.append(self.table)
            maintain(MaintenanceRequest(other, "m2"))
        return exchange(self, *arguments)

    done: list[Any] = []
    monkeypatch.setattr(LandingTable, "exchange", late)
    with pytest.raises(KodoctlError, match="K575"):
        maintain(MaintenanceRequest(filled, "m1"))
    assert len(stored(filled)) == 20
    assert len(anew(filled).snapshot(*TABLES).files["events"]) == 1
    assert not [name for name in parquet_files(filled) if "-m1-" in name]


def test_files_of_a_commit_that_was_done_and_answered_as_refused_stay(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LandingTable._write

    def refused(self: LandingTable, *arguments: Any) -> None:
        write(self, *arguments)
        raise ConcurrentCommitError

    monkeypatch.setattr(LandingTable, "_write", refused)
    assert maintain(MaintenanceRequest(filled, "m1")).files["events"] == (10, 1)
    assert len(stored(filled)) == 20


def test_a_commit_between_reading_and_exchanging_is_kept(filled: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    write, other = LandingTable._write, anew(filled)

    def late(self: LandingTable, *arguments: Any) -> None:
        if self.table is EVENTS and not done:
            done.append(self.table)
            other.commit(batch(other, 10))
        write(self, *arguments)

    done: list[Any] = []
    monkeypatch.setattr(LandingTable, "_write", late)
    filled.table(EVENTS).load()
    maintain(MaintenanceRequest(filled, "m1"))
    assert len(stored(filled)) == 22
    assert sorted(one.batch for one in anew(filled).snapshot(EVENTS).files["events"]) == [9, 10]


def test_others_that_commit_without_end_are_told(filled: Landing, monkeypatch: pytest.MonkeyPatch) -> None:

    def refused(*_: Any) -> None:
        raise ConcurrentCommitError

    monkeypatch.setattr(LandingTable, "_write", refused)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)others commit without end"):
        maintain(MaintenanceRequest(filled, "m1"))


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_file_that_is_gone_or_short_is_told_and_nothing_is_replaced(filled: Landing, damage: str) -> None:
    path = Path(filled.root.uri, "events", filled.snapshot(EVENTS).files["events"][3].path)
    if damage == "gone":
        path.unlink()
    else:
        (one,) = filled.write_rows(EVENTS, "other", [event(1)]).files or ()
        path.write_bytes(Path(filled.root.uri, "events", one.path).read_bytes())
    with pytest.raises(KodoctlError, match=rf"K573(?s:.*){path.name}"):
        maintain(MaintenanceRequest(filled, "m1"))
    assert len(filled.snapshot(EVENTS).files["events"]) == 10


@pytest.mark.full
def test_rows_that_something_else_removed_are_told_after_maintenance(landing: Landing) -> None:
    fill(landing, 40)
    maintain(MaintenanceRequest(landing, "m1"))
    DeltaTable(f"{landing.root.uri}/events").delete("id = '7:1:0:-1'")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events has 40 of 80 rows"):
        anew(landing).snapshot(EVENTS)
    with pytest.raises(KodoctlError, match="K573"):
        maintain(MaintenanceRequest(anew(landing), "m2"))


def test_what_a_killed_run_left_goes_after_its_time(filled: Landing) -> None:
    batch(filled, 77, "killed")
    (filled.root / "events").write(".part-1.parquet.crc", {})
    maintain(MaintenanceRequest(filled, "m1"))
    assert [name for name in parquet_files(filled) if "-killed" in name]
    age(filled, 25)
    maintain(MaintenanceRequest(filled, "m2"))
    assert not [name for name in parquet_files(filled) if "-killed" in name]
    assert len(parquet_files(filled)) == 11, "what was replaced just now stays, however old its file is"


@pytest.mark.full
def test_old_commits_become_one_and_say_what_they_said(landing: Landing) -> None:
    cursors = landing.write_rows(CURSORS, "r1", [{"ingest_run": "r1", "msg_topic": "t"}])
    landing.commit(LandingCommit("r1", 5, tables={CURSORS.name: cursors}, facts={"clock": {}}))
    fill(landing, 60)
    found = anew(landing).commits()
    assert len(found) <= 19
    assert unfinished_runs(found) == ["r1"], "the beginning of a run that goes on is kept"
    landing.commit(LandingCommit("r1-end", 5, facts={"complete": True}))
    looked = landing.write_rows(CURSORS, "r2", [{"ingest_run": "r2", "msg_topic": "t"}])
    landing.commit(LandingCommit("r2", 9, tables={CURSORS.name: looked}))
    fill(landing, 100, 60)
    found = anew(landing).commits()
    assert len(found) <= 20
    assert (read_at(found), unfinished_runs(found), last_begin(found)) == (5, ["r2"], 9)
    reading = last_reading(found)
    assert reading is not None
    assert (reading.run, reading.facts) == ("r1", {"clock": {}})
    assert (batches_with_messages(found), newest_batch(found), max(batches(found))) == (100, 99, 99)
    assert (rows_of(found, EVENTS), rows_of(found, COVERAGE), rows_of(found, CURSORS)) == (200, 100, 2)
    assert times_of(found, EVENTS) == (round(DAY.timestamp() * 1000),) * 2
    assert [one.run for one in found].count(HISTORY) == 1
    assert len(anew(landing).snapshot(*TABLES).files["events"]) == 100
    with pytest.raises(KodoctlError, match=r"K575(?s:.*)committed batch 3"):
        landing.commit(batch(landing, 3, "r9"))


@pytest.mark.full
def test_a_table_that_lacks_an_old_commit_is_told(landing: Landing) -> None:
    fill(landing, 30)
    Path(landing.root.uri, "coverage/_delta_log/_last_checkpoint").unlink()
    for path in Path(landing.root.uri, "coverage/_delta_log").glob("*"):
        if int(path.name[:20]) > 5:
            path.unlink()
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)coverage lacks files"):
        anew(landing).snapshot(EVENTS, COVERAGE)


def logs(landing: Landing) -> int:
    return len(list(Path(landing.root.uri).glob("*/_delta_log/*")))


@pytest.mark.full
def test_logs_are_as_long_after_many_batches_as_after_some_without_any_maintenance(landing: Landing) -> None:
    reader, counts = anew(landing), []
    for number in range(80):
        landing.commit(batch(landing, number, rows=1))
        for path in Path(landing.root.uri).glob("*/_delta_log/*.*"):  # a batch each minute
            at = path.stat().st_mtime - 60
            os.utime(path, (at, at))
        if number == 0:
            reader.snapshot(EVENTS)
        if number % 40 == 39:
            counts.append(logs(landing))
    assert max(counts) <= 5 * 50, "of five tables: two checkpoints with 20 commits each, and a little more"
    assert max(counts[1:]) <= counts[0] * 1.1
    files = anew(landing).snapshot(EVENTS, COVERAGE).files
    assert sum(one.rows for one in files["events"]) == 80
    assert reader.snapshot(EVENTS, COVERAGE).files == files, "who began before the log was shortened has all of it"


def test_a_kill_while_a_log_is_shortened_leaves_a_table_that_is_whole(landing: Landing) -> None:
    for number in range(45):
        landing.commit(batch(landing, number, rows=1))
    log = Path(landing.root.uri, "events/_delta_log")
    last = max(int(one.name[:20]) for one in log.glob("*.checkpoint.parquet"))
    for number in range(0, last, 3):  # some of what a checkpoint stands for
        (log / f"{number:020d}.json").unlink()
    assert sum(one.rows for one in anew(landing).snapshot(EVENTS).files["events"]) == 45
    landing.commit(batch(landing, 45, rows=1))
    maintain(MaintenanceRequest(anew(landing), "m1"))
    assert len(stored(landing)) == 46


def test_a_table_that_is_read_as_a_whole_has_the_rows_of_all_files(landing: Landing) -> None:
    fill(landing, 3)
    table, files = landing.table(COVERAGE), landing.snapshot(COVERAGE).files["coverage"]
    found = data_rewrite.small_rows(table, files)
    assert sorted(found.column("batch").to_pylist()) == [0, 1, 2]
    none = data_rewrite.small_rows(table, ())
    assert none.schema == found.schema == COVERAGE.arrow()
    assert none.column(0).num_chunks == 1, "without one Spark cannot take it over"
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)has 1 of 2 rows"):
        data_rewrite.small_rows(table, [replace(files[0], rows=2)])


def test_maintenance_is_due_after_so_many_batches_or_runs(landing: Landing) -> None:
    assert not is_due(landing.commits(), 3)
    fill(landing, 3)
    assert (is_due(landing.commits(), 3), is_due(landing.commits(), 0), is_due(landing.commits(), 4)) == (
        True,
        False,
        False,
    )
    maintain(MaintenanceRequest(landing, "m1"))
    assert not is_due(landing.commits(), 3)
    for run in range(5):
        assert not is_due(landing.commits(), 3)
        landing.commit(LandingCommit(f"r{run}", run))
        landing.commit(LandingCommit(f"r{run}-end", run))
    assert is_due(landing.commits(), 3)


def test_what_a_rollup_is_about_to_commit_stays_however_little_is_retained(filled: Landing) -> None:
    made = filled.write_rows(ROLLUP, "rollup-r1", [{"arrivals": 1}])
    maintain(MaintenanceRequest(anew(filled), "m1", retain=0))
    filled.commit(LandingCommit(ROLLUP_RUN, 1, tables={ROLLUP.name: made}, facts={"batch": 9}))
    assert [row["arrivals"] for row in stored(filled, "rollup")] == [1]


def test_what_is_left_of_a_killed_ingest_goes_and_what_readers_hold_of_it_stays(landing: Landing) -> None:
    run = "20260101-000000-ab"
    landing.start(run)
    for number in range(6):
        landing.commit(batch(landing, number, run))
    batch(landing, 6, run)
    held = anew(landing).snapshot(EVENTS).files["events"]
    maintain(MaintenanceRequest(anew(landing), "m1"))
    after = anew(landing)
    after.sweep(alone=True)
    assert after.table(EVENTS).holds(held)
    assert not [name for name in parquet_files(landing) if name.startswith("000000006")]


def test_rows_of_large_payloads_are_read_a_few_at_a_time(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_rewrite, "ROW_GROUP", 1000)
    for number in range(3):
        rows = [{**event(one), "payload": os.urandom(600)} for one in range(5)]
        found = landing.write_rows(EVENTS, f"{number:09d}-r", rows)
        landing.commit(LandingCommit("r", 1, number, {EVENTS.name: found}))
    seen: list[int] = []
    add = PartFile.add

    def counted(self: PartFile, rows: Any) -> None:
        seen.append(rows.num_rows)
        add(self, rows)

    monkeypatch.setattr(PartFile, "add", counted)
    maintain(MaintenanceRequest(landing, "m1"))
    assert max(seen) == 1
    assert len(stored(landing)) == 15
