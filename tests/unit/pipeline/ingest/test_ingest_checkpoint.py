"""Checkpoint of an ingest: what is read of it, also as Spark wrote it for former versions, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kodo_pipeline.ingest.ingest_checkpoint import IngestCheckpoint, digest_of
from kodo_pipeline.landing.file_store import Storage

from kodoctl.errors import KodoctlError, LockedError

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":17,"conf":{"spark.sql.shuffle.partitions":"1"}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def offsets(*, end: str = '{"a-partition-0": "7:4:5"}', version: str = "v1") -> str:
    return f"{version}\n{METADATA}\n{end}"


def spark_wrote(folder: Path, number: int, *, complete: bool = True) -> IngestCheckpoint:
    for name, text in {"offsets": offsets(), **({"commits": COMMIT} if complete else {})}.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / str(number)).write_text(text)
        (folder / name / f".{number}.crc").write_text("sum")
    return IngestCheckpoint(Storage(str(folder)))


def test_a_batch_follows_the_last_complete_one_and_is_begun_once(tmp_path: Path) -> None:
    checkpoint = spark_wrote(tmp_path, 12)
    assert checkpoint.state() == (12, {"a-partition-0": "7:4:5"}, None)
    end = {"a-partition-0": "9:0:6"}
    checkpoint.begin(13, end)
    version, settings, text = (tmp_path / "offsets/13").read_text().split("\n")
    assert (version, json.loads(text)) == ("v1", end)
    assert json.loads(settings).keys() == json.loads(METADATA).keys(), "Spark could go on"
    assert checkpoint.state() == (12, {"a-partition-0": "7:4:5"}, end), "whoever comes next takes it as it is"
    with pytest.raises(LockedError, match=r"K575(?s:.*)another run has begun batch 13"):
        checkpoint.begin(13, {})
    checkpoint.complete(13)
    assert (tmp_path / "commits/13").read_text() == COMMIT
    assert checkpoint.state() == (13, end, None)
    assert sorted(one.name for one in (tmp_path / "offsets").iterdir()) == [".12.crc", "12", "13"]


def test_old_batches_are_removed(tmp_path: Path) -> None:
    for number in range(120, 0, -7):
        spark_wrote(tmp_path, number)
    IngestCheckpoint(Storage(str(tmp_path))).complete(120)
    for name in ("offsets", "commits"):
        kept = sorted(one.name for one in (tmp_path / name).iterdir())
        assert kept == sorted(name for number in range(120, 20, -7) for name in (str(number), f".{number}.crc"))


def test_a_checkpoint_may_be_empty_or_have_a_first_batch_that_is_not_complete(tmp_path: Path) -> None:
    assert IngestCheckpoint(Storage(str(tmp_path / "none"))).state() == (-1, {}, None)
    assert spark_wrote(tmp_path, 0, complete=False).state() == (-1, {}, {"a-partition-0": "7:4:5"})


def test_files_that_were_lost_are_told(tmp_path: Path) -> None:
    spark_wrote(tmp_path, 2)
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)the last of its offsets is 4, and that of its commits 2"):
        spark_wrote(tmp_path, 4, complete=False).state()
    spark_wrote(tmp_path, 5)
    (tmp_path / "offsets/5").unlink()
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)the last of its offsets is 4, and that of its commits 5"):
        IngestCheckpoint(Storage(str(tmp_path))).state()


@pytest.mark.parametrize(
    "text",
    [
        offsets(version="v2"),
        offsets() + "\n{}",
        "v1\n" + METADATA,
        offsets(end="-"),
        offsets(end="[]"),
        "v1\n\udcff".encode(errors="surrogateescape"),
    ],
)
def test_files_of_another_form_are_told(tmp_path: Path, text: str | bytes) -> None:
    checkpoint = spark_wrote(tmp_path, 3)
    (tmp_path / "offsets/3").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)offsets/3 has another form"):
        checkpoint.state()


def test_the_digest_of_an_end_does_not_depend_on_the_order_of_its_partitions() -> None:
    ends = {"a": "1:2:3", "b": "4:5:6"}
    assert digest_of(ends) == digest_of(dict(reversed(ends.items()))) != digest_of({"a": "1:2:3"})
