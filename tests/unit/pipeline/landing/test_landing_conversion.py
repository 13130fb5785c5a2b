"""A landing of a kodoctl before Delta tables: converted by one command, whatever kills it, with every row."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kodo_pipeline.evidence.cursors import last_looks
from kodo_pipeline.landing import landing_conversion
from kodo_pipeline.landing.landing_commits import LandingCommit, read_at
from kodo_pipeline.landing.landing_conversion import convert
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS, Table
from pyarrow import parquet

from kodoctl.errors import KodoctlError, UsageError
from tests.brokers.workspace import run_main

DAY = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
FILE = "version: 1\nname: trade\ntenant: t\nnamespace: n\ntopics: {orders: {subscriptions: {billing: {}}}}\n"


class Former:
    """Files as that kodoctl wrote them."""

    def __init__(self, root: Path) -> None:
        self.root = root / "trade/base"
        (self.root / "_manifests").mkdir(parents=True, exist_ok=True)
        (self.root / "_checkpoint").mkdir(exist_ok=True)

    def part(self, table: Table, name: str, rows: list[dict[str, Any]], without: str = "") -> dict[str, Any]:
        """A folder of a table, with times in 96 bits."""
        folder = self.root / table.name / name
        folder.mkdir(parents=True)
        made = pa.Table.from_pylist(rows, schema=table.arrow())
        if without:
            made = made.drop_columns([without])
        parquet.write_table(made, folder / "part-00000.snappy.parquet", use_deprecated_int96_timestamps=True)
        (folder / "_SUCCESS").touch()
        return {"folder": f"{table.name}/{name}", "rows": len(rows), "since": None, "until": None}

    def manifest(self, run: str, at: int, batch: int | None = None, facts: Any = None, **tables: Any) -> None:
        name = f"run-{run}" if batch is None else f"batch-{batch:09d}"
        form = {"format": 1, "run": run, "at": at, "batch": batch, "tables": tables, "facts": facts or {}}
        (self.root / f"_manifests/{name}.json").write_text(json.dumps(form), encoding="utf-8")

    def fill(self) -> None:
        """A run of two batches, a rollup, and what a killed run left."""
        for number in range(2):
            rows = [
                {"id": f"7:{number}:{one}:-1", "topic": "orders", "publish_ts": DAY, "properties": [("a", "b")]}
                for one in range(3)
            ]
            self.manifest(
                "r1", 10 + number, number, {"bytes": 3, "holes": [], "unreadable": 0},
                events=self.part(EVENTS, f"{number:09d}-r1", rows),
                coverage=self.part(COVERAGE, f"{number:09d}-r1", [{"split_id": "s", "rows": 3}]),
            )  # fmt: skip
        cursors = [{"msg_topic": "persistent://t/n/orders", "msg_partition": 0, "subscription": "", "created_ts": DAY,
                    "rewrites": 4, "ingest_run": "r1"}]  # fmt: skip
        self.manifest("r1", 5, cursors=self.part(CURSORS, "r1", cursors, without="audit"))
        self.manifest("r1-end", 5, facts={"complete": True})
        self.manifest("rollup", 20, facts={"window": 1, "batches": [], "days": {}, "left": [], "topics": {}})
        (self.root / "events/000000002-r2").mkdir()
        (self.root / "rollup/r1").mkdir(parents=True)


@pytest.fixture
def former(tmp_path: Path) -> Former:
    found = Former(tmp_path / "landed")
    found.fill()
    return found


def landing(former: Former) -> Landing:
    return Landing(str(former.root.parents[1]), "trade", None)


def check(former: Former) -> None:
    found = landing(former)
    assert [(one.run, one.batch) for one in found.commits()] == [("r1", None), ("r1-end", None), ("r1", 0), ("r1", 1)]
    assert read_at(found.commits()) == 5
    assert last_looks(found)["persistent://t/n/orders-partition-0"].rewrites == 4
    found.check()
    rows = DeltaTable(str(former.root / "events")).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [f"7:{number}:{one}:-1" for number in range(2) for one in range(3)]
    assert {(row["publish_ts"], row["date"], row["topic"]) for row in rows} == {(DAY, DAY.date(), "orders")}
    assert DeltaTable(str(former.root / "cursors")).to_pyarrow_table().column("audit").to_pylist() == [None]
    assert found.commits()[2].facts == {"bytes": 3, "holes": [], "unreadable": 0}
    assert [one.name for one in (former.root / "_manifests").iterdir()] == ["delta.json"]
    assert [name for name in found.root.folders() if not name.startswith("_")] == [
        "commits", "coverage", "cursors", "events", "rollup", "transitions",
    ]  # fmt: skip
    assert (found.root / "rollup").folders() == []
    kept = {file.path for file in found.snapshot(EVENTS).files["events"]}
    assert {str(one.relative_to(former.root / "events")) for one in (former.root / "events").rglob("*.parquet")} == kept


def test_it_is_converted_with_every_row_by_one_command(former: Former, tmp_path: Path) -> None:
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    typed = ("pipeline", "convert", str(tmp_path / "trade.yaml"), "--landing", str(former.root.parents[1]))
    refused = run_main("pipeline", "rollup", *typed[2:])
    assert refused.code == 1
    assert "kodoctl pipeline convert" in " ".join(refused.err.split())
    assert "[K584]" in refused.err
    done = run_main(*typed)
    assert done.code == 0, done.text
    assert "2 batches with 9 rows converted" in " ".join(done.out.split())
    assert "Batch 1: 4 rows" in done.err
    check(former)
    again = run_main(*typed, "--format", "json")
    assert (again.code, "[K801]" in again.err) == (64, True)


def test_columns_that_came_later_are_added_by_the_same_command(tmp_path: Path) -> None:
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    found = Landing(str(tmp_path / "landing"), "trade", None)
    looks = found.write_rows(CURSORS, "r1", [{"ingest_run": "r1"}])
    found.commit(LandingCommit("r1", 1, tables={CURSORS.name: looks}))
    found.commit(LandingCommit("r1-end", 1, facts={"complete": True}))
    events = found.write_rows(EVENTS, "000000000-r1", [{"id": "7:9:0:-1", "topic": "orders", "publish_ts": DAY}])
    found.commit(LandingCommit("r1", 1, 0, {EVENTS.name: events}))
    at = f"{found.root.uri}/events"
    older = DeltaTable(at).to_pyarrow_table().drop_columns(["payload_state", "payload_digest"])
    write_deltalake(at, older, mode="overwrite", schema_mode="overwrite")
    typed = (str(tmp_path / "trade.yaml"), "--landing", str(tmp_path / "landing"))
    refused = run_main("pipeline", "maintain", *typed)
    assert (refused.code, "[K584]" in refused.err, "kodoctl pipeline convert" in " ".join(refused.err.split())) == (
        1,
        True,
        True,
    )
    done = run_main("pipeline", "convert", *typed)
    assert done.code == 0, done.text
    assert "events: payload_digest, payload_state added, empty in the rows that are there." in " ".join(
        done.out.split()
    )
    assert "converted" not in done.out
    assert run_main("pipeline", "maintain", *typed).code == 0
    assert run_main("pipeline", "convert", *typed).code == 64
    write_deltalake(at, older, mode="overwrite", schema_mode="overwrite")
    lines = run_main("pipeline", "convert", *typed, "--format", "json").lines_json()
    assert lines[-1]["columns"] == {"events": ["payload_digest", "payload_state"]}


def test_lines_for_machines(former: Former, tmp_path: Path) -> None:
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    done = run_main(
        "pipeline",
        "convert",
        str(tmp_path / "trade.yaml"),
        "--landing",
        str(former.root.parents[1]),
        "--format",
        "json",
    )
    lines = done.lines_json()
    assert [one["event"] for one in lines] == ["begin", "batch", "batch", "end"]
    assert (lines[-1]["batches"], lines[-1]["rows"]) == (2, 9)


@pytest.mark.parametrize("step", ["written", "committed", "removing"])
def test_a_kill_at_any_moment_and_again_every_row_is_there_once(
    former: Former, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write, commit, remove = landing_conversion._convert, Landing.commit, landing_conversion._remove

    def written(found: Landing, table: Table, one: LandingCommit) -> Any:
        made = write(found, table, one)
        if step == "written" and (one.batch, table) == (1, COVERAGE):
            raise KeyboardInterrupt
        return made

    def committed(self: Landing, one: LandingCommit, **more: Any) -> Any:
        made = commit(self, one, **more)
        if step == "committed" and one.batch == 0:
            raise KeyboardInterrupt
        return made

    def removing(found: Landing) -> None:
        if step == "removing":
            (found.root / "events" / "000000000-r1").remove()
            raise KeyboardInterrupt
        remove(found)

    with monkeypatch.context() as patched:
        patched.setattr(landing_conversion, "_convert", written)
        patched.setattr(Landing, "commit", committed)
        patched.setattr(landing_conversion, "_remove", removing)
        with pytest.raises(KeyboardInterrupt):
            convert(landing(former), lambda _: None)
    with pytest.raises(KodoctlError, match="K584"):
        landing(former).commits()
    convert(landing(former), lambda _: None)
    check(former)


def test_what_was_landed_as_delta_before_a_former_kodoctl_ran_there_stays(tmp_path: Path) -> None:
    found = Landing(str(tmp_path), "trade", None)
    rows = [{"id": "7:9:0:-1", "topic": "orders", "publish_ts": DAY}]
    (tmp_path / "trade/base/_checkpoint").mkdir(parents=True)
    found.check()
    found.commit(LandingCommit("r0", 1, 7, {EVENTS.name: found.write_rows(EVENTS, "000000007-r0", rows)}))
    later = Former(tmp_path)
    later.fill()
    done = convert(Landing(str(tmp_path), "trade", None), lambda _: None)
    assert done.batches == 2
    table = DeltaTable(str(later.root / "events")).to_pyarrow_table()
    assert (table.num_rows, "7:9:0:-1" in table.column("id").to_pylist()) == (7, True)


def test_rows_that_are_gone_and_manifests_of_others_are_told(former: Former) -> None:
    file = next((former.root / "events/000000001-r1").glob("*.parquet"))
    parquet.write_table(parquet.read_table(file).slice(0, 2), file)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)events/000000001-r1 has 2 of 3 rows"):
        convert(landing(former), lambda _: None)
    for text in ('{"format": 2}', "[]", '{"format": 1, "run": "r"}'):
        (former.root / "_manifests/run-r.json").write_text(text, encoding="utf-8")
        with pytest.raises(KodoctlError, match=r"K573(?s:.*)run-r.json: no manifest"):
            convert(landing(former), lambda _: None)


def test_where_nothing_is_nothing_is_converted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="K801"):
        convert(Landing(str(tmp_path), "trade", None), lambda _: None)
