"""Deferred messages on a real broker: tokens from another thread, kill -9 and SIGTERM while messages are deferred."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 200
APP = """
import os, signal, threading, time
from queue import SimpleQueue

STEP = os.environ["DEFER_STEP"]
ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
tokens = SimpleQueue()


def handle(message):
    tokens.put((message.data, message.defer()))


async def handle_async(message):
    handle(message)


def answer():
    for count in range(10**9):
        if STEP and count == 100:
            open(os.environ["LEDGER"] + ".begun", "w").close()
            if STEP == "open":
                os.kill(os.getpid(), signal.SIGKILL)
            while True:  # nobody answers any more
                time.sleep(60)
        data, token = tokens.get()
        if int(data) % 10 == 0 and b"x%s" % data not in failed:
            failed.add(b"x%s" % data)
            assert token.failed(ValueError())
            continue
        os.write(ledger, data + b"\\n")
        if STEP == "effect" and count >= 60:
            os.kill(os.getpid(), signal.SIGKILL)
        assert token.done()
        assert count % 20 or not token.done()
        if STEP == "token" and count >= 60:
            os.kill(os.getpid(), signal.SIGKILL)


failed = set()
threading.Thread(target=answer, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("step", "handler"),
    [
        pytest.param("open", "handle_async", marks=pytest.mark.full),
        ("effect", "handle"),
        pytest.param("token", "handle", marks=pytest.mark.full),
        ("end", "handle_async"),
    ],
)
def test_what_is_deferred_when_a_worker_dies_or_ends_comes_again_and_is_done(
    step: str, handler: str, broker: Broker, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    setting.send(MESSAGES)
    monkeypatch.setenv("DEFER_STEP", step)
    monkeypatch.setenv("KODO_CONSUMER_DRAIN_TIMEOUT", "1s")
    with setting.run(handler) as process:
        if step == "end":
            eventually(lambda: Path(f"{setting.ledger}.begun").exists())
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        else:
            assert process.wait(150) == -signal.SIGKILL
    assert 0 < len(setting.done()) < MESSAGES, "it ended on the way"
    assert setting.left() > 0
    monkeypatch.setenv("DEFER_STEP", "")
    with setting.run(handler) as process:
        eventually(lambda: not setting.left(), within=120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    done = setting.done()
    assert set(done) == set(range(MESSAGES))
    assert max(done.values()) <= 2
    if step == "end":
        assert max(done.values()) == 1, "an orderly end repeats nothing that was done"
