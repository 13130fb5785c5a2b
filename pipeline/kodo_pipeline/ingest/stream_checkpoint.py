"""Checkpoint of Spark's stream: the files by which Spark goes on where the last batch ended, read and written without it.

    offsets/N   version, Spark's metadata, and the end of batch N: written before batch N is read
    commits/N   written when batch N counts

A batch that is landed without Spark leaves the same files in the same order, so that Spark takes a batch that was cut
short as it was planned.
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
    """A batch as the checkpoint has it. `offset`: its end; `metadata` and `commit`: what Spark wrote of it besides."""

    number: int
    offset: Offset
    metadata: dict[str, Any]
    commit: str

    def following(self, offset: Offset, at: int) -> CheckpointBatch:
        """The next batch, with the settings of this one. `at`: ms since the epoch."""
        return replace(self, number=self.number + 1, offset=offset, metadata={**self.metadata, "batchTimestampMs": at})

    def to_text(self) -> str:
        """The file `offsets/N`."""
        return "\n".join((_VERSION, json.dumps(self.metadata, separators=(",", ":")), json.dumps(self.offset)))


def parse_batch(number: int, offsets: str, commit: str) -> CheckpointBatch | None:
    """Batch of its two files; None for files of another form than the one that is known here."""
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
    """Checkpoint of a stream with one source, in `folder`. Only one writer may use it at a time; a second writer is not
    refused.
    """

    def __init__(self, folder: Storage) -> None:
        self._offsets, self._commits = folder / "offsets", folder / "commits"

    def last(self) -> CheckpointBatch | None:
        """The last batch, if it is complete; None where there is none, or where only Spark can go on."""
        latest, complete = (max(_numbers(one), default=-1) for one in (self._offsets, self._commits))
        if latest < 0 or latest != complete:
            return None
        return parse_batch(latest, _text(self._offsets, latest), _text(self._commits, latest))

    def begin(self, batch: CheckpointBatch) -> None:
        """Records the end of the batch: from now on every reader of the batch, Spark included, reads to this end."""
        self._offsets.write_bytes(str(batch.number), batch.to_text().encode())

    def complete(self, batch: CheckpointBatch) -> None:
        """The batch counts. What is older than Spark keeps is removed."""
        self._commits.write_bytes(str(batch.number), batch.commit.encode())
        for folder in (self._offsets, self._commits):
            old = [number for number in _numbers(folder) if number <= batch.number - _KEPT]
            folder.delete(name for number in old for name in (str(number), f".{number}.crc"))


def _numbers(folder: Storage) -> list[int]:
    return [int(name) for name in folder.files() if name.isdecimal()]


def _text(folder: Storage, number: int) -> str:
    with folder.input(str(number)) as file:
        return bytes(file.read()).decode()
