"""The relay as a process on the real broker: kill -9 at every named step, several at once, SIGTERM, databases and brokers
that are gone for a while.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar
import pytest
from kodo_consumer.outbox import TABLE, Outbox
from sqlalchemy import create_engine, func, select
from sqlalchemy.pool import NullPool

from tests.brokers.broker import Broker
from tests.brokers.kill_points import KILL_POINTS
from tests.brokers.topics import create_topics
from tests.services.databases import Postgres
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: outbox
tenant: {tenant}
namespace: ns
topics:
  plain:
    subscriptions: {{work: {{states: [], dead_letter: false}}}}
  unpartitioned:
    partitioned: false
    subscriptions: {{work: {{type: key_shared, states: [], dead_letter: false, on_failure: block}}}}
  keyed:
    partitions: 2
    subscriptions: {{work: {{type: key_shared, states: [], dead_letter: false, on_failure: block}}}}
"""
RELAY = (
    KILL_POINTS
    + """
from kodo_consumer.cli.main import main
from kodo_consumer.outbox.relay import Relay
from kodo_consumer.outbox.producers import Senders
from kodo_consumer.outbox.outbox_store import OutboxStore

around(Relay, "_send", "claimed", 1)  # nothing of the batch is sent
around(Senders, "post", "posted.", 150)  # on its way, without receipt
around(Relay, "_on_stored", "stored", 150)  # the broker has it, the table does not know
around(OutboxStore, "settle", "settled.", 1)
main()
"""
)
WINDOW = 2_000  # rows a relay claims at most before it settles some


