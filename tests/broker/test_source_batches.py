"""The source reads the same by the native border as by the client's binding: every column of every message, the schema,
and what is told of the split.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from kodo_pipeline.landing.tables import MESSAGES
from kodo_pipeline.source import native_batches, split_reader
from kodo_pipeline.source.native_batches import BATCHES
from kodo_pipeline.source.options import Options
from kodo_pipeline.source.partition_stats import read_stored
from kodo_pipeline.source.split_reader import read_split
from kodo_pipeline.source.splits import Split, splits_of

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.contract.worlds import NATIVE
from tests.hostile.messages import hostile, single
from tests.spark.filling import core_options, fill, keep, unload

pa = pytest.importorskip("pyarrow")
_pulsar = pytest.importorskip("_pulsar")
pytestmark = [pytest.mark.broker, NATIVE]
_HOSTILE = int(os.environ.get("KODOCTL_TEST_HOSTILE", "600"))
_MESSAGES = int(os.environ.get("KODOCTL_TEST_MESSAGES", "80000"))
_TOLD = 1_000_000  # messages between two lines about memory
_LIMIT = 24 << 20  # bytes of growth: caches of the client, arenas of malloc


@pytest.fixture
def kept(workspace: Any) -> Any:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    keep(workspace)
    return workspace


def _splits(workspace: Any, local: str, most: int = 1) -> list[Split]:
    options = core_options(workspace, local)
    admin = HttpAdmin(options.connection)
    found = read_stored(admin, options.topics)
    admin.close()
    return [
        split for (topic, number), one in found.items() for split in splits_of(topic.full, number, one.pieces, most)
    ]


def _read(split: Split, options: Options, folder: Path) -> tuple[list[Any], dict[str, Any], str]:
    """Batches, what is told of the split, and the error."""
    batches, problem = [], ""
    try:
        for batch in read_split(split, replace(options, coverage=str(folder))):
            batch.validate(full=True)
            assert batch.schema == MESSAGES.arrow()
            batches.append(batch)
    except ClusterError as found:
        problem = str(found)
    (record,) = [json.loads(one.read_text(encoding="utf-8")) for one in folder.iterdir()]
    return batches, {**record, "seconds": 0}, problem


def _same(splits: list[Split], options: Options, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The table that both give, of all splits."""
    tables = []
    for number, split in enumerate(splits):
        used: list[bool] = []

        def native(reader: Any, split: Split, options: Options, used: list[bool] = used) -> Any:
            found = native_batches.native_batches(reader, split, options)
            used.append(found is not None)
            return found

        monkeypatch.setattr(split_reader, "native_batches", native)
        one = _read(split, replace(options, native=True), folder / f"native-{number}")
        other = _read(split, replace(options, native=False), folder / f"binding-{number}")
        assert used == [True, False]
        monkeypatch.undo()
        assert one[1:] == other[1:]
        assert [batch.num_rows for batch in one[0]] == [batch.num_rows for batch in other[0]]
        for mine, theirs in zip(one[0], other[0], strict=True):
            assert mine.equals(theirs, check_metadata=True), _difference(mine, theirs)
        tables += one[0]
    return pa.Table.from_batches(tables, MESSAGES.arrow())


def _difference(mine: Any, theirs: Any) -> str:
    rows = zip(mine.to_pylist(), theirs.to_pylist(), strict=True)
    return "\n".join(
        f"{one['entry']} {name}: {one[name]!r} != {other[name]!r}"
        for one, other in rows
        for name in one
        if one[name] != other[name]
    )


