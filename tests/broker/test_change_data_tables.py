"""A source whose tables or topics are changed while it is there: partitions, Avro, other names, other types."""

from __future__ import annotations

import io
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.brokers.broker import Broker
from tests.brokers.source_run import SLOT, TABLES, TOPOLOGY, Setting
from tests.brokers.workspace import run_main
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
DAYS = """
CREATE TABLE orders (id int, day date, total numeric, region text, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE shop_outbox (id bigserial PRIMARY KEY, topic text, key text, body text, properties json);
"""
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "total", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def _record(data: bytes) -> dict[str, Any]:
    schema = fastavro.parse_schema(AVRO)
    found: Any = fastavro.schemaless_reader(io.BytesIO(data), schema, schema)
    return dict(found)


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path, logical_url: str) -> Setting:
    return Setting(broker, tenant, tmp_path, logical_url)


@pytest.mark.full
def test_topics_without_partitions_get_every_commit_once(
    broker: Broker, tenant: str, tmp_path: Path, logical_url: str
) -> None:
    plain = TOPOLOGY.replace("    partitions: 2\n", "    partitioned: false\n")
    setting = Setting(broker, tenant, tmp_path, logical_url, topology=plain)
    setting.partitions = 0
    setting.insert(0, 20)
    setting.finish()
    setting.verify()
    setting.insert(20, 200)
    setting.insert(220, 20, "slow")
    with setting.run(KILL_AT="received", KILL_NTH="2") as process:
        assert process.wait(60) == -signal.SIGKILL
    setting.sql("DELETE FROM orders WHERE id = 21")
    setting.sql("INSERT INTO shop_outbox (topic, key, body) VALUES ('orders', 'k', '{\"id\": 1000}')")
    setting.finish()
    assert setting.rows() == Counter(map(str, [*range(240), 1000]))
    assert {level for level, _ in setting.arrived()} == {"orders", "orders-L2"}
    assert setting.missing_numbers() == 0
    code, said = setting.verify()
    assert (code, "commits: 4 stored once" in said) == (0, True)


def test_rows_of_partitions_are_rows_of_their_table(
    broker: Broker, tenant: str, tmp_path: Path, logical_url: str
) -> None:
    keyed = TOPOLOGY.replace("        topic: orders\n", "        topic: orders\n        key: [id]\n")
    setting = Setting(broker, tenant, tmp_path, logical_url, topology=keyed, tables=DAYS)
    setting.sql("INSERT INTO orders VALUES (1, '2026-01-05', 1, 'eu', 'a'), (2, '2026-02-05', 1, 'eu', 'b')")
    with setting.run() as process:
        eventually(setting.has_slot, within=25)
        setting.sql("UPDATE orders SET day = '2026-02-07' WHERE id = 1")
        setting.sql("CREATE TABLE orders_3 PARTITION OF orders FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')")
        setting.sql("INSERT INTO orders VALUES (3, '2026-03-05', 1, 'eu', 'c')")
        setting.sql("ALTER TABLE orders DETACH PARTITION orders_2")
        setting.sql("INSERT INTO orders_2 VALUES (9, '2026-02-09', 1, 'eu', 'nobody publishes it')")
        setting.sql("INSERT INTO orders_1 VALUES (4, '2026-01-06', 1, 'eu', 'd')")
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    days: dict[str, list[str | None]] = {}
    for _, message in setting.arrived():
        if "kodo-id" in message.properties():
            row = json.loads(message.data()) if message.data() else {"day": None}
            days.setdefault(message.partition_key(), []).append(row["day"])
    assert days == {
        "1": ["2026-01-05", None, "2026-02-07"], "2": ["2026-02-05"], "3": ["2026-03-05"], "4": ["2026-01-06"],
    }  # fmt: skip
    assert setting.missing_numbers() == 0
    assert "not in the file" not in setting.log, "partitions are no strangers"


