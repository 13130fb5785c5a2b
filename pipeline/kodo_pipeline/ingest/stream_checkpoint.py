"""Checkpoint of Spark's stream, read and written without Spark: the files by which Spark continues after the last
batch.

  offsets/N   version, Spark's metadata, and the end of batch N: written before batch N is read
  commits/N   written when batch N is complete

A small batch, which is landed without Spark, writes the same files in the same order. So Spark can repeat a batch that
was interrupted, with the same end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kodo_pipeline.landing.file_store import Storage
    from kodo_pipeline.source.offsets import Offset

_VERSION: Final = "v1"
_KEPT: Final = 100  # batches, as Spark keeps them


@dataclass(frozen=True, slots=True)
class CheckpointBatch:
    """A batch in the checkpoint. `offset`: end of the batch; `metadata`: settings of the stream in `offsets/N`;
    `commit`: text of `commits/N`.
    """

    number: int
    offset: Offset
    metadata: dict[str, Any]
    commit: str

    def following(self, offset: Offset, at: int) -> CheckpointBatch:
        """The batch with the next number, which ends at `offset`, and has the same settings and text of `commits/N`.
        `at`: its timestamp, ms since the epoch.
        """
        return replace(self, number=self.number + 1, offset=offset, metadata={**self.metadata, "batchTimestampMs": at})

    def to_text(self) -> str:
        """Text of the file `offsets/N`."""
        return "\n".join((_VERSION, json.dumps(self.metadata, separators=(",", ":")), json.dumps(self.offset)))


def parse_batch(number: int, offsets: str, commit: str) -> CheckpointBatch | None:
    """Parses a batch from the texts of its two files; None if they have another format than Spark's version `v1`."""
    version, *lines = offsets.split("\n")
    if version != _VERSION or len(lines) != 2 or commit.partition("\n")[0] != _VERSION:
        return None
    try:
        metadata, offset = map(json.loads, lines)
    except ValueError:
        return None
    if not isinstance(metadata, dict) or not isinstance(offset, dict):
        return None
    return CheckpointBatch(number, offset, metadata, commit)


class StreamCheckpoint:
    """Checkpoint of a stream with one source, in `folder`. Only one writer may use it at a time; this is not enforced."""

    def __init__(self, folder: Storage) -> None:
        self._offsets, self._commits = folder / "offsets", folder / "commits"

    def last(self) -> CheckpointBatch | None:
        """The last batch, if it is complete. None if there is none, or if only Spark can continue: the batch is not
        complete, or its files have a format that `parse_batch` does not know.
        """
        latest, complete = (max(_numbers(one), default=-1) for one in (self._offsets, self._commits))
        if latest < 0 or latest != complete:
            return None
        return parse_batch(latest, _text(self._offsets, latest), _text(self._commits, latest))

    def begin(self, batch: CheckpointBatch) -> None:
        """Writes the end of the batch. From now on every reader of the batch, Spark included, reads to this end."""
        self._offsets.write_bytes(str(batch.number), batch.to_text().encode())

    def complete(self, batch: CheckpointBatch) -> None:
        """Records that the batch is complete, and deletes the files of all but the last 100 batches, as Spark does."""
        self._commits.write_bytes(str(batch.number), batch.commit.encode())
        for folder in (self._offsets, self._commits):
            old = [number for number in _numbers(folder) if number <= batch.number - _KEPT]
            folder.delete(name for number in old for name in (str(number), f".{number}.crc"))


def _numbers(folder: Storage) -> list[int]:
    return [int(name) for name in folder.files() if name.isdecimal()]


def _text(folder: Storage, number: int) -> str:
    with folder.input(str(number)) as file:
        return bytes(file.read()).decode()
