"""A landing that is damaged, newer, or of a former kodoctl: it is refused with what is wrong, and never read as if it were whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from kodo_pipeline.landing import delta_tables
from kodo_pipeline.landing.delta_format import missing_columns
from kodo_pipeline.landing.delta_tables import ConcurrentCommitError, LandingTable
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COMMITS, COVERAGE, CURSORS, EVENTS, Table

from kodoctl.errors import KodoctlError, LockedError
from tests.unit.pipeline.landings import DAY, anew, batch, event


def test_a_table_whose_log_is_gone_is_told(landing: Landing) -> None:
    for number in range(20):
        landing.commit(batch(landing, number, rows=1))
    shutil.rmtree(f"{landing.root.uri}/events/_delta_log")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events lacks files that were committed"):
        Landing(str(landing.root.local.parents[1]), "trade", None).snapshot(EVENTS, COVERAGE)  # type: ignore[union-attr]


def test_a_file_that_is_gone_is_told_where_a_row_is_looked_for(landing: Landing) -> None:
    landing.commit(batch(landing, 0))
    files = landing.snapshot(EVENTS).files["events"]
    Path(landing.root.uri, "events", files[0].path).unlink()
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events: .*No such file"):
        landing.table(EVENTS).rows_among(files, "id", ["7:1:0:-1"], {})


def test_a_log_that_is_gone_is_not_made_anew_from_the_newest_commits(landing: Landing) -> None:
    for number in range(20):
        landing.commit(batch(landing, number, rows=1))
    shutil.rmtree(f"{landing.root.uri}/events/_delta_log")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events lacks files that were committed"):
        anew(landing).recover()
    assert not Path(landing.root.uri, "events/_delta_log").exists()


def test_commits_that_are_gone_are_told_before_their_numbers_are_given_again(landing: Landing) -> None:
    for number in range(4):
        landing.commit(batch(landing, number))
    newest = max(Path(landing.root.uri, "commits/_delta_log").glob("*.json"))
    newest.unlink()
    for what in (Landing.recover, lambda one: one.snapshot(EVENTS)):
        with pytest.raises(KodoctlError, match=r"K573(?s:.*)events has commit 3, and commits ends at 2"):
            what(anew(landing))
    shutil.rmtree(f"{landing.root.uri}/commits")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events has commit 3, and commits ends at -1"):
        anew(landing).recover()


def test_rows_that_something_else_removed_are_told(landing: Landing) -> None:
    for number in range(2):
        landing.commit(batch(landing, number))
    events = DeltaTable(f"{landing.root.uri}/events")
    events.optimize.compact()
    rows = sum(one.rows for one in landing.snapshot(EVENTS).files["events"])
    assert rows == 4, "files that something else made of them are as good"
    events.delete("id = '7:1:0:-1'")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events has 2 of 4 rows that were committed to it"):
        landing.snapshot(EVENTS, COVERAGE)
    assert landing.snapshot(COVERAGE).files["coverage"], "another table is whole"


def test_a_file_without_a_number_of_rows_is_refused(landing: Landing) -> None:
    landing.commit(batch(landing, 0))
    (file,) = landing.write_rows(EVENTS, "other", [event(7)]).files or ()
    events = DeltaTable(f"{landing.root.uri}/events")
    added = AddAction(file.path, file.size, dict(file.partition), 0, data_change=True, stats="{}")
    events.create_write_transaction([added], "append", events.schema(), list(EVENTS.partitions))
    with pytest.raises(KodoctlError, match=rf"K573(?s:.*)events: {file.path} has no number of rows"):
        landing.snapshot(EVENTS)


def test_a_data_file_that_is_gone_is_named(landing: Landing) -> None:
    landing.commit(
        LandingCommit("r", 1, tables={CURSORS.name: landing.write_rows(CURSORS, "r", [{"ingest_run": "r"}])})
    )
    (file,) = landing.snapshot(CURSORS).files["cursors"]
    Path(landing.root.uri, "cursors", file.path).unlink()
    with pytest.raises(KodoctlError, match=rf"K573(?s:.*){file.path}"):
        landing.rows(CURSORS, "ingest_run", "r")


def test_a_table_of_a_newer_kodoctl_is_refused(landing: Landing) -> None:
    import pyarrow as pa

    landing.commit(batch(landing, 0))
    at = f"{landing.root.uri}/coverage"
    newer = DeltaTable(at).to_pyarrow_table().append_column("shard", pa.array([1], pa.int64()))
    write_deltalake(at, newer, mode="append", schema_mode="merge")
    with pytest.raises(KodoctlError, match=r"K584(?s:.*)coverage: it has shard, which a newer kodoctl wrote"):
        landing.snapshot(COVERAGE)
    write_deltalake(at, newer.drop_columns(["shard", "state"]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(KodoctlError, match=r"K584(?s:.*)it has no state"):
        landing.snapshot(COVERAGE)
    changed = newer.drop_columns(["shard"])
    changed = changed.set_column(changed.schema.get_field_index("rows"), "rows", pa.array(["1"]))
    write_deltalake(at, changed, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(KodoctlError, match=r"K584(?s:.*)its rows are of another type"):
        landing.snapshot(COVERAGE)
    write_deltalake(
        at, newer.drop_columns(["shard"]), mode="overwrite", schema_mode="overwrite", partition_by=["state"]
    )
    with pytest.raises(KodoctlError, match=r"K584(?s:.*)other partition columns"):
        landing.snapshot(COVERAGE)


def without(landing: Landing, table: str, *names: str) -> None:
    """As an older kodoctl made it."""
    at = f"{landing.root.uri}/{table}"
    rows = DeltaTable(at).to_pyarrow_table().drop_columns(list(names))
    write_deltalake(at, rows, mode="overwrite", schema_mode="overwrite")


def test_columns_that_came_later_are_added_where_rows_may_be_without(landing: Landing) -> None:
    landing.commit(batch(landing, 0))
    without(landing, "events", "payload_state", "payload_digest")
    with pytest.raises(
        KodoctlError, match=r"K584(?s:.*)no payload_digest, payload_state(?s:.*)pipeline convert` adds them"
    ):
        landing.snapshot(EVENTS)
    other = LandingTable(landing.root, EVENTS)
    assert other.add_columns() == ["payload_digest", "payload_state"]
    assert other.add_columns() == []
    assert LandingTable(landing.root, CURSORS).add_columns() == [], (
        "a table that is not there yet has them from the beginning"
    )
    after = anew(landing)
    assert len(after.snapshot(EVENTS).files["events"]) == 1
    assert {row["payload_state"] for row in after.table(EVENTS).rows()} == {None}
    after.commit(batch(after, 1))
    assert len(after.table(EVENTS).rows()) == 4
    without(landing, "events", "payload_state", "entry")
    with pytest.raises(
        KodoctlError, match=r"K584(?s:.*)it has no entry, payload_state: an older kodoctl, or something else"
    ):
        LandingTable(landing.root, EVENTS).add_columns()


def test_a_column_that_another_adds_at_the_same_time_is_added_once(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.commit(batch(landing, 0))
    without(landing, "events", "payload_state")
    late, early = LandingTable(landing.root, EVENTS), LandingTable(landing.root, EVENTS)
    missing, turns = missing_columns, list[int]()

    def second(found: DeltaTable, table: Table) -> list[str]:
        names = missing(found, table)
        turns.append(1)
        if len(turns) == 1:
            assert early.add_columns() == ["payload_state"]
        return names

    monkeypatch.setattr(delta_tables, "missing_columns", second)
    assert late.add_columns() == []
    assert [one.name for one in DeltaTable(f"{landing.root.uri}/events").schema().fields].count("payload_state") == 1
    monkeypatch.setattr(delta_tables, "TRIES", 0)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)others commit without end"):
        late.add_columns()


def test_a_log_that_is_shortened_while_it_is_read_is_listed_again(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.commit(batch(landing, 0))
    opened, turns = DeltaTable, list[str]()

    def shortened(uri: str, **more: Any) -> DeltaTable:
        turns.append(uri)
        if len(turns) < 3:
            raise DeltaError("Object at location 00000000000000000007.json not found")
        return opened(uri, **more)

    monkeypatch.setattr(deltalake, "DeltaTable", shortened)
    assert LandingTable(landing.root, EVENTS).number() == 0
    turns[:] = []
    monkeypatch.setattr(delta_tables, "_MISSING", "something else")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)00000000000000000007.json not found"):
        LandingTable(landing.root, EVENTS).number()
    assert len(turns) == 1


def test_files_that_are_gone_or_cut_are_found_by_one_listing(landing: Landing) -> None:
    for number in range(3):
        landing.commit(batch(landing, number))
    files = landing.snapshot(EVENTS).files["events"]
    table = landing.table(EVENTS)
    assert table.damage(files) == []
    paths = [Path(landing.root.uri, "events", one.path) for one in files[:2]]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    assert table.damage(files) == [
        f"{paths[0]} is gone, and its table names it",
        f"{paths[1]} has {files[1].size - 1:,} of {files[1].size:,} bytes",
    ]


def test_a_table_of_a_newer_protocol_is_refused(landing: Landing) -> None:
    landing.commit(batch(landing, 0))
    named = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": named, "writerFeatures": named}
    log = Path(
        f"{landing.root.uri}/events/_delta_log/{DeltaTable(f'{landing.root.uri}/events').version() + 1:020d}.json"
    )
    log.write_text(json.dumps({"protocol": protocol}), encoding="utf-8")
    with pytest.raises(
        KodoctlError, match=r"K584(?s:.*)events: its Delta protocol \(reader 3, writer 7, deletionVectors"
    ):
        landing.snapshot(EVENTS)
    with pytest.raises(KodoctlError, match="K584"):
        landing.commit(batch(landing, 1))


def test_rows_that_something_else_wrote_are_told(landing: Landing) -> None:
    import pyarrow as pa

    landing.commit(batch(landing, 0))
    row = {"number": 1, "run": "r", "at_ts": DAY, "tables": "{", "facts": "{}"}
    write_deltalake(f"{landing.root.uri}/commits", pa.Table.from_pylist([row], schema=COMMITS.delta()), mode="append")
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)commits: row 1 is no commit of kodoctl's"):
        landing.commits()


def test_others_that_commit_without_end_are_told(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    made = batch(landing, 0)
    landing.commit(made)

    def refused(*_: Any) -> None:
        raise ConcurrentCommitError

    monkeypatch.setattr(LandingTable, "replace_rows", refused)
    with pytest.raises(LockedError, match="K575"):
        landing.commit(batch(landing, 1))
    monkeypatch.setattr(LandingTable, "_commit", refused)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)others commit without end"):
        LandingTable(landing.root, EVENTS).add(7, made.tables["events"].files or (), None)


def test_a_landing_of_a_former_kodoctl_is_refused_with_what_to_do(landing: Landing) -> None:
    (landing.root / "_manifests").write("batch-000000000.json", {"format": 1})
    for what in (landing.commits, landing.check, landing.snapshot):
        with pytest.raises(KodoctlError, match=r"K584(?s:.*)kodoctl pipeline convert"):
            what()


def test_a_former_kodoctl_refuses_the_landing(landing: Landing) -> None:
    landing.check()
    manifests = landing.root / "_manifests"
    (found,) = manifests.documents().values()
    assert found["format"] == 2, "it takes format 1 alone, and removes what no manifest of its own names"
    Path(landing.root.uri, "_manifests/.batch-000000000.json.new").touch()
    again = anew(landing)
    again.check()
    assert again.commits() == []
    assert len(manifests.documents()) == 1
