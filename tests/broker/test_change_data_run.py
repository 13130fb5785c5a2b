"""`kodo-consumer source run` as a process on a real broker and a real PostgreSQL: each committed row once, whenever the
process is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pulsar
import pytest
from kodo_consumer.core.sequences.sequencer import key_hash

from kodoctl.protocol.sequence_numbers import Number, ProducerWatermark, read_number
from tests.brokers.broker import Broker
from tests.brokers.kill_points import KILL_POINTS
from tests.brokers.topics import algorithms, create_topics
from tests.services.databases import Postgres
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: shop
tenant: {tenant}
namespace: ns
topics:
  orders:
    compression: lz4
    partitions: 2
    levels: [L1, L2]
    subscriptions:
      work: {{states: [], dead_letter: false, routes: [{{when: "properties['bucket'] = 'slow'", to: L2}}]}}
sources:
  db:
    database: SHOP_DATABASE_URL
    tables:
      public.orders:
        topic: orders
        properties: {{bucket: region}}
      public.shop_outbox:
        outbox: {{topic: topic, key: key, payload: body, properties: properties}}
"""
SLOT = "kodo_shop_db"
PUBLICATION = (
    f"CREATE PUBLICATION {SLOT} FOR TABLE orders, shop_outbox"
    " WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)"
)
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, total numeric, region text, note text);
CREATE TABLE shop_outbox (id bigserial PRIMARY KEY, topic text, key text, body text, properties json);
"""
RUN = (
    KILL_POINTS
    + """
from kodo_consumer.adapters.pulsar.sequenced_producers import SequencedProducer
from kodo_consumer.cli.main import main
from kodo_consumer.source.database import Replication
from kodo_consumer.source.runner import Source

around(SequencedProducer, "send", "sent.")
around(Source, "_read_answers", "received")
around(Source, "_on_event", "event.")
around(Replication, "confirm", "confirm")
around(Replication, "confirm", "confirmed.")
around(Replication, "keep_slot", "snapshot-sent")
around(Replication, "keep_slot", "slot-made.")
if STEP == "skip":  # the commit is numbered, and its message never sent: a loss that only an audit can find
    send, calls = SequencedProducer.send, count(1)

    def skipping(self, number, message, token, on_answer):
        if next(calls) == NTH:
            on_answer(token, None)
        else:
            send(self, number, message, token, on_answer)

    SequencedProducer.send = skipping
