"""Workers as processes that share limits through a store: together never above, used in full, one of them killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from kodo_consumer import Producer

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
WORKERS: Final = 3
RATE: Final = 60
LATE: Final = (
    0.15  # seconds: a start that is noted this much later than it was allowed makes the time after it look shorter
)
TOPOLOGY = """
version: 1
name: limits
tenant: {tenant}
namespace: ns
topics:
  jobs:
    subscriptions:
      work:
        states: []
        in_place: []
        concurrency: 8
        expected_workers: {workers}
        lookahead: {{messages: 100}}
        limits: [{limit}]
"""
APP = """
import os, time

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
pause = float(os.environ["PAUSE"])
me = os.getpid()


def handle(message):
    os.write(ledger, f"{time.monotonic():.6f} 1 {me}\\n".encode())
    if pause:
        time.sleep(pause)
        os.write(ledger, f"{time.monotonic():.6f} -1 {me}\\n".encode())
"""


class Sharing(Setting):
    """Processes with one store. The ledger has a line for each start and, with a pause, for each end of a handler."""

    def declare(self, limit: str, tenant: str, messages: int) -> None:
        self.file.write_text(TOPOLOGY.format(tenant=tenant, workers=WORKERS, limit=limit), encoding="utf-8")
        (self.folder / "app.py").write_text(APP, encoding="utf-8")
        create_topics(self.broker, str(self.file))
        place = self.broker.client_options
        with Producer.load(self.file, topic="jobs", **place) as producer:
            for number in range(messages):
                producer.post(b"x")
                if number % 5 == 4:  # a batch goes to one worker as a whole
                    producer.flush()

    def lines(self) -> list[tuple[float, int, int]]:
        """Moment, +1 or -1, process."""
        text = self.ledger.read_text() if self.ledger.exists() else ""
        return sorted((float(at), int(change), int(pid)) for at, change, pid in map(str.split, text.splitlines()))

    def starters(self) -> int:
        return len({pid for _, _, pid in self.lines()})

    @contextmanager
    def workers(self, store: str, pause: float = 0.0) -> Iterator[list[subprocess.Popen[bytes]]]:
        command = self.command("run", str(self.file), "--topic", "jobs", "--subscription", "work")
        command += ["--handler", "app:handle"]
        environ = {**os.environ, "LEDGER": str(self.ledger), "PAUSE": str(pause), "KODOCTL_ENV": ""}
        environ["KODO_CONSUMER_STORE"] = store
        with (self.folder / "log").open("ab") as log:
            running = [
                subprocess.Popen(command, cwd=self.folder, env=environ, stdout=log, stderr=log) for _ in range(WORKERS)
            ]
            try:
                yield running
            finally:
                for process in running:
                    process.send_signal(signal.SIGTERM)
                for process in running:
                    process.wait(30)


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Sharing:
    return Sharing(broker, tenant, tmp_path)


@pytest.mark.full
def test_a_rate_shared_through_a_store_is_kept_and_used_and_survives_a_kill(setting: Sharing, tenant: str) -> None:
    setting.declare(f"{{kind: rate, limit: {RATE}/s}}", tenant, messages=2_400)
    with setting.workers(f"sqlite:///{setting.folder}/store.db") as running:
        eventually(lambda: setting.starters() == WORKERS, within=60)
        began = time.monotonic()
        time.sleep(6)  # a rate is measured over time
        running[0].kill()
        killed = time.monotonic()
        time.sleep(6)
        ended = time.monotonic()
    starts = [at for at, _, _ in setting.lines()]
    for first, at in enumerate(starts):
        for last in range(first, len(starts)):
            passed = last - first + 1
            assert passed <= RATE + RATE * (starts[last] - at + LATE), f"{passed} in {starts[last] - at} s"
    for begin, end in ((began, killed), (killed + 1.5, ended)):
        used = (bisect_left(starts, end) - bisect_left(starts, begin)) / (end - begin) / RATE
        print(f"{used:.1%} used")  # noqa: T201
        assert used >= 0.95, "98 % where nobody else keeps the machine busy: see the benchmark"


def test_never_more_handlers_run_than_workers_may_together(
    setting: Sharing, tenant: str, request: pytest.FixtureRequest
) -> None:
    setting.declare("{kind: concurrency, limit: 4}", tenant, messages=600)
    with setting.workers(
        request.getfixturevalue("postgres_url"), pause=0.4
    ):  # long beside what the store costs each message
        eventually(lambda: setting.starters() == WORKERS, within=60)
        began = time.monotonic()
        time.sleep(5)
        ended = time.monotonic()
    most = now = 0
    busy, since = 0.0, began
    for at, change, _ in setting.lines():
        busy += now * max(0.0, min(at, ended) - since)
        since = max(since, min(at, ended))
        now += change
        most = max(most, now)
    print(f"at most {most}, {busy / 4 / (ended - began):.1%} used")  # noqa: T201
    assert most == 4
    assert busy / 4 / (ended - began) >= 0.5, (
        "98 % where nobody else keeps the machine busy: a worker that gets no share costs half"
    )
