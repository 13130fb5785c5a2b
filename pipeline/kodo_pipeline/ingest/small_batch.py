"""Small batches, read in this process, because Spark takes longer to start a job. Rows and coverage are the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.landing_commits import TableFiles
from kodo_pipeline.landing.table_writer import TableWriter
from kodo_pipeline.landing.tables import EVENTS
from kodo_pipeline.source.splits import SMALLEST
from kodoctl.pulsar.binary.client import BrokerClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kodo_pipeline.ingest.event_stream import EventStream
    from kodo_pipeline.landing.file_store import Storage
    from kodo_pipeline.source.splits import Split

FEW_BYTES: Final = SMALLEST  # bytes, as brokers store them
_AT_ONCE: Final = 2  # splits: each has a connection of its own


def write_splits(stream: EventStream, splits: Sequence[Split], folder: Storage, attempt: str) -> tuple[TableFiles, int]:
    """Reads the splits, in two threads, and writes their events into files below `folder`, the folder of the table
    `events`; no commit names the files yet. Also writes the coverage record of each split, as `read_split` does.
    Returns (files, bytes of the payloads). `attempt`: name of the folder of the files, in `folder`.

    Raises KodoctlError if a split lacks entries and the options are strict (a hole, which the planner accepted, does
    not count), and, whatever the options are, for errors of the Pulsar client and of the file store.
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