class Setting:
    """Topics on the broker, a database with the table, and relays as processes."""

    def __init__(self, broker: Broker, tenant: str, folder: Path, url: str) -> None:
        self.broker, self.folder, self.url, self.tenant = broker, folder, url, tenant
        assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
        self.file = folder / "t.yaml"
        self.file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
        (folder / "relay.py").write_text(RELAY, encoding="utf-8")
        create_topics(broker, str(self.file))
        self.engine = create_engine(url, poolclass=NullPool)
        TABLE.create(self.engine)
        self.outbox = Outbox.load(self.file, app="test", environ={})
        self.broker_url = broker.broker_url
        self.environ: dict[str, str] = {}

    def add(self, topic: str, count: int, keys: int = 20) -> list[str]:
        with self.engine.begin() as connection:
            return [
                self.outbox.add(connection, topic=topic, payload=b"%d" % number, key=f"k{number % keys}")
                for number in range(count)
            ]

    @contextmanager
    def run(self, *more: str) -> Iterator[subprocess.Popen[str]]:
        command = [
            sys.executable, "relay.py", "outbox", "run", str(self.file), *more,
            "--admin-url", self.broker.admin_url, "--broker-url", self.broker_url,
        ]  # fmt: skip
        environ = {
            **os.environ, "KODO_CONSUMER_OUTBOX_URL": self.url, "KODOCTL_ENV": "", "KODO_CONSUMER_OUTBOX_CLAIM": "4s",
            "KODO_CONSUMER_OUTBOX_BACKOFF": "default=1s", **self.environ,
        }  # fmt: skip
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, cwd=self.folder, env=environ, text=True, **streams)  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def finish(self, *more: str) -> tuple[str, str]:
        """A relay that runs until nothing is left; what it printed."""
        with self.run("--until-empty", *more) as process:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            return out, err

    def statuses(self) -> dict[str, int]:
        with self.engine.connect() as connection:
            rows = connection.execute(select(TABLE.c.status, func.count()).group_by(TABLE.c.status))
            return {str(status): int(count) for status, count in rows}

    def arrived(self, topic: str, among: int) -> list[tuple[str, str]]:
        """(kodo-id, key) of everything the topic has, in its order: by somebody who knows nothing of outboxes."""
        client = pulsar.Client(self.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        found: list[tuple[str, str]] = []
        names: set[str] = set()
        try:
            consumer = client.subscribe(f"persistent://{self.tenant}/ns/{topic}", "work", pulsar.ConsumerType.KeyShared)
            with suppress(pulsar.Timeout):
                while True:
                    message = consumer.receive(20_000 if len(names) < among else 700)
                    if "kodo-id" in message.properties():  # the producer's marks have none
                        names.add(message.properties()["kodo-id"])
                        found.append((message.properties()["kodo-id"], message.partition_key()))
        finally:
            client.close()
        return found


@pytest.fixture
def on_sqlite(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path, f"sqlite:///{tmp_path}/app.db")


@pytest.fixture
def on_postgres(broker: Broker, tenant: str, tmp_path: Path, postgres_url: str) -> Setting:
    return Setting(broker, tenant, tmp_path, postgres_url)


@pytest.mark.parametrize(
    "step", ["stored", *(pytest.param(step, marks=pytest.mark.full) for step in ("claimed", "posted.", "settled."))]
)
def test_a_relay_that_is_killed_loses_nothing_and_repeats_with_the_same_identity(
    step: str, on_postgres: Setting
) -> None:
    setting = on_postgres
    ids = setting.add("plain", WINDOW + 1_000)
    setting.environ = {"KILL_AT": step}
    with setting.run() as process:
        assert process.wait(60) == -signal.SIGKILL
    assert setting.statuses().get("sending", 0) + setting.statuses().get("sent", 0) > 0
    assert setting.statuses() != {"sent": WINDOW + 1_000}
    setting.environ = {}
    setting.finish()
    assert setting.statuses() == {"sent": WINDOW + 1_000}
    arrived = [name for name, _ in setting.arrived("plain", WINDOW + 1_000)]
    assert set(arrived) == set(ids)
    repeated = len(arrived) - len(ids)
    assert repeated <= WINDOW, "no more than one window of claims"
    assert repeated == 0 or step != "claimed"
    print(f"{step}: {repeated} repeated")  # noqa: T201


@pytest.mark.full
def test_a_topic_without_partitions_gets_every_row_and_keeps_the_order_of_keys(on_postgres: Setting) -> None:
    setting = on_postgres
    ids = setting.add("unpartitioned", 400, keys=4)
    setting.environ = {"KILL_AT": "stored"}
    with setting.run() as process:
        assert process.wait(60) == -signal.SIGKILL
    setting.environ = {}
    setting.finish()
    assert setting.statuses() == {"sent": 400}
    first: dict[str, list[str]] = {}
    for name, key in setting.arrived("unpartitioned", 400):
        if name not in first.setdefault(key, []):
            first[key].append(name)
    assert first == {f"k{number}": ids[number::4] for number in range(4)}


@pytest.mark.full
def test_relays_at_once_send_every_row_once_and_keys_in_their_order(on_postgres: Setting) -> None:
    setting = on_postgres
    ids = {"keyed": setting.add("keyed", 300), "plain": setting.add("plain", 3_000)}
    outcomes: list[tuple[str, str]] = []
    relays = [threading.Thread(target=lambda: outcomes.append(setting.finish())) for _ in range(2)]
    for relay in relays:
        relay.start()
    for relay in relays:
        relay.join()
    assert setting.statuses() == {"sent": 3_300}
    assert len(outcomes) == 2
    arrived = setting.arrived("keyed", 300)
    for number in range(20):
        assert [name for name, key in arrived if key == f"k{number}"] == ids["keyed"][number::20]
    assert sorted(name for name, _ in setting.arrived("plain", 3_000)) == sorted(ids["plain"])


@pytest.mark.full
def test_sigterm_waits_for_receipts_and_leaves_no_claims(on_sqlite: Setting) -> None:
    setting = on_sqlite
    setting.add("plain", 4_000)
    with setting.run() as process:
        eventually(lambda: setting.statuses().get("sent", 0) > 200)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
    left = setting.statuses()
    assert set(left) <= {"sent", "to_send"}
    assert f"sent {left['sent']}\n" in out
    setting.finish()
    assert len(setting.arrived("plain", 4_000)) == 4_000


def test_poison_fails_and_the_rest_is_sent(on_sqlite: Setting) -> None:
    setting = on_sqlite
    with setting.engine.begin() as connection:
        big = setting.outbox.add(connection, topic="keyed", payload=b"x" * (6 << 20), key="k1")
    ids = setting.add("keyed", 40)
    setting.finish()
    with setting.engine.connect() as connection:
        row = connection.execute(select(TABLE).where(TABLE.c.id == big)).one()
    assert (row.status, row.last_error) == ("failed", "too big")
    assert [name for name, key in setting.arrived("keyed", 40) if key == "k1"] == ids[1::20]


@pytest.mark.full
def test_a_database_that_goes_away_and_comes_back(
    broker: Broker, tenant: str, tmp_path: Path, own_postgres: Postgres
) -> None:
    setting = Setting(broker, tenant, tmp_path, own_postgres.create())
    ids = setting.add("plain", 4_000)
    with setting.run() as process:
        eventually(lambda: setting.statuses().get("sent", 0) > 200)
        own_postgres.stop()
        assert process.stderr is not None
        while "the database does not answer" not in (line := process.stderr.readline()):
            assert line, "it ended"
        own_postgres.start()
        eventually(lambda: setting.statuses() == {"sent": 4_000}, within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert {name for name, _ in setting.arrived("plain", 4_000)} == set(ids)


def test_a_broker_that_is_not_there_yet(on_sqlite: Setting) -> None:
    setting = on_sqlite
    ids = setting.add("plain", 500)
    with _door(setting.broker.broker_url) as (address, open_it):
        setting.broker_url = address
        with setting.run("--until-empty") as process:
            assert process.stderr is not None
            while "plain gives no receipts" not in (line := process.stderr.readline()):
                assert line, "it ended"
            eventually(lambda: setting.statuses() == {"to_send": 500})
            open_it()
            assert process.wait(90) == 0
    with setting.engine.connect() as connection:
        assert connection.execute(select(func.max(TABLE.c.retry_count))).scalar() == 0, "waiting cost no attempt"
    assert sorted(name for name, _ in setting.arrived("plain", 500)) == sorted(ids)


@contextmanager
def _door(broker_url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """An address where nobody answers until it is opened; then the broker does."""
    host, _, port = broker_url.removeprefix("pulsar://").rpartition(":")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    lines: list[socket.socket] = [listener]

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                target.sendall(data)
        except OSError:
            pass
        target.close()

    def accept() -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return
            outside = socket.create_connection((host, int(port)))
            lines.extend((inside, outside))
            for ends in ((inside, outside), (outside, inside)):
                threading.Thread(target=copy, args=ends, daemon=True).start()

    def open_it() -> None:
        listener.listen()
        threading.Thread(target=accept, daemon=True).start()

    try:
        yield f"pulsar://127.0.0.1:{listener.getsockname()[1]}", open_it
    finally:
        for line in lines:
            line.close()