@pytest.mark.full
def test_a_partition_that_logs_less_than_its_table_makes_no_value_null(
    broker: Broker, tenant: str, tmp_path: Path, logical_url: str
) -> None:
    """PostgreSQL calls what such a partition logs whole rows, because the table says so."""
    keyed = TOPOLOGY.replace("        topic: orders\n", "        topic: orders\n        key: [id]\n")
    setting = Setting(broker, tenant, tmp_path, logical_url, topology=keyed, tables=DAYS)
    setting.finish()
    setting.sql("ALTER TABLE orders REPLICA IDENTITY FULL")
    setting.sql("ALTER TABLE orders_1 ALTER COLUMN note SET STORAGE EXTERNAL")
    setting.sql(
        "INSERT INTO orders VALUES (1, '2026-01-05', 1, 'eu', repeat('x', 20000)), (2, '2026-01-05', 1, 'eu', 'y')"
    )
    setting.sql("UPDATE orders SET day = '2026-01-06' WHERE id = 1")
    setting.sql("DELETE FROM orders WHERE id = 2")
    setting.finish()
    assert "of old rows only the primary key is used" in setting.log
    found: dict[str, list[str | None]] = {}
    for _, message in setting.arrived():
        if "kodo-id" in message.properties():
            note = json.loads(message.data())["note"] if message.data() else None
            found.setdefault(message.partition_key(), []).append(note)
    assert found == {"1": ["x" * 20_000] * 2, "2": ["y", None]}


def test_a_topic_of_avro_gets_records_of_its_schema(
    broker: Broker, tenant: str, tmp_path: Path, logical_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO), encoding="utf-8")
    typed = TOPOLOGY.replace("    compression: lz4\n", "    payload: {{type: avro, schema: order.avsc}}\n")
    typed = f"{typed[: typed.index('      public.shop_outbox')]}        columns: [id, total, at, ref, note, tags]\n"
    tables = """CREATE TABLE orders (id int PRIMARY KEY, total numeric(12, 2), at timestamptz, ref uuid, note text, tags text[],
        region text, hidden text)"""
    publication = f"CREATE PUBLICATION {SLOT} FOR TABLE orders WITH (publish_via_partition_root)"
    setting = Setting(broker, tenant, tmp_path, logical_url, topology=typed, tables=tables, publication=publication)
    monkeypatch.setenv("SHOP_DATABASE_URL", logical_url)
    place = ["--admin-url", broker.admin_url, "--broker-url", broker.broker_url]
    topics = [f"topic.persistent://{tenant}/ns/{name}" for name in ("orders", "orders-L2")]
    adopting = [flag for topic in topics for flag in ("--adopt", topic)]
    applied = run_main("apply", "--auto-approve", str(setting.file), *adopting, *place)
    assert applied.code == 0, applied.text
    row = "'2026-01-02 03:04:05.000006+00', 'c2d29867-3d0b-d497-9191-18a9d8ee7830', NULL, '{a,b}', 'eu', 'x')"
    setting.sql(f"INSERT INTO orders VALUES (1, 12.50, {row}")
    setting.finish()
    setting.sql("UPDATE orders SET note = 'é', total = NULL")
    setting.sql("DELETE FROM orders")
    setting.finish()
    found = [message for _, message in setting.arrived() if "kodo-id" in message.properties()]
    first, second = (_record(one.data()) for one in found[:2])
    assert (first["id"], str(first["total"]), first["note"], first["tags"]) == (1, "12.50", None, ["a", "b"])
    assert first["at"].isoformat() == "2026-01-02T03:04:05.000006+00:00"
    assert str(first["ref"]) == "c2d29867-3d0b-d497-9191-18a9d8ee7830"
    assert (second["note"], second["total"]) == ("é", None)
    assert [bool(message.data()) for message in found] == [True, True, False]
    setting.sql(f"INSERT INTO orders VALUES (2, 12.50, NULL, {row.split(', ', 1)[1]}")
    with setting.run() as process:
        assert process.wait(60) == 64
    assert "K716" in setting.log, "its schema has no null there"


