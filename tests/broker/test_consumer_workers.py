"""`kodo-consumer run --workers` on a real broker: one limit for all of them, a kill, and the end of all by one signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
RATE, SLOTS = 100, 4
MESSAGES = 1_500
TOPOLOGY = """
version: 1
name: workers
tenant: {tenant}
namespace: ns
topics:
  jobs:
    partitions: 4
    fair_by: uid
    message_properties: {{uid: required}}
    subscriptions:
      work:
        states: [retrying]
        concurrency: 4
        lookahead: {{messages: 50}}
        limits: [{{kind: rate, limit: 100/s}}]
"""
APP = """
import os, time

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(message):
    os.write(ledger, b"%d %.6f %d\\n" % (os.getpid(), time.time(), int(message.data)))
"""


class WorkersSetting(Setting):
    def __init__(self, broker: Broker, tenant: str, folder: Path) -> None:
        super().__init__(broker, tenant, folder)
        self.file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
        (folder / "app.py").write_text(APP, encoding="utf-8")
        create_topics(broker, str(self.file))

    def runs(self) -> list[tuple[int, float, int]]:
        """Process, time and message of every handler start, by time."""
        lines = self.ledger.read_text("utf-8").splitlines() if self.ledger.exists() else []
        found = [line.split() for line in lines]
        return sorted(((int(process), float(at), int(number)) for process, at, number in found), key=lambda run: run[1])

    @contextmanager
    def workers(self, count: int) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        """The parent of so many workers, all of them ready, and its log."""
        command = self.command(
            "run", str(self.file), "--topic", "jobs", "--subscription", "work", "--handler", "app:handle", "--workers", str(count)
        )  # fmt: skip
        log = self.folder / "log"
        environ = {**os.environ, "LEDGER": str(self.ledger), "KODOCTL_ENV": ""}
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environ, stdout=subprocess.PIPE, stderr=file, text=True
            )
        try:
            eventually(lambda: log.read_text("utf-8").count(" ready: ") == count, within=240)
            yield process, log
        finally:
            process.kill()  # its workers see that it is gone
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _worst(times: list[float]) -> float:
    """Greatest of started ÷ (burst + rate · w) over all windows between two starts. A start is written down by its handler,
    which the machine may keep waiting: so many as there are slots may seem to start together.
    """
    return max(
        (last - first + 1 - 4 * SLOTS) / (RATE + RATE * (times[last] - times[first]))
        for first in range(len(times))
        for last in range(first, len(times))
    )


@pytest.mark.full
@pytest.mark.timeout(900)
def test_four_workers_keep_one_limit_also_when_one_is_killed_and_lose_nothing(
    broker: Broker, tenant: str, tmp_path: Path
) -> None:
    setting = WorkersSetting(broker, tenant, tmp_path)
    with setting.workers(4) as (process, log):
        setting.send(MESSAGES)
        eventually(lambda: len(setting.runs()) > 300, within=120)
        killed = int(re.findall(r"worker 3 is process (\d+)", log.read_text("utf-8"))[0])
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: not setting.left(), within=180)
        again = re.findall(r"worker 3 is process (\d+)", log.read_text("utf-8"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
        assert process.stdout is not None
        output = process.stdout.read()
    runs = setting.runs()
    done = Counter(number for _, _, number in runs)
    assert set(done) == set(range(MESSAGES)), "nothing is lost"
    assert sum(done.values()) - MESSAGES <= 4 + 50, (
        "what the killed one had in hand, or had acknowledged and not stored"
    )
    assert len({worker for worker, _, _ in runs}) >= 4, "all of them work"
    assert len(again) == 2
    assert "worker 3 starts again in 1 s" in log.read_text("utf-8")
    assert _worst([at for _, at, _ in runs]) <= 1.0
    received = re.findall(r"^worker (\d): \S+: received", output, re.MULTILINE)
    assert sorted(received) == ["1", "2", "3", "4"], "each drained and has told what it did"


def test_what_keeps_workers_from_starting_is_told_once(broker: Broker, tenant: str, tmp_path: Path) -> None:
    setting = WorkersSetting(broker, tenant, tmp_path)
    broker.admin("DELETE", f"{setting.topic.replace('://', '/')}/subscription/work", force="true")
    command = setting.command(
        "run", str(setting.file), "--topic", "jobs", "--subscription", "work", "--handler", "app:handle", "--workers", "3"
    )  # fmt: skip
    environ = {**os.environ, "LEDGER": str(setting.ledger), "KODOCTL_ENV": ""}
    found = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 1
    assert found.stderr.count("subscription not found [K711]") == 1
    assert "worker 1 could not start, so all end" in found.stderr
