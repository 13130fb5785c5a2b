"""Messages are taken an entry at a time, and each one's place is nonetheless its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pulsar
import pytest
from kodo_pipeline.source import split_reader
from kodo_pipeline.source.coverage import COMPLETE, Coverage
from kodo_pipeline.source.message_columns import Columns
from kodo_pipeline.source.options import read_options
from kodo_pipeline.source.split_reader import queue_size, runs
from kodo_pipeline.source.splits import LedgerRange, Split

from kodoctl.errors import ClusterError
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.topology.units import LATEST

Found = list[tuple[int, int, int, int]]


class Id(NamedTuple):
    """As the client gives it, with what `serialize` says of the batch."""

    ledger: int
    entry: int
    at: int
    size: int

    def ledger_id(self) -> int:
        return self.ledger

    def entry_id(self) -> int:
        return self.entry

    def batch_index(self) -> int:
        return self.at

    def serialize(self) -> bytes:
        return bytes([8, self.ledger, 16, self.entry, 48, self.size])

    def message_id(self) -> Id:
        return self


def taken(ids: Iterable[Id]) -> tuple[Found, bool]:
    """(ledger, entry, index, messages) of each run, all told; whether the end was a time-out."""
    left, found = iter(ids), Found()

    def read(timeout: int) -> Id:
        assert timeout == 5
        for one in left:
            return one
        raise TimeoutError

    try:
        for ledger, entry, index, messages in runs(read, 5):
            assert [(one.ledger, one.entry) for one in messages] == [(ledger, entry)] * len(messages)
            assert [one.at for one in messages] == list(range(index, index + len(messages)))
            found.append((ledger, entry, index, len(messages)))
    except TimeoutError:
        return found, True
    return found, False


def entry(number: int, size: int, ledger: int = 3) -> list[Id]:
    return [Id(ledger, number, index, size) for index in range(size)]


def test_a_whole_entry_is_one_run() -> None:
    alone = Id(3, 8, -1, 0)
    assert taken([*entry(6, 4), *entry(7, 1), alone, alone._replace(entry=9), *entry(0, 2, ledger=4)]) == (
        [(3, 6, 0, 4), (3, 7, 0, 1), (3, 8, -1, 1), (3, 9, -1, 1), (4, 0, 0, 2)],
        True,
    )


def test_messages_before_a_time_out_are_told_each_with_its_place() -> None:
    assert taken(entry(6, 4)[:3]) == ([(3, 6, 0, 1), (3, 6, 1, 1), (3, 6, 2, 1)], True)


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_batch_with_a_gap_is_looked_at_message_by_message(gone: int) -> None:
    rows = [one for one in entry(6, 4) if one.at != gone]
    expected = [(3, 6, one.at, 1) for one in rows] + [(3, 7, index, 1) for index in range(1)]
    found, _ = taken([*rows, *entry(7, 3)])
    assert found[:4] == expected
    assert found[4:] == [(3, 7, 1, 1), (3, 7, 2, 1)]


def test_a_batch_that_is_begun_again_is_looked_at_message_by_message() -> None:
    rows = [*entry(6, 4)[:2], *entry(6, 4)]
    assert taken(rows)[0] == [(3, 6, index, 1) for index in (0, 1, 0, 1, 2, 3)]


def test_a_batch_that_begins_in_its_middle_is_looked_at_message_by_message() -> None:
    assert taken([*entry(6, 4)[2:], *entry(7, 2)])[0] == [(3, 6, 2, 1), (3, 6, 3, 1), (3, 7, 0, 2)]


class Stored(NamedTuple):
    """As much of a message as is looked at before a batch is made."""

    size: int

    def data(self) -> bytes:
        return bytes(self.size)

    def publish_timestamp(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("size", "together", "payload", "rows"),
    [
        (1_024, 100, True, 5_000),
        (2**20, 1, True, 32),
        (2**20, 1, False, 32),
        (2**18, 4, True, 128),
        (2**18, 4, False, 128),
    ],
)
def test_an_arrow_batch_is_full_by_rows_and_by_bytes(size: int, together: int, payload: bool, rows: int) -> None:
    split = Split("persistent://a/b/c", 0, (LedgerRange(1, 0, 9_999, 10_000 * size * together),))
    columns = Columns(split, 5_000, payload=payload)
    for entry in range(10_000):
        columns.add(1, entry, 0, [Stored(size)] * together)
        if columns.full:
            break
    assert columns.rows == rows


def test_an_arrow_batch_has_room_for_some_that_are_larger_than_all_on_average() -> None:
    columns = Columns(Split("persistent://a/b/c", 0, (LedgerRange(1, 0, 999_999, 10**9),)), 5_000, payload=True)
    for entry in range(5):
        assert not columns.full
        columns.add(1, entry, -1, [Stored(7 * 2**20)])
    assert columns.full


class Timed(NamedTuple):
    """A message with nothing but times, in ms."""

    published: int = 1
    happened: int = 0

    def data(self) -> bytes:
        return b"x"

    def publish_timestamp(self) -> int:
        return self.published

    def event_timestamp(self) -> int:
        return self.happened

    def properties(self) -> dict[str, str]:
        return {}

    def partition_key(self) -> str:
        return ""

    def encryption_context(self) -> None:
        return None


def test_times_that_no_timestamp_holds_do_not_end_the_reading() -> None:
    last = datetime(9999, 12, 30, 23, 59, 59, 999_000, UTC)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=LATEST) == last
    beyond = [LATEST + 1, 1_700_000_000_000_000_000, 2**63 - 1, 2**63, 2**64 - 1]
    columns = Columns(Split("persistent://a/b/c", 0, (LedgerRange(1, 0, 99, 100),)), 5_000, payload=True)
    for number, at in enumerate([LATEST, *beyond]):
        columns.add(1, number, -1, [Timed(published=at, happened=at)])
    columns.add(1, 50, -1, [Timed(happened=1)])
    made = columns.batch()
    made.validate(full=True)
    assert made.column("event_ts").to_pylist() == [
        last, *[None] * len(beyond), datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)
    ]  # fmt: skip
    assert made.column("publish_ts").to_pylist()[:-1] == [last] * (1 + len(beyond))


@pytest.mark.parametrize(("size", "entries", "expected"), [(10, 1, 1_000), (10**9, 10**6, 10_000), (10**9, 10, 16)])
def test_a_reader_fetches_ahead_within_memory(size: int, entries: int, expected: int) -> None:
    assert queue_size(Split("persistent://a/b/c", 0, (LedgerRange(1, 0, entries - 1, size),))) == expected


def test_entries_that_did_not_come_are_explained_by_a_proof_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Split("persistent://a/b/c", 0, (LedgerRange(3, 0, 4, 10),))
    looked: list[Any] = []
    stats: list[Any] = [None, {"lastConfirmedEntry": "3:4", "ledgers": [{"ledgerId": 3, "entries": 5}]}]
    monkeypatch.setattr(split_reader, "_stats", lambda *_: stats.pop(0))
    monkeypatch.setattr(split_reader._Missing, "_look_again", lambda *those: looked.append(those))
    unused: Any = None
    assert not split_reader._Missing(split).explained(split, unused, unused), "the cluster does not answer"
    assert not split_reader._Missing(split).explained(split, unused, unused)
    assert len(looked) == 1


class Whole(NamedTuple):
    """A message in one piece, or (`first`: entry of the first chunk) in chunks."""

    first: int | None = None

    def message_id(self) -> Whole:
        return self

    def publish_timestamp(self) -> int:
        return 9

    def serialize(self) -> bytes:
        chunk = bytes([8, 3, 16, self.first or 0])
        return bytes([8, 3, 16, 7, 24, 0]) + (b"" if self.first is None else bytes([58, len(chunk), *chunk]))


def test_chunks_between_which_another_message_came_are_no_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They had been a gap before their message came: each ingest ended with K574, because they were counted twice."""
    split = Split("persistent://a/b/c", 0, (LedgerRange(3, 0, 8, 90),))
    options = read_options({"topic": "a/b/c", "adminUrl": "http://h:1", "serviceUrl": "pulsar://h:2"}, 1)
    coverage, missing = Coverage(split), split_reader._Missing(split)
    unused: Any = None
    stats = {"lastConfirmedEntry": "3:8", "ledgers": [{"ledgerId": 3, "entries": 9}]}
    monkeypatch.setattr(split_reader, "_stats", lambda *_: stats)
    monkeypatch.setattr(split_reader._Missing, "_look_again", lambda *_: True)
    for entry, first in ((0, None), (4, None), (5, 3), (6, None)):  # 1 and 2 are damaged, 3 and 5 one message
        coverage.entry(3, entry)
        missing.met((3, entry), Whole(first))
    assert missing.explained(split, options, unused)
    (rows,) = split_reader._without_message(split, options, coverage, missing)
    assert rows.column("entry").to_pylist() == [1, 2, 7, 8]
    assert (coverage.seen, coverage.empty, coverage.state, coverage.full) == (4, 5, COMPLETE, True)


