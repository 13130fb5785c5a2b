"""kill -9 at every step around an effect: handlers run again, effects do not. A SQLite file and a real PostgreSQL."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 300
STEPS = ("effect", "committed", "marked", "acknowledged")
APP = """
import os, signal
from itertools import count

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from kodo_consumer.dedup import create_tables
from kodo_consumer.adapters.pulsar import lane_reader
from kodo_consumer.adapters.stores.sql_store import SqlStore

STEP = os.environ["KILL_AT"]
runs = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
engine = create_engine(os.environ["EFFECTS"])
create_tables(engine)
calls = {step: count(1) for step in ("effect", "committed", "marked", "acknowledged")}


def die_at(step, nth):
    if STEP == step and next(calls[step]) == nth:
        os.kill(os.getpid(), signal.SIGKILL)


def after(owner, name, step, nth):
    original = getattr(owner, name)

    def patched(*arguments):
        answer = original(*arguments)
        if step != "marked" or arguments[1].done:
            die_at(step, nth)
        return answer

    setattr(owner, name, patched)


after(SqlStore, "exchange", "marked", 3)  # the store knows, the broker does not
after(lane_reader.PulsarLaneReader, "acknowledge", "acknowledged", 2)  # gathered by the client, not sent


def handle(message):
    os.write(runs, message.data + b"\\n")
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO effects VALUES (:number)"), {"number": int(message.data)})
        message.once(session)
        die_at("effect", 25)  # in the transaction
    die_at("committed", 25)  # the effect is there, nobody was told
"""


def test_effects_happen_once_whatever_the_step_of_the_crash(
    broker: Broker, tenant: str, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (number INTEGER)"))  # no key of its own: repeats would show
    monkeypatch.setenv("EFFECTS", database_url)
    monkeypatch.setenv("KODO_CONSUMER_STORE", database_url)
    setting.send(MESSAGES)
    steps = ("committed", "marked") if database_url.startswith("sqlite") else STEPS
    for step in steps:
        monkeypatch.setenv("KILL_AT", step)
        with setting.run() as process:
            assert process.wait(60) == -signal.SIGKILL, step
    monkeypatch.setenv("KILL_AT", "never")
    with setting.run() as process:
        eventually(lambda: not setting.left(), within=90)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with engine.connect() as connection:
        effects = Counter(connection.scalars(text("SELECT number FROM effects")))
        marks = connection.scalar(text("SELECT count(*) FROM kodo_started"))
    engine.dispose()
    assert effects == Counter(range(MESSAGES)), "each effect once, none lost"
    assert marks == 0
    again = sum(setting.done().values()) - MESSAGES
    assert again <= len(steps) * (4 + 1), "only what ran at a crash, or could not be told of, was run again"
