"""Batch that is read without Spark: files as Spark writes them. Without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kodo_pipeline.ingest.small_batch import write_splits
from kodo_pipeline.landing.file_store import Storage
from kodo_pipeline.landing.tables import EVENTS
from kodo_pipeline.source.splits import LedgerRange, Split

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.connection.connection import Connection
from tests.unit.pipeline.landings import event


def split(number: int, size: int = 10) -> Split:
    return Split("persistent://kodo/trade/orders", number, (LedgerRange(7, 0, 1, size),))


def reading(*, broken: int = -1) -> Any:
    """A stream whose splits hold two messages each."""
    clients: set[Any] = set()

    def read_with(one: Split, client: Any) -> Iterator[pa.RecordBatch]:
        clients.add(client)
        rows = [event(2 * one.partition + number, f"t{one.partition % 2}") for number in range(2)]
        yield from pa.Table.from_pylist(rows, schema=EVENTS.arrow()).to_batches()
        if one.partition == broken:
            raise ClusterError(error("K574", "stored messages could not be read", "on purpose"))

    return SimpleNamespace(read_with=read_with, options=SimpleNamespace(connection=Connection("")), clients=clients)


def test_splits_are_read_side_by_side_into_one_file_of_each_partition(tmp_path: Path) -> None:
    found = reading()
    files, size = write_splits(found, [split(number) for number in range(9)], Storage(str(tmp_path)), "000000007-r1")
    assert files.files is not None
    assert sorted((one.partition["topic"], one.rows, one.batch) for one in files.files) == [("t0", 10, 7), ("t1", 8, 7)]
    assert (files.rows, size) == (18, 18)
    assert len(found.clients) == 2, "a split that is not full closes its client"
    assert write_splits(reading(), [], Storage(str(tmp_path)), "000000008-r1")[0].rows == 0


def test_a_split_that_is_not_full_fails_the_batch(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="on purpose"):
        write_splits(reading(broken=3), [split(number) for number in range(9)], Storage(str(tmp_path)), "000000007-r1")
