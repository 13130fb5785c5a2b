"""Checkpoint of an ingest: up to where each batch reads, which is written before the batch is read. So a batch that was
interrupted is read again to the same end.

  offsets/N   version, settings, and the end of batch N: written before batch N is read
  commits/N   written when batch N is complete

The files have the form of Spark's streams, which wrote them for former versions of kodoctl.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.errors import KodoctlError, LockedError, error

if TYPE_CHECKING:
    from kodo_pipeline.landing.file_store import Storage
    from kodo_pipeline.source.offsets import Offset

_VERSION: Final = "v1"
_COMMIT: Final = f'{_VERSION}\n{{"nextBatchWatermarkMs":0}}'
_KEPT: Final = 100  # batches


class CheckpointState(NamedTuple):
    """State of a checkpoint. `number`: of the last complete batch, -1: there is none; `end`: its end, {} if there is
    none; `pending`: end of the next batch, which was begun and is not complete; None: it was not begun.
    """

    number: int
    end: Offset
    pending: Offset | None


class IngestCheckpoint:
    """Checkpoint in `folder`. Only one writer may use it at a time; `begin` refuses a second one if it sees its file."""

    def __init__(self, folder: Storage) -> None:
        self._folder, self._offsets, self._commits = folder, folder / "offsets", folder / "commits"

    def state(self) -> CheckpointState:
        """Reads the state. Raises KodoctlError (K573) if files are missing or have another form."""
        latest, complete = (max(_numbers(one), default=-1) for one in (self._offsets, self._commits))
        if latest not in (complete, complete + 1):
            raise self._unusable(f"the last of its offsets is {latest}, and that of its commits {complete}")
        end = self._end(complete) if complete >= 0 else {}
        return CheckpointState(complete, end, self._end(latest) if latest > complete else None)

    def begin(self, number: int, end: Offset) -> None:
        """Writes the end of a batch. From now on every run that reads the batch reads to this end. Raises LockedError
        if the batch was begun by another run, as far as the store shows its file.
        """
        if number in _numbers(self._offsets):
            detail = (
                f"another run has begun batch {number} in {self._folder.uri} meanwhile: run again when it has ended"
            )
            raise LockedError(error("K575", "another run is under way", detail))
        settings = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
        text = "\n".join((_VERSION, json.dumps(settings, separators=(",", ":")), json.dumps(end)))
        self._offsets.write_bytes(str(number), text.encode())

    def complete(self, number: int) -> None:
        """Records that a batch is complete, and deletes the files of all but the last 100 batches."""
        self._commits.write_bytes(str(number), _COMMIT.encode())
        for folder in (self._offsets, self._commits):
            old = [one for one in _numbers(folder) if one <= number - _KEPT]
            folder.delete(name for one in old for name in (str(one), f".{one}.crc"))

    def _end(self, number: int) -> Offset:
        with self._offsets.input(str(number)) as file:
            text = bytes(file.read())
        try:
            version, _, end = text.decode().split("\n")
            found: Any = json.loads(end) if version == _VERSION else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._unusable(f"its file offsets/{number} has another form")
        return found

    def _unusable(self, why: str) -> KodoctlError:
        detail = f"{self._folder.uri}: {why}: bring the folder back as it was, or land elsewhere"
        return KodoctlError(error("K573", "the landing cannot be used", detail))


def digest_of(end: Offset) -> str:
    """Digest of the end of a batch (hexadecimal), by which its commit in the landing shows which end was read."""
    return hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()[:32]


def _numbers(folder: Storage) -> list[int]:
    return [int(name) for name in folder.files() if name.isdecimal()]
