"""The landing as Delta tables, without Spark: what counts, once and whole, and what is told where something is wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kodo_pipeline.evidence.cursors import last_looks
from kodo_pipeline.landing import landing_store
from kodo_pipeline.landing.data_files import DataFile
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_commits import ROLLUP_RUN, LandingCommit, TableFiles, batches_with_messages
from kodo_pipeline.landing.landing_store import Landing, must_hold
from kodo_pipeline.landing.tables import COMMITS, COVERAGE, CURSORS, EVENTS, ROLLUP, TABLES
from kodo_pipeline.source.partition_stats import PartitionMetadata
from kodo_pipeline.spark.spark_errors import spark_error

from kodoctl.errors import KodoctlError, LockedError, UsageError, error
from tests.unit.pipeline.landings import DAY, anew, batch, stored


def test_a_batch_that_is_repeated_is_committed_once(landing: Landing) -> None:
    made = batch(landing, 0)
    first = landing.commit(made)
    assert (first.number, landing.commit(made).number) == (0, 0)
    assert Landing(str(landing.root.local.parents[1]), "trade", None).commit(made) == first  # type: ignore[union-attr]
    assert [row["properties"] for row in stored(landing)] == [[("n", "0")], [("n", "1")]]
    assert {row["date"] for row in stored(landing)} == {DAY.date()}
    assert [(one.batch, one.tables["events"].rows) for one in landing.commits()] == [(0, 2)]
    assert DeltaTable(f"{landing.root.uri}/events").transaction_version("kodoctl") == 0


def test_a_batch_of_another_run_is_refused_and_adds_nothing(landing: Landing) -> None:
    landing.commit(batch(landing, 0))
    with pytest.raises(LockedError, match=r"K575(?s:.*)committed batch 0"):
        landing.commit(batch(landing, 0, "r2"))
    assert len(stored(landing)) == 2
    landing.start("r2")
    landing.sweep(alone=True)
    assert not [one for one in (landing.root / "events").files() if "-r2/" in one]
    assert len(stored(landing)) == 2


@pytest.mark.parametrize("dies_at", ["events", "coverage"])
def test_a_writer_killed_between_two_tables_leaves_a_batch_that_counts_in_all(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    landing.commit(batch(landing, 0))
    add = LandingTable.add

    def dying(self: LandingTable, *arguments: Any) -> None:
        if self.table.name == dies_at:
            raise KeyboardInterrupt
        add(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LandingTable, "add", dying)
        with pytest.raises(KeyboardInterrupt):
            landing.commit(batch(landing, 1))
    after = Landing(str(landing.root.local.parents[1]), "trade", None)  # type: ignore[union-attr]
    snapshot = after.snapshot(EVENTS, COVERAGE)
    assert {name: sum(one.rows for one in files) for name, files in snapshot.files.items()} == {
        "events": 4,
        "coverage": 2,
    }
    assert len(stored(landing, "coverage")) == 1, "who reads one table alone sees the commit when it is there"
    events, files = after.table(EVENTS), snapshot.files["events"]
    rows = events.rows_among(files, "id", ["7:1:0:-1"], {"topic": "orders"})
    assert [row["properties"] for row in rows] == [[("n", "1")]] * 2, "as of the commit, whatever the tables have"
    assert events.rows_among(files, "id", ["7:1:0:-1"], {"topic": "others"}) == []
    after.recover()
    assert (len(stored(landing)), len(stored(landing, "coverage"))) == (4, 2)
    after.recover()
    assert len(stored(landing)) == 4


def test_a_writer_killed_before_the_commit_leaves_nothing_that_counts(landing: Landing) -> None:
    landing.start("r1")
    batch(landing, 0)
    assert landing.snapshot(EVENTS).files == {"events": []}
    assert landing.commits() == []
    landing.sweep(alone=False)
    assert len((landing.root / "events").files()) == 1, "it may be running"
    landing.sweep(alone=True)
    assert (landing.root / "events").files() == []
    assert (landing.root / "_work").folders() == []


def test_of_two_writers_at_once_each_batch_counts_for_one(landing: Landing) -> None:
    def write(run: str) -> list[str]:
        own, said = Landing(str(landing.root.local.parents[1]), "trade", None), []  # type: ignore[union-attr]
        for number in range(8):
            try:
                own.commit(batch(own, number, run, 3))
                said.append("committed")
            except LockedError:
                said.append("refused")
        return said

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(write, ["r1", "r2"]))
    assert [sorted(pair) for pair in zip(*both, strict=True)] == [["committed", "refused"]] * 8
    commits = landing.commits()
    assert [one.batch for one in commits] == [*range(8)]
    assert (len(stored(landing)), len(stored(landing, "coverage"))) == (24, 8)
    runs = {f"{one.batch:09d}-{one.run}" for one in commits}
    assert {row["split_id"] for row in stored(landing, "coverage")} == runs, "of one batch all is of one run"
    files = landing.snapshot(EVENTS, COVERAGE).files.values()
    assert {one.path.split("/")[0] for found in files for one in found} == runs


def test_a_rollup_replaces_days_and_is_refused_behind_another(landing: Landing) -> None:
    def count(run: str, arrivals: int, days: tuple[str, ...] | None, behind: int) -> LandingCommit:
        rows = [{"window_ts": DAY + timedelta(days=one), "topic": "orders", "arrivals": arrivals} for one in range(2)]
        written = landing.write_rows(ROLLUP, f"rollup-{run}", rows)
        kept = tuple(one for one in written.files or () if days is None or one.partition["date"] in days)
        made = TableFiles.of(kept, days or ())
        return landing.commit(
            LandingCommit(ROLLUP_RUN, 1, tables={ROLLUP.name: made}, facts={"run": run}), behind=behind
        )

    first = count("a", 1, None, -1)
    second = count("b", 5, ("2026-01-03",), first.number)
    assert sorted((row["date"].isoformat(), row["arrivals"]) for row in stored(landing, "rollup")) == [
        ("2026-01-02", 1), ("2026-01-03", 5),
    ]  # fmt: skip
    with pytest.raises(LockedError, match="K575"):
        count("c", 7, None, first.number)
    assert [one.facts["run"] for one in landing.commits()] == ["b"], "the last one is kept"
    count("d", 9, None, second.number)
    assert [row["arrivals"] for row in stored(landing, "rollup")] == [9, 9]
    landing.end("d", ROLLUP_RUN)
    assert len(landing.snapshot(ROLLUP).files["rollup"]) == 2


def test_a_reader_that_began_before_many_commits_sees_one_moment(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.commit(batch(landing, 0))
    version, committed = LandingTable.version, iter(range(1, 40))

    def slow(self: LandingTable) -> Any:
        found = version(self)
        if self.table is EVENTS:
            for number in islice(committed, 20):
                other.commit(batch(other, number))
        return found

    other = Landing(str(landing.root.local.parents[1]), "trade", None)  # type: ignore[union-attr]
    monkeypatch.setattr(LandingTable, "version", slow)
    found = landing.snapshot(EVENTS, COVERAGE)
    rows = {name: sum(one.rows for one in files) for name, files in found.files.items()}
    assert rows == {"events": 80, "coverage": 40}
    assert batches_with_messages(found.commits) == 40


def test_a_reader_that_began_before_two_rollups_sees_the_days_of_both(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, behind = LandingTable.version, -1

    def count(run: str, day: int) -> None:
        nonlocal behind
        rows = [{"window_ts": DAY + timedelta(days=day), "topic": "orders", "arrivals": day}]
        files = landing.write_rows(ROLLUP, f"rollup-{run}", rows).files or ()
        made = TableFiles.of(files, [str(files[0].partition["date"])])
        behind = landing.commit(LandingCommit(ROLLUP_RUN, 1, tables={ROLLUP.name: made}), behind=behind).number

    def slow(self: LandingTable) -> Any:
        found = version(self)
        if behind < 0:
            count("a", 0)
            count("b", 1)
        return found

    monkeypatch.setattr(LandingTable, "version", slow)
    found = landing.snapshot(ROLLUP).files["rollup"]
    assert sorted(str(one.partition["date"]) for one in found) == ["2026-01-02", "2026-01-03"]


@pytest.mark.parametrize("name", ["a%20b", "a[b]", "a*", "a|b", "a\\b"])
def test_a_path_that_means_another_to_delta_or_spark_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)would look elsewhere"):
        Landing(str(tmp_path / name), "trade", None)


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "ü", "a'b"])
def test_a_path_that_is_strange_to_people_alone_is_taken(tmp_path: Path, name: str) -> None:
    landing = Landing(str(tmp_path / name), "trade", None)
    landing.commit(batch(landing, 0))
    assert len(anew(landing).snapshot(EVENTS).files["events"]) == 1
    assert (tmp_path / name / "trade/base/events/_delta_log").is_dir()


@pytest.mark.parametrize("place", ["/proc/nowhere", "{}/file/landing"])
def test_where_nothing_can_be_written_is_told_before_anything_else(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    landing = Landing(place.format(tmp_path), "trade", None)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)name another folder with --landing"):
        landing.check()
    with pytest.raises(KodoctlError, match="K573"), landing.alone("rollup"):
        pass


def test_a_lost_checkpoint_is_told_where_batches_are(landing: Landing) -> None:
    landing.check()
    landing.commit(LandingCommit("r", 1))
    landing.check()
    landing.commit(batch(landing, 0))
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)_checkpoint is gone"):
        landing.check()


def test_one_ingest_at_a_time_and_beside_it_a_rollup(landing: Landing) -> None:
    with landing.alone() as alone, landing.alone("rollup") as too:
        assert alone
        assert too
        with pytest.raises(LockedError, match=r"K575(?s:.*)another ingest, maintenance,"), landing.alone():
            pass
        with pytest.raises(LockedError, match=r"K575(?s:.*)another rollup is"), landing.alone("rollup"):
            pass


def test_where_nothing_has_landed_the_other_environments_are_named(landing: Landing) -> None:
    with pytest.raises(UsageError, match="K801"):
        must_hold(landing, "T")
    assert not Path(landing.root.uri).exists()
    prod = Landing(str(landing.root.local.parents[1]), "trade", "prod")  # type: ignore[union-attr]
    prod.commit(LandingCommit("r", 1, tables={CURSORS.name: prod.write_rows(CURSORS, "r", [{}])}))
    with pytest.raises(UsageError, match="there is prod: --env names"):
        must_hold(landing, "T")
    with pytest.raises(UsageError, match="no run but one that was cut off"):
        must_hold(prod, "T")
    prod.commit(LandingCommit("r-end", 1, facts={"complete": True}))
    must_hold(prod, "T")
    with pytest.raises(UsageError, match="holds no messages"):
        must_hold(prod, "T", messages=True)
    prod.commit(batch(prod, 0))
    must_hold(prod, "T", messages=True)


def test_all_tables_are_there_for_other_readers(landing: Landing) -> None:
    landing.commit(LandingCommit("r", 1))
    for table in (*TABLES, COMMITS):
        found = DeltaTable(f"{landing.root.uri}/{table.name}")
        assert [one.name for one in found.schema().fields] == table.delta().names
        assert found.metadata().partition_columns == list(table.partitions)
        assert found.to_pyarrow_dataset().count_rows() == (table is COMMITS)


@pytest.mark.parametrize("folder", ["land", "my land"])
def test_a_file_that_is_gone_is_told_as_such(folder: str) -> None:
    said = f"[PATH_NOT_FOUND] Path does not exist: file:/{folder}/trade/base/events/000000001-r.1. SQLSTATE: 42K03"
    found = spark_error(said, error("K577", "Spark failed", said))
    assert str(found).startswith("K573")
    assert f"file:/{folder}/trade/base/events/000000001-r.1 is gone, and its table names it" in str(found)


def test_what_the_last_run_that_ended_saw_is_known_without_spark(landing: Landing) -> None:
    assert last_looks(landing) == {}
    made = datetime(2026, 1, 1, tzinfo=UTC)
    for at, run in enumerate(("r1", "r2", "r3"), 1):
        fixed = {
            "msg_topic": "persistent://a/b/c", "topic": "c", "mark_ledger": 7, "mark_entry": 3, "acknowledged": [],
            "first_ledger": 7, "created_ts": made, "rewrites": at, "taken_ts": made, "ingest_run": run,
        }  # fmt: skip
        rows = [
            {"msg_partition": number, "subscription": name, **fixed} for number in (0, 1) for name in ("", "billing")
        ]
        landing.commit(LandingCommit(run, at, tables={"cursors": landing.write_rows(CURSORS, run, rows)}))
        if run != "r3":  # cut short: what it saw may be behind what it did not read
            landing.commit(LandingCommit(f"{run}-end", at, facts={"complete": True}))
    history = PartitionMetadata(made, 2)
    assert last_looks(landing) == {f"persistent://a/b/c-partition-{number}": history for number in (0, 1)}


@pytest.mark.parametrize(
    ("rows", "size", "few"), [(50_000, 1, True), (50_001, 1, False), (1, 32 << 20, True), (1, (32 << 20) + 1, False)]
)
def test_one_task_reads_what_is_small_by_rows_and_by_bytes(rows: int, size: int, few: bool) -> None:
    files = [DataFile("a", size - 1, 1, {}), DataFile("b", 1, rows - 1, {})]
    assert landing_store._are_few(files) is few
