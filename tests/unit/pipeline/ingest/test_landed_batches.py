"""Which batches a run lands: the one that was interrupted, to the same end, and none twice. Without Spark and broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kodo_pipeline.ingest import job
from kodo_pipeline.ingest.ingest_checkpoint import IngestCheckpoint, digest_of
from kodo_pipeline.landing.file_store import Storage
from kodo_pipeline.landing.landing_commits import LandingCommit

from kodoctl.errors import KodoctlError

Ends = dict[str, str]


class Stream:
    """Ends of its batches: a message of one partition each."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.fixed = 0

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self.fixed += 1

    def getDefaultReadLimit(self) -> None:  # noqa: N802 - Spark's name
        return None

    def latestOffset(self, start: Ends, limit: None) -> Ends:  # noqa: N802 - Spark's name
        assert limit is None
        return {"a": str(min(self._count, int(start.get("a", "0")) + 1))}


class Writer:
    """The batches that it is given, until one fails."""

    def __init__(self, fails: int = -1) -> None:
        self._fails = fails
        self.landed: list[tuple[int, Ends, Ends]] = []
        self.looked: list[tuple[int, Ends]] = []

    def check_end(self, batch: int, end: Ends) -> None:
        self.looked.append((batch, end))

    def land(self, batch: int, stream: Stream, start: Ends, end: Ends) -> None:
        assert stream.fixed == 1
        if batch == self._fails:
            raise KeyboardInterrupt
        self.landed.append((batch, start, end))


def land(stream: Stream, folder: Path, writer: Writer) -> None:
    job._land_batches(cast("Any", stream), IngestCheckpoint(Storage(str(folder))), cast("Any", writer))


def test_an_interrupted_batch_is_landed_first_and_to_the_same_end(tmp_path: Path) -> None:
    first = Writer(fails=1)
    with pytest.raises(KeyboardInterrupt):
        land(Stream(2), tmp_path, first)
    assert first.landed == [(0, {}, {"a": "1"})]
    second = Writer()
    land(Stream(3), tmp_path, second)
    assert second.landed == [(1, {"a": "1"}, {"a": "2"}), (2, {"a": "2"}, {"a": "3"})]
    assert second.looked == [(0, {"a": "1"})], "of the batch behind which it goes on"
    third = Writer()
    land(Stream(3), tmp_path, third)
    assert third.landed == []


def test_an_end_that_is_not_the_committed_one_is_refused() -> None:
    """In a store without locks two runs may begin a batch: the next one would leave out messages between their ends."""
    end = {"a": "1:2:3"}
    known = {
        0: LandingCommit("r0", 1, 0),
        1: LandingCommit("r1", 1, 1, facts={"end": digest_of(end)}),
    }
    request = SimpleNamespace(
        expansion=SimpleNamespace(topics=()),
        landing=SimpleNamespace(checkpoint=SimpleNamespace(uri="s3a://b/_checkpoint")),
    )
    unused: Any = None
    writer = job._Writer(cast("Any", request), unused, unused, known, unused)
    writer.check_end(1, end)
    writer.check_end(0, {"a": "9:9:9"})  # of a kodoctl that kept no digest
    writer.check_end(2, {})
    with pytest.raises(KodoctlError, match=r"K573(?s:.*)two runs began batch 1: (?s:.*)not of the run r1"):
        writer.check_end(1, {"a": "1:3:4"})
