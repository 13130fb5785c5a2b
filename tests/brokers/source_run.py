"""A source of change data as a process: topics on a broker, tables in a database, and what arrives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pulsar
import pytest
from kodo_consumer.source.pgoutput import Begin, read_message
from kodo_consumer.source.positions import lsn_text

from kodoctl.protocol.sequence_numbers import Number, ProducerWatermark, read_number
from kodoctl.topology.names import TopicName, partition_numbers
from tests.brokers.broker import Broker
from tests.brokers.kill_points import KILL_POINTS
from tests.brokers.topics import create_topics
from tests.brokers.workspace import run_consumer
from tests.services.polling import eventually

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
import time
from kodo_consumer.adapters.pulsar.sequenced_producers import SequencedProducer
from kodo_consumer.cli.main import main
from kodo_consumer.source import pgoutput, stored_messages
from kodo_consumer.source.database import Replication
from kodo_consumer.source.runner import Source

around(SequencedProducer, "send", "sent.")
around(Source, "_read_answers", "received")
around(Source, "_on_event", "event.")
around(Replication, "confirm", "confirm")
around(Replication, "confirm", "confirmed.")
around(Replication, "keep_slot", "snapshot-sent")
around(Replication, "keep_slot", "slot-made.")
if STEP == "reports":  # it dies before it reports the position KILL_NTH, or a later one
    confirm = Replication.confirm

    def confirming(self, lsn):
        if lsn >= NTH:
            os.kill(os.getpid(), signal.SIGKILL)
        confirm(self, lsn)

    Replication.confirm = confirming
if STEP == "clock":  # the database's clock differs from that of the senders by so many seconds
    pgoutput._EPOCH_MS += NTH * 1000
if STEP == "slow read":  # each message that is read takes so many milliseconds
    read_all = stored_messages.read_all

    def reading(*arguments, **named):
        for message in read_all(*arguments, **named):
            time.sleep(NTH / 1000)
            yield message

    stored_messages.read_all = reading
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

    def __init__(
        self,
        broker: Broker,
        tenant: str,
        folder: Path,
        url: str,
        *,
        topology: str = TOPOLOGY,
        tables: str = TABLES,
        publication: str = PUBLICATION,
    ) -> None:
        self.broker, self.tenant, self.folder, self.url = broker, tenant, folder, url
        self.partitions = 2  # 0: plain topics
        assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
        assert broker.admin("POST", f"namespaces/{tenant}/ns/deduplication", True).ok
        self.file = folder / "t.yaml"
        self.file.write_text(topology.format(tenant=tenant), encoding="utf-8")
        (folder / "source.py").write_text(RUN, encoding="utf-8")
        create_topics(broker, str(self.file))
        self.sql(tables)
        self.sql(publication)

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement.encode(), values or None)
            rows = found.fetchall() if found.description else []
            if not statement.startswith("SELECT"):
                [(self.end,)] = connection.execute("SELECT pg_current_wal_lsn()::text").fetchall()
            return rows

    def end_number(self) -> int:
        """The position after the last statement, as a number."""
        high, low = self.end.split("/")
        return (int(high, 16) << 32) + int(low, 16)

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

    def verify(self, *more: str, **environ: str) -> tuple[int, str]:
        """(exit code, output) of `source verify`, as one line. In this process, where no step of it is changed (KILL_AT)."""
        words = [
            "source", "verify", str(self.file), *more,
            "--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url,
        ]  # fmt: skip
        own = {"SHOP_DATABASE_URL": self.url, "KODOCTL_ENV": "", **environ}
        if "KILL_AT" in environ:
            done = subprocess.run(
                [sys.executable, "source.py", *words], cwd=self.folder, env={**os.environ, **own}, text=True,
                capture_output=True, check=False,
            )  # fmt: skip
            code, text = done.returncode, done.stdout + done.stderr
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(self.folder)
                for name, value in own.items():
                    patch.setenv(name, value)
                run = run_consumer(*words)
            code, text = run.code, run.text
        print(text)  # noqa: T201  # pytest shows it where a test fails
        return code, " ".join(text.split())

    def change_file(self, before: str, after: str) -> None:
        text = self.file.read_text(encoding="utf-8")
        assert before in text
        self.file.write_text(text.replace(before, after), encoding="utf-8")

    def send(self, topic: str, properties: dict[str, str], name: str | None = None, number: int | None = None) -> None:
        """Sends a message as anybody may who has the right to produce. `topic`: a partition's full name."""
        client = pulsar.Client(self.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        try:
            producer = client.create_producer(topic, producer_name=name, batching_enabled=False)
            producer.send(b'{"id": -1}', properties=properties, sequence_id=number)
        finally:
            client.close()

    def open_commits(self) -> list[str]:
        """Positions of the commits that the source has not reported yet."""
        changes = self.sql(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s)",
            SLOT,
            SLOT,
        )
        found = (read_message(bytes(data)) for (data,) in changes)
        return [lsn_text(one.commit_lsn) for one in found if isinstance(one, Begin)]

    def move_slot(self) -> None:
        """Moves the slot of the source to the end of the log, so that it never reads what is before it."""
        self.sql("SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", SLOT)

    def forget_numbers(self) -> None:
        """Makes the broker forget the numbers of all producers, as after six hours: deduplication is off for a moment."""
        path = f"persistent/{self.tenant}/ns/orders-partition-0/internalStats"

        def is_deduplicated() -> bool:
            return "pulsar.dedup" in self.broker.admin("GET", path).json()["cursors"]

        assert self.broker.admin("POST", f"namespaces/{self.tenant}/ns/deduplication", False).ok
        eventually(lambda: not is_deduplicated(), within=60)
        assert self.broker.admin("POST", f"namespaces/{self.tenant}/ns/deduplication", True).ok
        eventually(is_deduplicated, within=60)

    def has_slot(self) -> bool:
        return bool(
            self.sql(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn IS NOT NULL", SLOT
            )
        )

    def is_confirmed(self) -> bool:
        """True if everything that the test committed was confirmed: then it is stored."""
        return self.has_slot() and bool(
            self.sql(
                "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
                self.end,
                SLOT,
            )[0][0]
        )

    def finish(self, *more: str, **environ: str) -> None:
        """Runs the source until everything that the test committed is confirmed, then ends it by SIGTERM."""
        before = len(self.log) if (self.folder / "log").exists() else 0
        with self.run(*more, **environ) as process:
            eventually(lambda: "changes of" in self.log[before:] or process.poll() is not None, within=60)
            self.await_confirmed(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, self.log

    def await_confirmed(self, process: subprocess.Popen[str]) -> None:
        eventually(lambda: self.is_confirmed() or process.poll() is not None, within=60)
        assert process.poll() is None, self.log

    def arrived(self) -> list[tuple[str, pulsar.Message]]:
        """(topic, message) of everything that is stored, by somebody who knows nothing of sources."""
        client = pulsar.Client(self.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        found = []
        try:
            for level in ("orders", "orders-L2"):
                for part in partition_numbers(self.partitions):
                    topic = TopicName.parse(f"persistent://{self.tenant}/ns/{level}").partition(part)
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
