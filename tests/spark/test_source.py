"""`spark.read.format("pulsar")` on a real broker: exact however it is cut, and never silent about what is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kodo_pipeline.landing.file_store import Storage
from kodo_pipeline.source.data_source import PulsarSource
from kodo_pipeline.source.partition_stats import read_stored
from kodo_pipeline.source.split_reader import read_split
from kodo_pipeline.source.splits import Split, splits_of
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.spark.filling import core_options, fill, keep, source_options, unload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broker
MESSAGES = 8_000


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(PulsarSource)
    return spark


@pytest.fixture
def kept(workspace: Workspace) -> Workspace:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    keep(workspace)
    return workspace


def _read(spark: SparkSession, workspace: Workspace, *locals_: str, **more: str) -> DataFrame:
    return spark.read.format("pulsar").options(**source_options(workspace, *locals_, **more)).load()


def _covered(folder: Path) -> list[dict[str, Any]]:
    return list(Storage(str(folder)).documents().values())


def _splits(workspace: Workspace, local: str, most: int = 1) -> list[Split]:
    options = core_options(workspace, local)
    admin = HttpAdmin(options.connection)
    found = read_stored(admin, options.topics)
    admin.close()
    return [
        split for (topic, number), one in found.items() for split in splits_of(topic.full, number, one.pieces, most)
    ]


def test_every_message_is_read_once_however_the_ledgers_are_cut(
    source: SparkSession, kept: Workspace, tmp_path: Path
) -> None:
    kept.make_topic("orders", 4)
    fill(kept, "orders", range(MESSAGES), 4, ledgers=3)
    fill(kept, "orders", range(MESSAGES, MESSAGES + 400), 4)  # in the open ledger
    for splits in (1, 2):
        folder = tmp_path / str(splits)
        frame = _read(
            source, kept, "orders", splits=str(splits), coverage=str(folder), payload=str(splits == 1).lower()
        )
        number = F.col("properties")["n"].cast("int")
        found = frame.agg(
            F.count("*"), F.countDistinct(number), F.min(number), F.max(number),
            F.countDistinct("partition", "ledger", "entry", "batch_index"), F.sum("size"), F.countDistinct("split_id"),
        ).first()  # fmt: skip
        assert found is not None
        total = MESSAGES + 400
        assert tuple(found)[:5] == (total, total, 0, total - 1, total)
        assert found[5] == (total * 200 if splits == 1 else None)
        covered = _covered(folder)
        assert len(covered) == found[6] == 4 * splits
        assert all(one["full"] for one in covered)
        assert sum(one["rows"] for one in covered) == total
    places = set()
    options = core_options(kept, "orders", payload="false")
    splits_of_all = _splits(kept, "orders", 8)
    for split in splits_of_all:  # what a table engine without Spark does
        for batch in read_split(split, options):
            columns = [batch.column(name).to_pylist() for name in ("partition", "ledger", "entry", "batch_index")]
            places |= set(zip(*columns, strict=True))
    assert len(splits_of_all) == 32
    assert len(places) == MESSAGES + 400
    stats = f"{kept.path('orders')}/partitioned-stats"
    eventually(lambda: not kept.admin("GET", stats)["subscriptions"])  # nothing is left on the broker


@pytest.mark.full
def test_filters_spare_reading(source: SparkSession, kept: Workspace, tmp_path: Path) -> None:
    for local in ("a", "b"):
        kept.make_topic(local, 2)
        fill(kept, local, range(2_000), 2, ledgers=2)
    both = _read(source, kept, "a", "b", coverage=str(tmp_path / "one"))
    one = both.where((F.col("topic") == kept.full("a")) & (F.col("partition") == 1))
    assert one.count() == 1_000
    assert [(row["msg_topic"], row["msg_partition"], row["rows"]) for row in _covered(tmp_path / "one")] == [
        (kept.full("a"), 1, 1_000)
    ]
    late = _read(source, kept, "b", coverage=str(tmp_path / "late"), publishTimeSkewMs="0")
    times = sorted(row[0] for row in late.select("publish_ts").distinct().collect())
    Storage(str(tmp_path / "late")).remove()
    wanted = late.where(F.col("publish_ts") >= F.lit(times[-1])).count()
    assert 0 < wanted <= sum(row["rows"] for row in _covered(tmp_path / "late")) < 1_000


def test_what_is_trimmed_between_plan_and_reading_is_told(kept: Workspace, tmp_path: Path) -> None:
    kept.make_topic("gone", 1)
    fill(kept, "gone", range(2_000), 1, ledgers=2)
    (split,) = _splits(kept, "gone")
    keep(kept, 0)

    def trimmed() -> bool:
        kept.admin("POST", f"{kept.path('gone')}-partition-0/trim")
        return not _splits(kept, "gone")

    eventually(trimmed, every=0.5)
    options = core_options(kept, "gone", tmp_path, timeoutMs="1000")
    with pytest.raises(ClusterError, match=r"K574.*0 of \d+ entries, nothing more came; ledgers .* are gone"):
        list(read_split(split, options))
    fill(kept, "gone", range(2_000, 2_100), 1)
    with pytest.raises(ClusterError, match=r"K574.*0 of \d+ entries, the broker went on behind the end"):
        list(read_split(split, options))
    assert [one["state"] for one in _covered(tmp_path)] == ["overrun"]


def test_messages_that_expire_under_a_reader_are_told_though_their_ledgers_stay(
    kept: Workspace, tmp_path: Path
) -> None:
    kept.make_topic("old", 1, "idle")
    fill(kept, "old", range(6_000), 1)
    (split,) = _splits(kept, "old")
    batches = read_split(split, core_options(kept, "old", tmp_path, rowsPerBatch="50", timeoutMs="2000"))
    rows = next(batches).num_rows
    part = f"{kept.path('old')}-partition-0"

    def expired() -> bool:  # what is older than a second; the newest message is, soon
        told = kept.broker.admin("POST", f"{part}/all_subscription/expireMessages/1")
        assert told.ok or told.status_code == 409, told.text  # 409: one that was asked for before is still at it
        return int(kept.admin("GET", f"{part}/stats")["subscriptions"]["idle"]["msgBacklog"]) == 0

    eventually(expired, every=0.5)
    with pytest.raises(ClusterError, match=r"K561.* came in one of two readings: .* expired under the reader; run it"):
        rows += sum(batch.num_rows for batch in batches)
    assert rows < 6_000
    assert not _covered(tmp_path), "it is no hole: only entries seen tell, and the ledger stays"
    again = read_split(split, core_options(kept, "old", tmp_path))
    assert sum(batch.num_rows for batch in again) == 6_000


def test_messages_that_cannot_be_read_are_landed_with_what_is_wrong(kept: Workspace) -> None:
    """One of them was enough to end every later ingest: the client kept it, and its entry counted as missing."""
    kept.make_topic("odd", 1)
    key = binary(13, binary(1, b"owner") + binary(2, b"wrapped"))
    with WireProducer(kept.broker.broker_url, f"{kept.full('odd')}-partition-0") as producer:
        producer.send(wire_metadata(), b"good")
        producer.send(wire_metadata(key + binary(4, binary(1, b"uid") + binary(2, b"anna"))), b"ciphertext")
        producer.send(wire_metadata(key + numeric(11, 5)), b"a batch")
        producer.send(wire_metadata(key + binary(4, binary(1, b"\xff") + binary(2, b"v"))), b"lost")
        producer.send(wire_metadata(binary(13, binary(1, b"\xff") + binary(2, b"v"))), b"worse")
    (split,) = _splits(kept, "odd")
    rows = [row for batch in read_split(split, core_options(kept, "odd")) for row in batch.to_pylist()]
    encrypted = "its payload is encrypted for somebody else"
    assert [(row["payload"], row["broken"], row["batch_index"]) for row in rows] == [
        (b"good", None, -1),
        (b"ciphertext", encrypted, -1),
        (b"a batch", encrypted, -1),
        (b"lost", f"not UTF-8 text, and lost: properties; {encrypted}", -1),
        (b"worse", f"not UTF-8 text, and lost: encryption; {encrypted}", -1),
    ]
    assert dict(rows[1]["properties"]).keys() == {"uid", "kodo-encryption"}


def test_entries_without_a_message_are_landed_as_such_and_end_no_ingest(kept: Workspace, tmp_path: Path) -> None:
    """The client library throws them away: they counted as missing, K574 until retention had deleted them."""
    kept.make_topic("none", 1)
    garbled = wire_metadata(numeric(8, 2) + numeric(9, 5))
    chunk = binary(26, b"u1") + numeric(27, 2) + numeric(28, 8)
    with WireProducer(kept.broker.broker_url, f"{kept.full('none')}-partition-0") as producer:
        producer.send(garbled, b"no zlib")
        producer.send(wire_metadata(), b"good")
        producer.send(garbled, b"no zlib")
        producer.send(wire_metadata(numeric(20, 10)), b"a marker")
        producer.send(binary(1, b"wire") + numeric(2, 1), b"without a publish time")
        producer.send(wire_metadata(chunk + numeric(29, 1)), b"last part alone")
        producer.send(wire_metadata(), b"better")
        producer.send(wire_metadata(chunk + numeric(29, 0)), b"first part alone")
    (split,) = _splits(kept, "none")
    options = core_options(kept, "none", tmp_path, timeoutMs="1000")
    rows = [row for batch in read_split(split, options) for row in batch.to_pylist()]
    assert [(row["entry"], row["payload"]) for row in rows if row["broken"] is None] == [(1, b"good"), (6, b"better")]
    rows = [row for row in rows if row["broken"]]
    assert [row["entry"] for row in rows] == [0, 2, 3, 4, 5, 7]
    assert {(row["payload"], row["size"], row["batch_index"], row["broken"]) for row in rows} == {
        (
            None,
            0,
            -1,
            "the client library gives out no message of it: it is damaged, a marker, or part of a chunked message",
        )
    }
    (covered,) = _covered(tmp_path)
    assert (covered["full"], covered["state"], covered["rows"], covered["entries_seen"]) == (True, "complete", 8, 8)
    unload(kept, "none", 0)
    with WireProducer(kept.broker.broker_url, f"{kept.full('none')}-partition-0") as producer:
        producer.send(garbled, b"alone in its ledger")
    (split,) = _splits(kept, "none")
    rows = [row for batch in read_split(replace(split, pieces=split.pieces[-1:]), options) for row in batch.to_pylist()]
    assert [(row["entry"], bool(row["broken"])) for row in rows] == [(0, True)]


def test_a_chunked_message_is_read_whole(kept: Workspace, tmp_path: Path) -> None:
    kept.make_topic("chunked", 1)
    with kept.client() as client:
        producer = client.create_producer(kept.full("chunked"), chunking_enabled=True, batching_enabled=False)
        producer.send(b"x" * (11 << 20))
        producer.close()
    (split,) = _splits(kept, "chunked")
    rows = [row for batch in read_split(split, core_options(kept, "chunked", tmp_path)) for row in batch.to_pylist()]
    assert [(len(row["payload"]), row["broken"]) for row in rows] == [(11 << 20, None)]
    (covered,) = _covered(tmp_path)
    assert (covered["full"], covered["entries_seen"]) == (True, 3)


def test_wrong_options_are_all_told_at_once(source: SparkSession) -> None:
    frame = source.read.format("pulsar").option("topic", "no topic").option("splits", "0").option("colour", "red")
    with pytest.raises(PySparkException, match=r"(?s)colour.*topic.*adminUrl.*splits"):
        frame.load().count()
