"""An inbox under audit on the real broker: the verdict knows what is in the inbox, what was done from there, what died."""

from __future__ import annotations

import signal

import pytest
from kodo_consumer.inbox import Inbox
from kodo_consumer.inbox.inbox_filter import InboxFilter
from kodo_consumer.inbox.inbox_rows import InboxRows
from sqlalchemy import create_engine

from tests.services.polling import eventually
from tests.spark.judged import fates_of, judged, outcome

__all__ = ["judged"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
APP = """
import os
import time

from kodo_consumer import Consumer, Dead
from kodo_consumer.inbox import Inbox

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
consumer = Consumer.load("t.yaml", topic="jobs", subscription="work")


@consumer.handler(inbox=Inbox("sqlite:///inbox.db"))
def handle(message):
    while not os.path.exists("gate"):
        time.sleep(0.02)
    if int(message.data) == 0:
        raise Dead("no price")
    os.write(ledger, message.data + b"\\n")
"""


@pytest.mark.full
def test_messages_in_the_inbox_are_accounted_for_until_they_end(judged, monkeypatch):
    (judged.folder / "app.py").write_text(APP, encoding="utf-8")
    engine = create_engine(f"sqlite:///{judged.folder / 'inbox.db'}")
    Inbox(engine).create_table()
    rows = InboxRows(engine)
    monkeypatch.setenv("KODO_CONSUMER_DRAIN_TIMEOUT", "1s")
    with judged.run() as process:
        judged.send(20)
        by_now = {"claimed": 20, "skipped": 1}  # the producer's own mark waits for no handler
        eventually(lambda: rows.counts() == by_now and judged.left() == 0, within=120)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    judged.read()
    found = judged.verdict()
    assert (outcome(found), fates_of(found)) == (("no loss", set()), {"in the inbox": 20})
    assert rows.counts()["waiting"] == 20, "its handlers were stopped before they ended"
    assert rows.discard(InboxFilter(), "a test", limit=5) == (5, 0)
    (judged.folder / "gate").touch()
    with judged.run():
        eventually(lambda: not rows.counts().keys() & {"waiting", "claimed", "discarding"}, within=120)
    judged.skip(3)
    found = judged.lost(3)
    fates = fates_of(found)
    assert fates.pop("lost") == 3
    assert fates.pop("dead", 0) + fates.pop("done") + fates.pop("discarded") == 20
    assert not fates
    engine.dispose()
