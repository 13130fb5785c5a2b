"""A landing that is damaged, or that nobody can write to, is told with the file and what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kodoctl.errors import KodoctlError, error
from kodoctl.pipeline.ingest.cursors import last_looks
from kodoctl.pipeline.ingest.landing_store import Landing, Manifest, TableFiles
from kodoctl.pipeline.ingest.tables import CURSORS
from kodoctl.pipeline.source.partition_stats import PartitionMetadata
from kodoctl.pipeline.spark.spark_errors import spark_error


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"format": 1, "run": ', "is no JSON document"),
        ('{"format": 9}', "a manifest of format 9: a newer kodoctl wrote it"),
        ('{"format": 1}', "no manifest of kodoctl's"),
        ('{"format": 1, "run": "r", "at": 1, "batch": 0, "facts": {}, "tables": {"events": {"rows": 1}}}', "no manifest"),
        ("[]", "no manifest of kodoctl's"),
    ],
)  # fmt: skip
def test_a_broken_manifest_is_named(tmp_path: Path, text: str, told: str) -> None:
    landing = Landing(str(tmp_path), "trade", None)
    landing.commit(Manifest("r", 1, 0))
    (tmp_path / "trade/base/_manifests/batch-000000001.json").write_text(text, encoding="utf-8")
    with pytest.raises(KodoctlError, match=rf"K573(?s:.*)batch-000000001.json.*{told}"):
        landing.manifests()


@pytest.mark.parametrize("place", ["/proc/nowhere", "{}/file/landing"])
def test_where_nothing_can_be_written_is_told_before_anything_else(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    landing = Landing(place.format(tmp_path), "trade", None)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)name another folder with --landing"):
        landing.check()
    with pytest.raises(KodoctlError, match="K573"), landing.alone("rollup"):
        pass


def test_a_folder_that_is_gone_is_told_as_such() -> None:
    said = "[PATH_NOT_FOUND] Path does not exist: file:/land/trade/base/events/000000001-r.1. SQLSTATE: 42K03"
    found = spark_error(said, error("K577", "Spark failed", said))
    assert str(found).startswith("K573")
    assert "file:/land/trade/base/events/000000001-r.1 is gone, and a manifest names it" in str(found)


@pytest.mark.parametrize(
    ("since", "until", "touched"),
    [(None, None, True), (10, 20, True), (5, 10, False), (5, 11, True), (20, 30, True), (21, 30, False)],
)
def test_batches_are_passed_over_by_the_bounds_of_their_times(
    since: int | None, until: int | None, *, touched: bool
) -> None:
    assert TableFiles("events/1", 3, 10, 20).touches(since, until) is touched
    assert TableFiles("cursors/1", 3).touches(since, until), "no bounds: nobody knows"


def test_what_the_last_run_that_ended_saw_is_known_without_spark(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path), "trade", None)
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
        landing.commit(Manifest(run, at, tables={"cursors": landing.write_rows(CURSORS, run, rows)}))
        if run != "r3":  # cut short: what it saw may be behind what it did not read
            landing.commit(Manifest(f"{run}-end", at, facts={"complete": True}))
    history = PartitionMetadata(made, 2)
    assert last_looks(landing) == {f"persistent://a/b/c-partition-{number}": history for number in (0, 1)}
