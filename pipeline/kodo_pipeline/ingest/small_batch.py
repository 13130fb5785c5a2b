"""Small batches, read in this process, because Spark takes longer to start a stream, whose planner is a Python process
of its own. Bounds, rows and coverage are the same as those of Spark's stream.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.datasource import ReadAllAvailable

from kodo_pipeline.landing.landing_commits import TableFiles
from kodo_pipeline.landing.table_writer import TableWriter
from kodo_pipeline.landing.tables import EVENTS
from kodo_pipeline.source.splits import SMALLEST
from kodoctl.pulsar.binary.client import BrokerClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kodo_pipeline.ingest.event_source import EventStream
    from kodo_pipeline.landing.file_store import Storage
    from kodo_pipeline.source.offsets import Offset
    from kodo_pipeline.source.splits import Split

FEW_BYTES: Final = SMALLEST  # bytes, as brokers store them
_AT_ONCE: Final = 2  # splits: each has a connection of its own


def plan_small(stream: EventStream, start: Offset, most: int) -> tuple[Offset, list[Split]] | None:
    """Plans one batch with everything that is stored after `start`, and fixes the end of the stream there. Returns
    (end, splits), without splits if nothing is new; None if the batch would have more than FEW_BYTES (4 MiB), or more
    than `most` bytes. Raises ClusterError (K574) if messages may have been deleted unread and the options are strict.
    """
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, ReadAllAvailable())
    splits: list[Split] = [] if end == start else [one.value for one in stream.partitions(start, end)]
    return (end, splits) if sum(one.size for one in splits) <= min(FEW_BYTES, most) else None


def write_splits(stream: EventStream, splits: Sequence[Split], folder: Storage, attempt: str) -> tuple[TableFiles, int]:
    """Reads the splits, in two threads, and writes their events into files below `folder`, the folder of the table
    `events`; no commit names the files yet. Returns (files, bytes of the payloads). Raises KodoctlError if a split was
    not read in full and the options are strict. `attempt`: name of the folder of the files, in `folder`.
    """
    import pyarrow.compute as pc

    lock = threading.Lock()

    def read_splits(some: Sequence[Split]) -> int:
        """Reads the splits with a client of its own and returns the bytes that were read. A split that is not full
        closes its client.
        """
        size = 0
        with BrokerClient(stream.options.connection) as client:
            for split in some:
                for rows in stream.read_with(split, client):
                    size += pc.sum(rows.column("size")).as_py() or 0
                    with lock:
                        writer.write(rows)
        return size

    shares = [splits[first::_AT_ONCE] for first in range(_AT_ONCE)]
    with TableWriter(folder, EVENTS, attempt) as writer, ThreadPoolExecutor(_AT_ONCE) as pool:
        size = sum(pool.map(read_splits, filter(None, shares)))
    return TableFiles.of(writer.files), size
