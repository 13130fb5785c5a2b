"""kill -9 of the consumer at every named step: nothing is lost, and repeats stay within what the step explains."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 3_000
RUNNING = 4  # handlers at once
ACK_GROUP = 1_000  # acknowledgements the client gathers
BUNDLE = 64  # acknowledgements the worker gathers
APP = """
import os, signal, time
from itertools import count

from kodo_consumer.adapters.pulsar import lane_reader, partition_producers
from kodo_consumer.runtime.worker import Worker

STEP = os.environ.get("KILL_AT", "")
ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
started, ended = count(1), count(1)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner, name, step, nth):
    '''The process dies before the nth call, or (step ends with a dot) right after it.'''
    original, calls = getattr(owner, name), count(1)

    def patched(*arguments):
        fatal = STEP == step and next(calls) == nth
        if fatal and not step.endswith("."):
            die()
        original_answer = original(*arguments)
        if fatal:
            die()
        return original_answer

    setattr(owner, name, patched)


around(partition_producers.Producers, "send", "published.", 15)  # on its way, without receipt
around(Worker, "receipts", "stored", 15)  # the target has it, it is not acknowledged
around(lane_reader.PulsarLaneReader, "acknowledge", "acknowledged.", 15)  # gathered by the client, not sent
around(Worker, "drain", "draining.", 1)  # handlers run, nothing new is started
around(Worker, "close", "drained", 1)  # handlers have ended, connections are open


def handle(message):
    if STEP == "handler" and next(started) == 500:
        die()
    time.sleep(0.001)
    if int(message.data) % 10 == 0 and message.attempt == 1:
        raise ValueError
    os.write(ledger, message.data + b"\\n")
    if STEP == "effect" and next(ended) == 500:
        die()
"""
STEPS = {
    "handler": RUNNING,
    "effect": RUNNING,
    "published.": RUNNING,
    "stored": RUNNING,
    "acknowledged.": RUNNING,
    "draining.": RUNNING,
    "drained": 0,
}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(one, marks=[pytest.mark.full] * (one in {"effect", "stored", "draining.", "drained", "handler"}))
        for one in STEPS
    ],
)
def test_a_kill_at_this_step_loses_nothing_and_repeats_no_more_than_it_explains(
    step: str, broker: Broker, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    setting.send(MESSAGES)
    monkeypatch.setenv("KILL_AT", step)
    with setting.run() as process:
        if step.startswith("drain"):
            eventually(lambda: len(setting.done()) > 300)
            process.send_signal(signal.SIGTERM)
        assert process.wait(150) == -signal.SIGKILL
    at_kill = setting.done()
    assert 0 < len(at_kill) < MESSAGES, "it died on the way"
    assert max(at_kill.values()) == 1
    monkeypatch.delenv("KILL_AT")
    with setting.run() as process:
        eventually(lambda: not setting.left(), within=120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    done = setting.done()
    assert set(done) == set(range(MESSAGES))
    again = [number for number, count in done.items() if count > 1]
    moved = [number for number in again if number % 10 == 0]  # failed once: its copy and itself were both delivered
    assert max(done.values()) <= 3
    assert len(again) - len(moved) <= STEPS[step] + BUNDLE + ACK_GROUP
    assert len(moved) <= STEPS[step] + (BUNDLE + ACK_GROUP) // 10 + len(at_kill) // 10
    print(f"{step}: {len(at_kill)} done before the kill, {len(again)} done again, {len(moved)} of them moved before")  # noqa: T201