class Again:
    """A second reading, of the entries of ledger 3, after which nothing comes. In place of BrokerClient."""

    def __init__(self, *entries: int) -> None:
        self._left = list(entries)

    @contextmanager
    def reader(self, *_: object, **__: object) -> Iterator[Again]:
        yield self

    def next(self, _: float) -> Again:
        if not self._left:
            raise pulsar.Timeout
        return self

    def message_id(self) -> pulsar.MessageId:
        return pulsar.MessageId(0, 3, self._left.pop(0), -1)


@pytest.mark.parametrize(("again", "explained"), [((0, 4), True), ((), False), ((0, 1), None), ((0,), None)])
def test_a_broker_that_pauses_in_one_of_two_readings_leaves_no_hole(
    monkeypatch: pytest.MonkeyPatch, again: tuple[int, ...], explained: bool | None
) -> None:
    """With --accept-holes, stored messages were stepped over because the broker was slow when they were read first."""
    split = Split("persistent://a/b/c", 0, (LedgerRange(3, 0, 4, 10),))
    stats = {"lastConfirmedEntry": "3:4", "ledgers": [{"ledgerId": 3, "entries": 5}]}
    monkeypatch.setattr(split_reader, "_stats", lambda *_: stats)
    missing, unused, broker = split_reader._Missing(split), cast("Any", None), cast("Any", Again(*again))
    for entry in (0, 4):
        missing.met((3, entry), Whole())
    if explained is not None:
        assert missing.explained(split, unused, broker) is explained
        return
    with pytest.raises(ClusterError, match=r"the entry 3:[14] came in one of two readings") as found:
        missing.explained(split, unused, broker)
    assert [one.code for one in found.value.diagnostics] == ["K561"]