main()
"""
)


class Setting:
    """Topics on the broker, tables in the database, and the source as a process."""

    def __init__(self, broker: Broker, tenant: str, folder: Path, url: str) -> None:
        self.broker, self.tenant, self.folder, self.url = broker, tenant, folder, url
        assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
        assert broker.admin("POST", f"namespaces/{tenant}/ns/deduplication", True).ok
        self.file = folder / "t.yaml"
        self.file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
        (folder / "source.py").write_text(RUN, encoding="utf-8")
        create_topics(broker, str(self.file))
        self.sql(TABLES)
        self.sql(PUBLICATION)

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement.encode(), values or None)
            return found.fetchall() if found.description else []

    def insert(self, first: int, count: int, region: str = "eu") -> None:
        self.sql(
            "INSERT INTO orders SELECT n, 1.50, %s, 'note' FROM generate_series(%s::int, %s::int) n",
            region, first, first + count - 1,
        )  # fmt: skip

    @contextmanager
    def run(self, *more: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        command = [
            sys.executable, "source.py", "source", "run", str(self.file), *more,
            "--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url,
        ]  # fmt: skip
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env={**os.environ, "SHOP_DATABASE_URL": self.url, "KODOCTL_ENV": "", **environ},
                text=True, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            print(self.log)  # noqa: T201  # pytest shows it where a test fails

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def has_slot(self) -> bool:
        return bool(
            self.sql(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn IS NOT NULL", SLOT
            )
        )

    def is_confirmed(self) -> bool:
        """True if everything that is committed now was confirmed: then it is stored."""
        return self.has_slot() and bool(
            self.sql(
                "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
                self.end,
                SLOT,
            )[0][0]
        )

    def finish(self, **environ: str) -> None:
        """Runs the source until everything that is committed now is confirmed, then ends it by SIGTERM."""
        before = len(self.log) if (self.folder / "log").exists() else 0
        with self.run(**environ) as process:
            eventually(lambda: "changes of" in self.log[before:] or process.poll() is not None, within=60)
            self.await_confirmed(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, self.log

    def await_confirmed(self, process: subprocess.Popen[str]) -> None:
        self.end = self.sql("SELECT pg_current_wal_lsn()::text")[0][0]
        eventually(lambda: self.is_confirmed() or process.poll() is not None, within=60)
        assert process.poll() is None, self.log

    def arrived(self) -> list[tuple[str, pulsar.Message]]:
        """(topic, message) of everything that is stored, by somebody who knows nothing of sources."""
        client = pulsar.Client(self.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        found = []
        try:
            for level in ("orders", "orders-L2"):
                for partition in (0, 1):
                    topic = f"persistent://{self.tenant}/ns/{level}-partition-{partition}"
                    reader = client.create_reader(topic, pulsar.MessageId.earliest)
                    with suppress(pulsar.Timeout):
                        while reader.has_message_available():
                            found.append((level, reader.read_next(5_000)))
        finally:
            client.close()
        return found

    def rows(self) -> Counter[str]:
        """Ids of the orders in messages, each with the number of times that it is stored."""
        return Counter(
            str(json.loads(message.data())["id"])
            for _, message in self.arrived()
            if "kodo-id" in message.properties() and message.data()
        )

    def missing_numbers(self) -> int:
        """Numbers that a reader expects and that no message has, as the audit counts them."""
        seen: dict[tuple[str, str, int], set[int]] = {}
        high: Counter[tuple[str, str, int]] = Counter()
        void: dict[tuple[str, str, int], set[int]] = {}
        for topic, message in self.arrived():
            number = read_number(message.properties()["kodo-seq"])
            at = topic, number.run, number.partition
            if isinstance(number, ProducerWatermark):
                high[at] = max(high[at], number.high)
                void.setdefault(at, set()).update(n for first, last in number.void for n in range(first, last + 1))
            else:
                assert isinstance(number, Number)
                seen.setdefault(at, set()).add(number.number)
                high[at] = max(high[at], number.number)
        return sum(len(set(range(1, high[at] + 1)) - seen.get(at, set()) - void.get(at, set())) for at in high)


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path, logical_url: str) -> Setting:
    return Setting(broker, tenant, tmp_path, logical_url)


def test_rows_of_before_and_changes_become_messages(setting: Setting) -> None:
    setting.sql("INSERT INTO orders VALUES (1, 12345678901234567890.10, 'eu', NULL), (2, 2, 'slow', 'é')")
    with setting.run() as process:
        eventually(setting.has_slot, within=25)
        setting.sql("UPDATE orders SET total = 3 WHERE id = 1")
        setting.sql("UPDATE orders SET id = 20 WHERE id = 2")
        setting.sql("DELETE FROM orders WHERE id = 1")
        setting.sql(
            "INSERT INTO shop_outbox (topic, key, body, properties) VALUES ('orders', 'k', 'bytes', '{\"a\": \"b\"}')"
        )
        setting.sql("UPDATE shop_outbox SET key = 'other'")
        setting.sql("ALTER TABLE orders ADD COLUMN extra int[]")
        setting.sql("INSERT INTO orders VALUES (3, 1, 'eu', 'x', '{1,NULL,3}')")
        setting.sql("TRUNCATE orders")
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    arrived = [(topic, one) for topic, one in setting.arrived() if "kodo-id" in one.properties()]
    by_key: dict[str, list[Any]] = {}
    for topic, message in arrived:
        by_key.setdefault(message.partition_key(), []).append((topic, message.data().decode()))
        assert message.topic_name().endswith(f"-partition-{key_hash(message.partition_key()) % 2}")
        assert message.event_timestamp() > 0
    assert {key: sorted(found, reverse=True) for key, found in by_key.items() if key == "2"} == {
        "2": [("orders-L2", '{"id":2,"total":"2","region":"slow","note":"é"}'), ("orders", "")]
    }, "the log of a changed key has the key alone: no property by which to route"
    del by_key["2"]
    assert by_key == {
        "1": [
            ("orders", '{"id":1,"total":"12345678901234567890.10","region":"eu","note":null}'),
            ("orders", '{"id":1,"total":"3","region":"eu","note":null}'),
            ("orders", ""),
        ],
        "20": [("orders-L2", '{"id":20,"total":"2","region":"slow","note":"é"}')],
        "3": [("orders", '{"id":3,"total":"1","region":"eu","note":"x","extra":[1,null,3]}')],
        "k": [("orders", "bytes")],
    }
    assert setting.missing_numbers() == 0
    stored = Counter[str]()
    for local in ("orders", "orders-L2"):
        for number in range(2):
            stored += algorithms(setting.broker, f"persistent/{setting.tenant}/ns/{local}-partition-{number}")
    assert set(stored) == {"LZ4"}, "as the file declares, marks too"
    assert "TRUNCATE of public.orders" in setting.log
    assert "public.orders has other columns" in setting.log
    assert "with extra" in setting.log
    assert "sent 8, truncates 1, schema changes 1" in setting.log


@pytest.mark.parametrize(
    ("step", "nth"),
    [("sent.", 700), ("received", 4), ("event.", 900), ("confirm", 2), ("confirmed.", 2)],
)
def test_a_source_that_is_killed_sends_every_commit_once(setting: Setting, step: str, nth: int) -> None:
    setting.finish()
    for batch in range(20):
        setting.insert(batch * 100, 100)
    with setting.run(KILL_AT=step, KILL_NTH=str(nth)) as process:
        assert process.wait(60) == -signal.SIGKILL, setting.log
    setting.insert(2_000, 50)
    setting.finish()
    assert setting.rows() - Counter(map(str, range(2_050))) == Counter()
    assert Counter(map(str, range(2_050))) - setting.rows() == Counter()
    assert setting.missing_numbers() == 0


@pytest.mark.parametrize("step", ["sent.", "snapshot-sent", "slot-made."])
def test_a_snapshot_that_is_killed_begins_anew(setting: Setting, step: str) -> None:
    setting.insert(0, 300)
    with setting.run(KILL_AT=step, KILL_NTH="150" if step == "sent." else "1") as process:
        assert process.wait(60) == -signal.SIGKILL, setting.log
    assert setting.has_slot() == (step == "slot-made.")
    setting.finish()
    rows = setting.rows()
    assert set(rows) == {str(number) for number in range(300)}
    assert set(rows.values()) <= ({1} if step == "slot-made." else {1, 2})


def test_a_commit_that_was_skipped_is_missed_by_its_number(setting: Setting) -> None:
    setting.finish()
    setting.insert(0, 100)
    setting.finish(KILL_AT="skip", KILL_NTH="50")
    assert len(setting.rows()) == 99
    assert setting.missing_numbers() == 1


def test_transactions_that_interleave_abort_and_are_large(setting: Setting) -> None:
    setting.finish()
    with psycopg.connect(setting.url) as one, psycopg.connect(setting.url) as other, setting.run() as process:
        one.execute("INSERT INTO orders SELECT n, 1, 'eu', 'one' FROM generate_series(1, 100000) n")
        other.execute("INSERT INTO orders VALUES (200001, 1, 'eu', 'other')")
        with one.transaction(force_rollback=True):
            one.execute("INSERT INTO orders VALUES (300001, 1, 'eu', 'aborted')")
        setting.insert(200_002, 1)
        other.commit()
        one.commit()
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    rows = setting.rows()
    assert rows == Counter({str(number): 1 for number in [*range(1, 100_001), 200_001, 200_002]})


def test_a_publication_of_another_topology_is_not_read(setting: Setting) -> None:
    setting.finish()
    marker = {"topology": "shop-db", "namespace": f"{setting.tenant}/ns", "cluster": "c", "tenant_uuid": "u"}
    setting.sql(f"COMMENT ON PUBLICATION {SLOT} IS 'kodoctl {json.dumps(marker)}'")
    with setting.run() as process:
        assert process.wait(60) == 64
    assert f"belongs to the topology shop-db in {setting.tenant}/ns" in " ".join(setting.log.split())


def test_a_second_process_waits_and_takes_over(setting: Setting) -> None:
    setting.finish()
    with setting.run() as first, setting.run() as second:
        eventually(lambda: "another `source run` has it" in setting.log, within=60)
        setting.insert(0, 10)
        setting.await_confirmed(first)
        first.kill()
        second_pid = second.pid
        setting.insert(10, 10)
        setting.await_confirmed(second)
        assert second.pid == second_pid
    assert "is active for PID" in setting.log
    assert setting.rows() == Counter({str(number): 1 for number in range(20)})


def test_a_mapped_column_that_vanished_stops_it_and_nothing_is_lost(setting: Setting) -> None:
    setting.finish()
    setting.insert(-5, 5)
    setting.insert(0, 5)
    setting.sql("ALTER TABLE orders RENAME COLUMN region TO area")
    setting.insert(5, 5)
    with setting.run() as process:
        assert process.wait(60) == 64
    assert "K791" in setting.log
    assert "it has no column region any more" in setting.log
    assert set(setting.rows()) == {str(number) for number in range(-5, 5)}


def test_a_large_value_that_an_update_left_alone_is_read_from_the_table(setting: Setting) -> None:
    setting.finish()
    setting.sql("ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL")
    setting.sql("INSERT INTO orders VALUES (1, 1, 'eu', repeat('x', 20000))")
    setting.sql("UPDATE orders SET total = 2")
    setting.finish()
    notes = [json.loads(one.data())["note"] for _, one in setting.arrived() if one.data()]
    assert notes == ["x" * 20_000] * 2
    setting.sql("UPDATE orders SET total = 3")
    setting.sql("DELETE FROM orders")
    setting.finish()
    assert "its row was deleted by a later commit" in setting.log


def test_a_database_that_goes_away_and_comes_back(
    broker: Broker, tenant: str, tmp_path: Path, own_postgres: Postgres
) -> None:
    own_postgres.restart_with(wal_level="logical")
    setting = Setting(broker, tenant, tmp_path, own_postgres.create().replace("+psycopg", ""))
    with setting.run() as process:
        eventually(setting.has_slot, within=25)
        setting.insert(0, 1_000)
        own_postgres.stop()
        eventually(lambda: "next try in" in setting.log, within=60)
        own_postgres.start()
        setting.insert(1_000, 10)
        setting.await_confirmed(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "it works again" in setting.log
    assert setting.rows() == Counter({str(number): 1 for number in range(1_010)})
    assert setting.missing_numbers() == 0


def test_lag_at_a_thousand_rows_a_second(setting: Setting) -> None:
    setting.finish()
    over = threading.Event()
    with setting.run() as process:
        eventually(lambda: "changes of" in setting.log, within=60)
        began = time.monotonic()
        for second in range(20):
            setting.insert(second * 100, 100)
            over.wait(max(0.0, began + second / 10 - time.monotonic()))
        setting.await_confirmed(process)
        assert time.monotonic() - began < 8
