"""An inbox of a subscription that keeps the order of keys: two workers share its table, and one of them is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kodo_consumer import Producer
from kodo_consumer.inbox import Inbox
from kodo_consumer.inbox.inbox_rows import InboxRows
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES, KEYS = 600, 12
TOPOLOGY = """
version: 1
name: process
tenant: {tenant}
namespace: ns
defaults: {{partitions: 2}}
topics:
  jobs:
    subscriptions:
      work: {{type: {type}, states: [], in_place: [50ms], dead_letter: false, on_failure: block, concurrency: 4}}
"""
APP = """
import os
import time

from kodo_consumer import Consumer
from kodo_consumer.inbox import Inbox

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
consumer = Consumer.load("t.yaml", topic="jobs", subscription="work")


@consumer.handler(inbox=Inbox(os.environ["INBOX"], claim="5s"))
def handle(message):
    time.sleep(0.01)
    if int(message.data) % 50 == 0 and message.attempt == 1:
        raise ValueError
    os.write(ledger, message.data + b"\\n")
"""


@pytest.mark.parametrize("database_url", ["postgresql", pytest.param("sqlite", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize("kind", ["key_shared", pytest.param("failover", marks=pytest.mark.full)])
def test_keys_keep_their_order_when_a_worker_is_killed(
    kind: str, broker: Broker, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    setting.file.write_text(TOPOLOGY.format(tenant=tenant, type=kind), encoding="utf-8")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    engine = create_engine(database_url, poolclass=NullPool)
    Inbox(engine).create_table()
    rows = InboxRows(engine)
    monkeypatch.setenv("INBOX", database_url)
    with setting.run() as one, setting.run():
        with Producer.load(setting.file, topic="jobs", **broker.client_options) as producer:
            for number in range(MESSAGES):
                producer.post(b"%d" % number, key=f"k{number % KEYS}")
        eventually(lambda: len(setting.done()) > MESSAGES // 4)
        one.send_signal(signal.SIGKILL)
        one.wait(30)
        eventually(lambda: len(setting.done()) == MESSAGES, within=120)
        eventually(lambda: rows.counts().get("done") == MESSAGES, within=30)
    lines = [int(line) for line in setting.ledger.read_bytes().split()]
    firsts = list(dict.fromkeys(lines))
    for key in range(KEYS):
        of_key = [number for number in firsts if number % KEYS == key]
        assert of_key == sorted(of_key)
    assert len(lines) - MESSAGES < MESSAGES // 4, "what the killed one had done, and not marked"
    engine.dispose()
