"""Checkpoint of Spark's stream: what is read of it, what is written, and when only Spark can go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_pipeline.ingest.stream_checkpoint import StreamCheckpoint, parse_batch
from kodo_pipeline.landing.file_store import Storage

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":17,"conf":{"spark.sql.shuffle.partitions":"1"}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def offsets(*, end: str = '{"a-partition-0": "7:4:5"}', version: str = "v1") -> str:
    return f"{version}\n{METADATA}\n{end}"


def spark_wrote(folder: Path, number: int, *, complete: bool = True) -> StreamCheckpoint:
    for name, text in {"offsets": offsets(), **({"commits": COMMIT} if complete else {})}.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / str(number)).write_text(text)
        (folder / name / f".{number}.crc").write_text("sum")
    return StreamCheckpoint(Storage(str(folder)))


def test_a_batch_follows_the_last_complete_one_with_the_settings_of_spark(tmp_path: Path) -> None:
    checkpoint = spark_wrote(tmp_path, 12)
    last = checkpoint.last()
    assert last is not None
    assert (last.number, last.offset) == (12, {"a-partition-0": "7:4:5"})
    batch = last.following({"a-partition-0": "9:0:6"}, 99)
    checkpoint.begin(batch)
    assert (tmp_path / "offsets/13").read_text() == offsets(end='{"a-partition-0": "9:0:6"}').replace("17", "99")
    assert checkpoint.last() is None, "it is planned, and whoever comes next takes it as it is"
    checkpoint.complete(batch)
    assert (tmp_path / "commits/13").read_text() == COMMIT
    assert checkpoint.last() == batch
    assert sorted(one.name for one in (tmp_path / "offsets").iterdir()) == [".12.crc", "12", "13"]


def test_old_batches_go_as_spark_removes_them(tmp_path: Path) -> None:
    for number in range(120, 0, -7):
        spark_wrote(tmp_path, number)
    checkpoint = StreamCheckpoint(Storage(str(tmp_path)))
    last = checkpoint.last()
    assert last is not None
    checkpoint.complete(last)
    for name in ("offsets", "commits"):
        kept = sorted(one.name for one in (tmp_path / name).iterdir())
        assert kept == sorted(name for number in range(120, 20, -7) for name in (str(number), f".{number}.crc"))


def test_where_a_batch_is_not_complete_or_none_was_only_spark_goes_on(tmp_path: Path) -> None:
    assert StreamCheckpoint(Storage(str(tmp_path / "none"))).last() is None
    assert spark_wrote(tmp_path, 3, complete=False).last() is None
    spark_wrote(tmp_path, 2)
    assert StreamCheckpoint(Storage(str(tmp_path))).last() is None


@pytest.mark.parametrize(
    ("text", "commit"),
    [
        (offsets(version="v2"), COMMIT),
        (offsets(), COMMIT.replace("v1", "v2")),
        (offsets() + "\n{}", COMMIT),
        ("v1\n" + METADATA, COMMIT),
        (offsets(end="-"), COMMIT),
        (offsets(end="[]"), COMMIT),
        (offsets().replace(METADATA, "[]"), COMMIT),
    ],
)
def test_files_of_another_form_are_left_to_spark(text: str, commit: str) -> None:
    assert parse_batch(1, text, commit) is None
    assert parse_batch(1, offsets(), COMMIT) is not None
