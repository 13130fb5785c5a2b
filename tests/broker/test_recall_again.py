"""`recall plan --again` over a store that knows the letters as done: each is handled once more, once, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.recall.send_job import SendTask
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.session import Session
from kodoctl.recall.cluster import RecallCluster
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.partitioning import partition_plan
from kodoctl.recall.plan.recall_plan import RecallPlan
from kodoctl.recall.plan.recall_plan_file import loads
from kodoctl.recall.send.rate_limit import RateLimit
from kodoctl.recall.send.sender import RecallSender
from kodoctl.recall.send.sends_in_flight import SendOptions
from tests.broker.recalling import RETRYING, Recalls
from tests.brokers.topics import backlog
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPICS = """
orders:
  subscriptions:
    billing: {states: [retrying], in_place: [], concurrency: 1, retrying: {delays: [1s], attempts: 3}}
"""
NOW = 1_800_000_000_000
APP = """
import json, os, signal

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from kodo_consumer.dedup import create_tables
from kodo_consumer.adapters.stores.sql_store import SqlStore

STEP = os.environ["KILL_AT"]
runs = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
engine = create_engine(os.environ["KODO_CONSUMER_STORE"])
create_tables(engine)
exchange = SqlStore.exchange


def marked(store, told):
    known = exchange(store, told)
    if STEP == "marked" and told.done:  # the store knows, the broker does not
        os.kill(os.getpid(), signal.SIGKILL)
    return known


SqlStore.exchange = marked


def handle(message):
    number = json.loads(message.data)["n"]
    os.write(runs, b"%d\\n" % number)
    with Session(engine) as session, session.begin():
        message.once(session)
        session.execute(text("INSERT INTO effects VALUES (:number)"), {"number": number})
        if message.attempt == 1:
            raise ValueError("the first time it fails")
    if STEP == "committed":  # the effect is there, nobody was told
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Worker:
    """`kodo-consumer run` beside the recall, and what its handler did."""

    def __init__(self, recalls: Recalls, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._recalls, self._ledger = recalls, recalls.workspace.folder / "ledger"
        (recalls.workspace.folder / "app.py").write_text(APP, encoding="utf-8")
        self.engine = create_engine(store, poolclass=NullPool)
        self._run("CREATE TABLE effects (number INTEGER)")
        monkeypatch.setenv("KODO_CONSUMER_STORE", store)
        monkeypatch.setenv("LEDGER", str(self._ledger))

    def _run(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement))

    @contextmanager
    def _running(self, kill_at: str) -> Iterator[subprocess.Popen[str]]:
        file = "topologies/trade.yaml"
        words = ["run", file, "--topic", "orders", "--subscription", "billing", "--handler", "app:handle"]
        command = [str(Path(sys.executable).with_name("kodo-consumer")), *words, *self._recalls.workspace.connection()]
        environ = {**os.environ, "KILL_AT": kill_at}
        process = subprocess.Popen(command, cwd=self._recalls.workspace.folder, env=environ, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def killed_at(self, step: str) -> None:
        with self._running(step) as process:
            assert process.wait(60) == -signal.SIGKILL, step

    def works_off(self) -> None:
        """Everything that is there, and ends."""
        workspace = self._recalls.workspace
        topics = [workspace.full(name) for name in ("orders", RETRYING)]
        with self._running("never") as process:
            eventually(lambda: sum(backlog(workspace.broker, topic, "billing") for topic in topics) == 0, within=90)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0

    def effects(self) -> Counter[int]:
        with self.engine.connect() as connection:
            return Counter(connection.scalars(text("SELECT number FROM effects")))

    def runs(self) -> Counter[int]:
        return Counter(map(int, self._ledger.read_text().split())) if self._ledger.exists() else Counter()


@pytest.mark.full
def test_again_is_handled_once_more_and_once(
    workspace: Workspace, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalls = Recalls(workspace, TOPICS)
    recalls.die([1, 2, 3])
    recalls.remember(postgres_url, 1, 2, 3)
    worker = Worker(recalls, postgres_url, monkeypatch)
    assert recalls.plan()["summary"]["left_out"] == {"already_done": 3}
    recalls.plan("true", "--again")
    assert recalls.apply()["sent"] == 3
    letters = recalls.stored(RETRYING)
    worker.killed_at("committed")
    worker.killed_at("marked")
    worker.works_off()
    once = Counter([1, 2, 3])
    assert worker.effects() == once, "each effect once more, and once"
    runs = worker.runs()
    assert all(runs[number] >= 2 for number in once), "failed, waited in RETRYING, and came back as that recall's"
    _send(recalls, RETRYING, [dict(one.properties) for one in letters])
    plain = [{"kodo-id": one.properties["kodo-id"]} for one in letters]
    _send(recalls, "orders", plain)
    worker.works_off()
    assert (worker.effects(), worker.runs()) == (once, runs), "neither copies of that recall nor of the message"


def _send(recalls: Recalls, local: str, marks: list[Any]) -> None:
    """Copies that nothing but their properties tells apart from others."""
    with recalls.workspace.client() as client:
        producer = client.create_producer(recalls.workspace.full(local))
        for number, properties in enumerate(marks, start=1):
            producer.send(b'{"n": %d}' % number, properties=properties)
        producer.close()


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_what_the_holder_has_let_go_since_the_plan_helpers_do_not_send(
    workspace: Workspace, batch: int, interrupted: bool
) -> None:
    """Of a batch that is acknowledged in part the admin API tells nothing. Ctrl-C may come while helpers send."""
    recalls = Recalls(workspace, TOPICS)
    recalls.die(range(12), batch=batch)
    plan = loads(json.dumps(recalls.plan("payload.n < 10")), "p.json")
    recalls.let_go(1, 2, 5)
    connection = Connection(admin_url=workspace.broker.admin_url, broker_url=workspace.broker.broker_url)
    helped: list[int] = []
    stop = threading.Event()

    def helpers(
        part: RecallPlan, lanes: Collection[int], without: Container[Position], booked: Mapping[str, int]
    ) -> int:
        reports = [
            SendTask(crew, connection, ".kodoctl/recall", None, 5_000, "helper", None, booked=booked).run()
            for crew in partition_plan(part, lanes, 2, without)
        ]
        helped.append(sum(one.sent for one in reports))
        if interrupted:
            stop.set()
        return 0

    orders = SendOptions(RateLimit(5_000), "me", lambda: NOW, stop, lambda *_: None)
    with Session(connection) as session:
        report = RecallSender(plan, RecallCluster(session), DeltaLedger(".kodoctl/recall"), None, orders, helpers).run()
    assert (helped, report.sent, report.before) == ([7], 7, 0)
    assert recalls.arrived(RETRYING) == Counter([0, 3, 4, 6, 7, 8, 9])
    if interrupted:
        assert (report.interrupted, report.gone, report.acknowledged) == (True, 0, 0)
    else:
        assert (report.gone, report.acknowledged, report.complete) == (3, 7, True)
        assert recalls.held() == {10, 11}
