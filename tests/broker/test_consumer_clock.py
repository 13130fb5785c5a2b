"""A worker whose clock is not the broker's says so, with the real broker and a process that has another clock."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually
from tests.services.ports import unusual_ports
from tests.services.skewed_clock import COMPILER, skewed

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: clocks
tenant: {tenant}
namespace: ns
topics:
  jobs: {{subscriptions: {{s: {{states: [], dead_letter: false}}}}}}
"""
APP = """
from kodo_consumer import Consumer, Message

consumer = Consumer.load("t.yaml", topic="jobs", subscription="s")


@consumer.handler
def handle(message: Message) -> None:
    pass
"""


@pytest.mark.skipif(COMPILER is None, reason="no compiler, and without one no process has another clock")
@pytest.mark.parametrize(
    ("hours", "side"),
    [
        pytest.param(1, "ahead of", marks=pytest.mark.full),
        (-1, "behind"),
        pytest.param(0, None, marks=pytest.mark.full),
    ],
)
def test_a_clock_that_is_not_the_brokers_is_told(
    broker: Broker, namespace: str, tmp_path: Path, hours: int, side: str | None
) -> None:
    file, port = tmp_path / "t.yaml", unusual_ports().admin
    file.write_text(TOPOLOGY.format(tenant=namespace.partition("/")[0]), encoding="utf-8")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(file))
    command = [
        str(Path(sys.executable).with_name("kodo-consumer")), "run", "t.yaml", "--topic", "jobs", "--subscription", "s",
        "--handler", "app:handle", "--port", str(port), "--admin-url", broker.admin_url, "--broker-url", broker.broker_url,
    ]  # fmt: skip

    def ahead() -> float | None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                shown = re.search(rb"^kodo_consumer_clock_ahead_seconds\{.*\} (.*)$", answer.read(), re.MULTILINE)
        except OSError:
            return None
        return float(shown[1]) if shown else None

    log = tmp_path / "log"
    with log.open("wb") as said, skewed(tmp_path, hours):
        process = subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ), stdout=said, stderr=said)
    try:
        eventually(lambda: ahead() is not None, within=60)
        found = ahead()
        assert found is not None
        assert abs(found - 3_600 * hours) < 3
        if side:
            eventually(lambda: b"the broker's" in log.read_bytes(), within=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    told = re.findall(r"clock: this machine's clock is 3,(?:599|600) s (ahead of|behind) the broker's", log.read_text())
    assert told == ([side] if side else [])