@pytest.mark.full
def test_a_topic_that_got_more_partitions(setting: Setting) -> None:
    setting.finish()
    setting.insert(0, 200)
    with setting.run() as process:
        eventually(lambda: setting.log.count("changes of") == 2, within=60)
        for level in ("orders", "orders-L2"):
            path = f"persistent/{setting.tenant}/ns/{level}/partitions"
            assert setting.broker.admin("POST", path, 4).ok
        setting.partitions = 4
        setting.insert(200, 200)
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    setting.insert(400, 200)
    setting.finish()
    assert setting.rows() == Counter({str(number): 1 for number in range(600)})
    used = {message.topic_name().rpartition("-")[2] for _, message in setting.arrived()}
    assert used == {"0", "1", "2", "3"}
    assert setting.missing_numbers() == 0


@pytest.mark.full
def test_a_table_with_other_columns_and_types_goes_on(setting: Setting) -> None:
    setting.finish()
    with setting.run() as process:
        setting.insert(0, 5)
        setting.sql("ALTER TABLE orders ALTER COLUMN id TYPE bigint, ALTER COLUMN total TYPE text")
        setting.insert(5, 5)
        setting.sql("ALTER TABLE orders DROP COLUMN note")
        setting.sql("ALTER TABLE orders ADD COLUMN more int NOT NULL DEFAULT 7, ADD COLUMN note text")
        setting.sql("INSERT INTO orders (id, total, region) VALUES (50, 'x', 'eu')")
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    found = (json.loads(message.data()) for _, message in setting.arrived() if "kodo-id" in message.properties())
    rows = {row["id"]: row for row in found}
    assert rows[0] == {"id": 0, "total": "1.50", "region": "eu", "note": "note"}
    assert rows[7] == {"id": 7, "total": "1.50", "region": "eu", "note": "note"}
    assert rows[50] == {"id": 50, "total": "x", "region": "eu", "more": 7, "note": None}
    assert len(rows) == 11


@pytest.mark.full
def test_a_table_that_was_renamed_stops_the_source_and_nothing_is_passed_over(setting: Setting) -> None:
    setting.finish()
    setting.insert(0, 5)
    setting.sql("ALTER TABLE orders RENAME TO orders_of_2026")
    setting.sql("INSERT INTO orders_of_2026 VALUES (5, 1, 'eu', 'x')")
    with setting.run() as process:
        assert process.wait(60) == 64
    said = " ".join(setting.log.split())
    assert "K791" in said
    assert "public.orders_of_2026 is published and not in the file, and public.orders is not published" in said
    assert len(setting.rows()) == 5
    text = setting.file.read_text(encoding="utf-8").replace("public.orders:", "public.orders_of_2026:")
    setting.file.write_text(text, encoding="utf-8")
    setting.finish()
    assert setting.rows() == Counter({str(number): 1 for number in range(6)})


@pytest.mark.full
def test_changes_under_an_earlier_name_are_those_of_the_table(setting: Setting) -> None:
    """The file had the new name before the source read the changes that were made under the old one."""
    setting.finish()
    setting.insert(0, 5)
    setting.sql("ALTER TABLE orders RENAME TO orders_of_2026")
    text = setting.file.read_text(encoding="utf-8").replace("public.orders:", "public.orders_of_2026:")
    setting.file.write_text(text, encoding="utf-8")
    setting.finish()
    assert setting.rows() == Counter({str(number): 1 for number in range(5)})


@pytest.mark.full
def test_a_table_that_left_the_publication_is_no_quiet_one(setting: Setting) -> None:
    setting.finish()
    setting.insert(100, 5)
    setting.sql("DROP TABLE orders")
    setting.sql(TABLES.split(";")[0])
    setting.insert(0, 5)
    with setting.run() as process:
        eventually(lambda: "public.orders is not in the publication" in setting.log, within=60)
        setting.await_confirmed(process)
    assert set(setting.rows()) == {str(number) for number in range(100, 105)}, (
        "what was published before it was dropped"
    )