def test_hostile_messages(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.make_topic("hostile", 1)
    with WireProducer(kept.broker.broker_url, f"{kept.full('hostile')}-partition-0") as producer:
        for one in hostile(7, _HOSTILE):
            producer.begin(one.metadata, one.body, one.command, one.checksum)
        producer.receipts()
    options = core_options(kept, "hostile", timeoutMs="10000", rowsPerBatch="50")
    found = _same(_splits(kept, "hostile", 2), options, tmp_path, monkeypatch)
    assert found.num_rows > _HOSTILE // 2
    broken = {one for one in found.column("broken").to_pylist() if one}
    assert len(broken) > 3, broken


def test_every_kind_of_message(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NULs, tombstones, batches, compressed and chunked messages, wrong times, an odd ordering key beside odd properties."""
    kept.make_topic("kinds", 1)
    part = f"{kept.full('kinds')}-partition-0"
    with kept.client() as client:
        batches: list[dict[str, Any]] = [
            {"batching_enabled": False},
            {"batching_enabled": True, "compression_type": pulsar.CompressionType.ZLib},
        ]
        for batching in batches:
            producer = client.create_producer(part, batching_max_publish_delay_ms=50, **batching)
            for number in range(40):
                producer.send_async(
                    bytes(number), None, properties={"a\x00b": f"c\x00{number}", "ü": "\U0001f600", "": ""} if number % 3 else {},
                    partition_key="k\x00y" if number % 2 else None, ordering_key="o\x00", event_timestamp=number << 37,
                )  # fmt: skip
            producer.flush()
            producer.close()
        producer = client.create_producer(part, chunking_enabled=True, batching_enabled=False)
        producer.send(b"x" * (11 << 20))
        producer.close()
    texts = binary(4, binary(1, b"n") + binary(2, b"\xed\xa0\x80"))
    with WireProducer(kept.broker.broker_url, part) as producer:
        producer.send(wire_metadata(numeric(25, 1)), b"")  # a tombstone
        producer.send(wire_metadata(binary(18, b"\xff")), b"an odd ordering key alone")
        producer.send(wire_metadata(texts + binary(18, b"\xff")), b"and beside odd properties")
        producer.send(wire_metadata(texts), b"odd properties")
        producer.send(wire_metadata(binary(6, b"\xc0\x80")), b"an odd key")
        batch = [
            single(b"", numeric(9, 1)),
            single(b"one", binary(1, binary(1, b"\xff") + binary(2, b"v"))),
            single(b"two"),
        ]
        producer.send(wire_metadata(numeric(11, 3)), b"".join(batch))
        producer.send(wire_metadata(), b"last")
    options = core_options(kept, "kinds", timeoutMs="2000")
    for payload in (True, False):
        rows = _same(
            _splits(kept, "kinds"), replace(options, payload=payload), tmp_path / str(payload), monkeypatch
        ).to_pylist()
        broken = {row["entry"]: row["broken"] for row in rows if row["broken"]}
        assert "not UTF-8 text, and lost: properties, ordering key" in broken.values()
        assert sorted(broken.values()).count("not UTF-8 text, and lost: properties") >= 2
        assert "not UTF-8 text, and lost: key" in broken.values()
        if payload:
            by_payload = {row["payload"]: row for row in rows}
            assert by_payload[b"an odd ordering key alone"]["broken"] is None
            assert (by_payload[None]["size"], by_payload[b"x" * (11 << 20)]["size"]) == (0, 11 << 20)
            assert dict(by_payload[bytes(5)]["properties"])["a\x00b"] == "c\x005"


def test_a_message_in_chunks_across_splits_is_landed_once(
    kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks were unreadable in the split of the first one, and the message in that of the last one, or K574 for ever."""
    kept.make_topic("chunks", 1)

    def chunk(of: bytes, number: int, count: int) -> bytes:
        return wire_metadata(binary(26, of) + numeric(27, count) + numeric(28, 2 * count) + numeric(29, number))

    garbled = wire_metadata(numeric(8, 2) + numeric(9, 5))
    with WireProducer(kept.broker.broker_url, f"{kept.full('chunks')}-partition-0") as producer:
        for metadata, payload in (
            (wire_metadata(), b"m0"), (chunk(b"a", 0, 3), b"a0"), (wire_metadata(), b"m2"), (chunk(b"a", 1, 3), b"a1"),
            (chunk(b"b", 0, 2), b"b0"), (chunk(b"a", 2, 3), b"a2"), (wire_metadata(), b"m6"), (chunk(b"b", 1, 2), b"b1"),
            (garbled, b"no zlib"), (wire_metadata(), b"m9"),
        ):  # fmt: skip
            producer.send(metadata, payload)
    options = core_options(kept, "chunks", timeoutMs="1000")
    (whole,) = _splits(kept, "chunks")
    (piece,) = whole.pieces
    for cut in range(1, piece.entries):
        halves = [replace(whole, pieces=(part,)) for part in (piece.until(cut), piece.beyond(cut))]
        rows = _same(halves, options, tmp_path / str(cut), monkeypatch).to_pylist()
        told = sorted((row["entry"], row["payload"]) for row in rows)
        assert told == [(0, b"m0"), (2, b"m2"), (5, b"a0a1a2"), (6, b"m6"), (7, b"b0b1"), (8, None), (9, b"m9")], cut
        assert [row["entry"] for row in rows if row["broken"]] == [8]
        for record in (tmp_path / str(cut)).glob("*/*.json"):
            assert json.loads(record.read_text(encoding="utf-8"))["full"], cut


def test_ledgers_cut_into_splits(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.make_topic("plain", 2)
    fill(kept, "plain", range(3_000), 2, ledgers=3)
    fill(kept, "plain", range(3_000, 3_200), 2)  # in the open ledger
    options = core_options(kept, "plain", rowsPerBatch="333")
    found = _same(_splits(kept, "plain", 4), options, tmp_path, monkeypatch)
    assert sorted(int(dict(one)["n"]) for one in found.column("properties").to_pylist()) == list(range(3_200))
    (whole,) = _splits(kept, "plain")[:1]
    beyond = replace(whole.pieces[0], last=whole.pieces[0].last - 3)
    assert _same([replace(whole, pieces=(beyond,))], options, tmp_path / "part", monkeypatch).num_rows


def test_what_is_gone_is_told_in_the_same_words(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.make_topic("plain", 1)
    fill(kept, "plain", range(400), 1)
    (split,) = _splits(kept, "plain")
    (piece,) = split.pieces
    options = core_options(kept, "plain", timeoutMs="500")
    longer = replace(split, pieces=(replace(piece, last=piece.last + 2),))
    assert _same([longer], options, tmp_path / "longer", monkeypatch).num_rows == 400
    unload(kept, "plain", 0)
    fill(kept, "plain", range(400, 500), 1)
    assert _same([longer], options, tmp_path / "overrun", monkeypatch).num_rows == 400
    gone = replace(split, pieces=(replace(piece, ledger=piece.ledger - 1), piece))
    _same([gone], options, tmp_path / "gone", monkeypatch)


def test_a_compacted_topic(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source reads what is stored, compacted or not."""
    kept.make_topic("compacted", 1)
    fill(kept, "compacted", range(300), 1, ledgers=2)
    part = f"{kept.path('compacted')}-partition-0"
    kept.admin("PUT", f"{part}/compaction")
    for _ in range(100):
        if kept.admin("GET", f"{part}/compaction")["status"] == "SUCCESS":
            break
        threading.Event().wait(0.2)
    assert _same(_splits(kept, "compacted"), core_options(kept, "compacted"), tmp_path, monkeypatch).num_rows == 300


def test_large_messages_make_small_batches(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.make_topic("large", 1)
    with kept.client() as client:
        producer = client.create_producer(kept.full("large"), batching_enabled=False)
        for number in range(36):
            producer.send(bytes([number]) * (2 << 20 if number % 2 else 1_000))
        producer.close()
    found = _same(_splits(kept, "large"), core_options(kept, "large"), tmp_path, monkeypatch)
    assert found.num_rows == 36
    assert len(found.to_batches()) == 2


def test_a_reader_that_is_closed_while_it_reads(kept: Any) -> None:
    kept.make_topic("closed", 1)
    fill(kept, "closed", range(10), 1)
    border, status = BATCHES.choose()
    assert border is not None, status
    with kept.client() as client:
        reader = client.create_reader(f"{kept.full('closed')}-partition-0", pulsar.MessageId.earliest)
        unused: Any = print
        batches = border.reader(reader._reader, unused, (1 << 60, 0), True, 1, 5_000, 1 << 25, 1, 60_000)
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(batches.read()))
        waiting.start()
        threading.Event().wait(0.5)
        with pytest.raises(RuntimeError, match="another thread reads"):
            batches.read()
        reader.close()
        waiting.join(20)
        ((rows, stop, result, _, _),) = found
        assert (rows, stop) == (10, 4)
        assert result not in (0, int(pulsar.Result.Timeout))


@pytest.mark.timeout(300 + _MESSAGES // 5_000)
def test_memory_stays_as_it_was_over_many_messages(kept: Any) -> None:
    """KODOCTL_TEST_MESSAGES says how many; a quarter of them is warming up. Each hundredth is one that the binding reads."""
    stored = min(_MESSAGES // 8, 250_000)
    kept.make_topic("many", 1)
    _fill_mixed(kept, "many", stored)
    options, splits = core_options(kept, "many"), _splits(kept, "many")
    resident, read, client = list[int](), 0, BrokerClient(options.connection)
    while read < _MESSAGES:
        before = read
        for split in splits:
            for batch in read_split(split, options, client):
                read += batch.num_rows
        assert read - before == stored
        resident.append(_resident())
        if read // _TOLD > before // _TOLD:
            print(f"{read:,} messages as batches: {resident[-1] >> 20} MiB", flush=True)  # noqa: T201
    client.close()
    settled = resident[len(resident) // 4 :]
    assert settled[-1] - settled[0] < _LIMIT, resident


def _fill_mixed(workspace: Any, local: str, count: int) -> None:
    """Messages with texts of several lengths; those of one in a hundred are not UTF-8."""
    with workspace.client() as client:
        producer = client.create_producer(
            f"{workspace.full(local)}-partition-0", batching_enabled=True, block_if_queue_full=True
        )
        for number in range(count):
            builder = _pulsar.MessageBuilder().content(b"x" * (number % 700)).property(f"name-{number % 999}", "v" * 40)
            if number % 100 == 0:
                builder.property(b"\xff", b"")
            producer._producer.send_async(builder.build(), lambda *_: None)
        producer.flush()


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # no file of ours
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
