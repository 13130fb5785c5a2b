"""Handlers of every kind in one `kodo-consumer` on the real broker: batches beside processes that die, one drain, one exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pulsar
import pytest

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: handlers
tenant: {tenant}
namespace: ns
topics:
  jobs:
    subscriptions:
      bulk: {{states: [], in_place: []}}
      heavy: {{states: [retrying], in_place: [], handler_timeout: 2s, retrying: {{delays: [1s], attempts: 1}}}}
"""
APP = """
import os, signal, sys, time
from kodo_consumer import Consumer, Message

consumer = Consumer.load("t.yaml", topic="jobs", subscription="bulk")
other = Consumer.load("t.yaml", topic="jobs", subscription="heavy")
ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@consumer.batch_handler(max=50, wait="20ms")
async def bulk(messages: list[Message]) -> None:
    os.write(ledger, b"".join(b"bulk %s\\n" % message.data for message in messages))


@consumer.middleware
async def around(messages, handle):
    await handle(messages)
    os.write(ledger, b"".join(b"around %s\\n" % message.data for message in messages))


@other.handler(process=2)
def heavy(message: Message) -> None:
    os.write(ledger, b"heavy %s\\n" % message.data)
    if message.data == b"13":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.data == b"17":
        time.sleep(600)
"""


def test_batches_and_processes_share_a_command_and_only_who_kills_or_hangs_suffers(
    broker: Broker, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0]), encoding="utf-8")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(file))
    topic = f"persistent://{namespace}/jobs"
    client = pulsar.Client(broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(2_000):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    command = [
        str(Path(sys.executable).with_name("kodo-consumer")), "run", "t.yaml", "--topic", "jobs",
        "--subscription", "bulk", "--handler", "app:bulk", "--subscription", "heavy", "--handler", "app:heavy",
        "--admin-url", broker.admin_url, "--broker-url", broker.broker_url,
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        waiting = ((topic, "bulk"), (topic, "heavy"), (f"{topic}-heavy-RETRYING", "heavy"))
        reader = client.create_reader(f"{topic}-heavy-DLQ-partition-0", pulsar.MessageId.earliest)
        dead = {(found := reader.read_next(60_000)).data(): found.properties()["kodo-reason"] for _ in range(2)}
        eventually(lambda: not any(backlog(broker, *place) for place in waiting), within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout is not None
        said = process.stdout.read()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        client.close()
    assert dead == {
        b"13": "its handler ended its process 3 times, last by SIGKILL",
        b"17": "handler took too long",
    }
    runs = Counter((tmp_path / "ledger").read_bytes().split(b"\n")[:-1])
    assert runs.pop(b"heavy 13") == 3
    assert runs.pop(b"heavy 17") == 2, "once, and once more after its wait"
    expected = {b"%s %d" % (who, number) for who in (b"bulk", b"around", b"heavy") for number in range(2_000)}
    assert set(runs) == expected - {b"heavy 13", b"heavy 17"}
    assert set(runs.values()) == {1}, "nobody else ran twice, and middleware is kept"
    assert said.count("received ") == 2, "each tells what it did"