@contextmanager
def _silent_broker() -> Iterator[str]:
    """Address of a broker that greets clients, and answers nothing else."""
    greeting = bytes([8, 3, 0x1A, 5, 0x0A, 1, 0x78, 0x10, 0x13])

    def greet(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(4096)
            client.sendall((len(greeting) + 4).to_bytes(4) + len(greeting).to_bytes(4) + greeting)
            while client.recv(4096):
                pass

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=greet, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"pulsar://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("strict", [True, False])
def test_a_broker_that_opens_no_reader_leaves_no_hole(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for one, K574, and where holes are accepted nothing of the partition was ever read."""
    monkeypatch.setattr(split_reader, "_stats", lambda *_: None)
    split = Split("persistent://a/b/c", 0, (LedgerRange(3, 0, 8, 90),))
    with _silent_broker() as url:
        options = read_options({"topic": "a/b/c", "adminUrl": "http://h:1", "serviceUrl": url}, 1)
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        client = BrokerClient(options.connection)
        client._client = pulsar.Client(url, operation_timeout_seconds=1, logger=quiet)
        with pytest.raises(ClusterError, match=r"K561.*persistent://a/b/c-partition-0: Pulsar error: TimeOut"):
            list(split_reader.read_split(split, replace(options, strict=strict), client))
