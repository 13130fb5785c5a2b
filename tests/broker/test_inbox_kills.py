"""kill -9 of a consumer with an inbox at every step, on a real broker: nothing is lost, nothing is accepted twice."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from kodo_consumer.inbox import TABLE, Inbox
from sqlalchemy import create_engine, func, select
from sqlalchemy.pool import NullPool

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.kill_points import KILL_POINTS
from tests.brokers.topics import backlog, create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 1_000
MOVED = MESSAGES // 10  # fail once, and come from the waiting lane
APP = (
    KILL_POINTS
    + """
import time

from kodo_consumer import Consumer
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader
from kodo_consumer.inbox import Inbox
from kodo_consumer.inbox.inbox_store import InboxStore

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
started, ended = count(1), count(1)

around(InboxStore, "accept", "received", 2)  # not stored
around(InboxStore, "accept", "stored.", 2)  # stored, not acknowledged
around(PulsarLaneReader, "acknowledge", "acknowledged.", 2)
around(InboxStore, "claim", "claimed.", 4)  # not delivered to the worker
around(InboxStore, "finish", "handled", 3)  # not marked as done
around(InboxStore, "finish", "finished.", 3)
around(InboxStore, "release", "ending", 1)  # an orderly end, up to the release of the claims

consumer = Consumer.load("t.yaml", topic="jobs", subscription="work")


@consumer.handler(inbox=Inbox(os.environ["INBOX"], claim="5s"))
def handle(message):
    if STEP == "running" and next(started) == 200:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.001)
    if int(message.data) % 10 == 0 and message.attempt == 1:
        raise ValueError
    os.write(ledger, message.data + b"\\n")
    if STEP == "effect" and next(ended) == 200:
        os.kill(os.getpid(), signal.SIGKILL)
"""
)
STEPS = ["received", "stored.", "acknowledged.", "claimed.", "running", "effect", "handled", "finished.", "ending"]
OFTEN = {"stored.", "handled"}


@pytest.mark.parametrize("database_url", ["postgresql", pytest.param("sqlite", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize("step", [pytest.param(one, marks=[] if one in OFTEN else [pytest.mark.full]) for one in STEPS])
def test_a_kill_at_this_step_loses_nothing_and_accepts_nothing_twice(
    step: str, broker: Broker, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    engine = create_engine(database_url, poolclass=NullPool)
    Inbox(engine).create_table()
    setting.send(MESSAGES)
    monkeypatch.setenv("INBOX", database_url)
    monkeypatch.setenv("KILL_AT", step)

    def done_rows() -> int:
        with engine.connect() as connection:
            return connection.execute(select(func.count()).where(TABLE.c.done_at.is_not(None))).scalar_one()

    with setting.run() as process:
        if step == "ending":
            eventually(lambda: len(setting.done()) > 100)
            process.send_signal(signal.SIGTERM)
        assert process.wait(150) == -signal.SIGKILL
    assert len(setting.done()) < MESSAGES, "it died on the way"
    monkeypatch.setenv("KILL_AT", "")
    with setting.run() as process:
        eventually(lambda: done_rows() > MESSAGES + MOVED and not setting.left(), within=120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    done = setting.done()
    assert set(done) == set(range(MESSAGES))
    assert max(done.values()) <= 2
    with engine.connect() as connection:
        rows = select(TABLE.c.topic, func.count()).group_by(TABLE.c.topic)
        by_topic = {str(topic): int(count) for topic, count in connection.execute(rows)}
    assert by_topic[setting.topic] == MESSAGES + 1, "each message was accepted once, and the mark of the producer's end"
    moved_again = by_topic[f"{setting.topic}-work-RETRYING"] - MOVED
    assert 0 <= moved_again <= MOVED, "a move whose row was not marked as done is made again"
    assert backlog(broker, setting.topic, "work") == 0


def test_a_rehearsal_says_that_the_table_is_missing(
    broker: Broker, tenant: str, tmp_path: Path, database_url: str
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    environ = {**os.environ, "INBOX": database_url, "KILL_AT": "", "LEDGER": str(setting.ledger), "KODOCTL_ENV": ""}
    inbox = Inbox(database_url)

    def rehearse() -> subprocess.CompletedProcess[str]:
        command = setting.command("run", "app:consumer", "--dry-run")
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    refused = rehearse()
    assert (refused.returncode, "K771" in refused.stderr) == (1, True)
    assert "has no table kodo_inbox" in " ".join(refused.stderr.split())
    print(refused.stderr)  # noqa: T201
    inbox.create_table()
    inbox.close()
    assert rehearse().returncode == 0
