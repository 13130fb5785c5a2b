"""Messages that end, hang or exhaust the process that handles them: they die, their neighbours are handled, all of them.

Real processes, which a supervisor starts again; real stores; the ledger is written by the handlers themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kodo_consumer import Producer

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics, messages
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: poison
tenant: {tenant}
namespace: ns
topics:
  jobs:
    subscriptions:
      work:
        in_place: []
        concurrency: 4
        expected_workers: 2
        handler_timeout: 2s
        retrying: {{delays: [1s], attempts: 1}}
"""
APP = """
import ctypes, os, resource, time

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def deeper(depth):
    return deeper(depth + 1)


def handle(message):
    name = message.text()
    os.write(ledger, name.encode() + b"\\n")
    if name == "segfault":
        time.sleep(0.05)
        ctypes.string_at(0)
    if name == "exit":
        time.sleep(0.05)
        os._exit(7)
    if name == "loop":
        end = time.monotonic() + 60  # ends with the test at last
        while time.monotonic() < end:
            pass
    if name == "recursion":
        deeper(0)
    if name == "gigabyte":
        bytearray(1 << 30)
    time.sleep(0.01)
"""
GENTLE = ("loop", "recursion", "gigabyte")
"""They fail like any handler: the process survives them."""
NEIGHBOURS = 40


class Supervised(Setting):
    """Workers that are started again whenever they end, as a service manager does."""

    def __init__(self, broker: Broker, tenant: str, folder: Path) -> None:
        super().__init__(broker, tenant, folder)
        self.file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
        (folder / "app.py").write_text(APP, encoding="utf-8")
        create_topics(broker, str(self.file))
        self.ends: list[int] = []

    def post(self, *names: str) -> None:
        place = self.broker.client_options
        with Producer.load(self.file, topic="jobs", **place) as producer:
            for name in names:
                producer.post(name.encode())

    def starts(self) -> Counter[str]:
        lines = self.ledger.read_text().split("\n")[:-1] if self.ledger.exists() else []
        return Counter(lines)

    def dead(self) -> dict[str, str]:
        """Name and reason of every dead letter."""
        letters = messages(self.broker, f"{self.topic}-work-DLQ")
        return {letter.data().decode(): letter.properties()["kodo-reason"] for letter in letters}

    def all_gone(self) -> bool:
        return not any(backlog(self.broker, self.topic + suffix, "work") for suffix in ("", "-work-RETRYING"))

    @contextmanager
    def workers(self, count: int, **settings: str) -> Iterator[None]:
        over = threading.Event()
        threads = [threading.Thread(target=self._supervise, args=(over, settings)) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _supervise(self, over: threading.Event, settings: dict[str, str]) -> None:
        command = self.command(
            "run", str(self.file), "--topic", "jobs", "--subscription", "work", "--handler", "app:handle"
        )
        variables = {f"KODO_CONSUMER_{name.upper()}": value for name, value in settings.items()}
        environ = {**os.environ, "LEDGER": str(self.ledger), "KODOCTL_ENV": "", **variables}
        with (self.folder / "log").open("ab") as log:
            while not over.is_set():
                process = subprocess.Popen(command, cwd=self.folder, env=environ, stdout=log, stderr=log)
                while process.poll() is None and not over.wait(0.05):
                    pass
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    try:
                        process.wait(20)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
                else:
                    self.ends.append(process.returncode)


@pytest.mark.parametrize(
    ("kind", "poison", "workers"),
    [pytest.param("postgresql", "exit", 2, marks=pytest.mark.full), ("marks", "segfault", 1)],
)
def test_poison_dies_and_every_neighbour_is_handled(
    kind: str, poison: str, workers: int, broker: Broker, tenant: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    setting = Supervised(broker, tenant, tmp_path)
    if kind == "marks":
        settings = {"crash_marks": str(tmp_path / "marks")}
    else:
        settings = {"store": request.getfixturevalue("postgres_url")}
    neighbours = [f"n{number}" for number in range(NEIGHBOURS)]
    half = NEIGHBOURS // 2
    setting.post(*neighbours[:half], poison, *(GENTLE if kind == "marks" else ()), *neighbours[half:])
    with setting.workers(workers, **settings):
        eventually(setting.all_gone, within=150)
    dead, starts = setting.dead(), setting.starts()
    assert dead.pop(poison) == "ended its worker 3 times while it ran alone"
    assert dead == (
        {"loop": "handler took too long", "recursion": "RecursionError", "gigabyte": "MemoryError"}
        if kind == "marks"
        else {}
    )
    assert set(neighbours) <= set(starts), "innocent neighbours are handled, and never die"
    assert 3 <= starts[poison] <= 4 + workers, "beside others in each worker, and three times alone"
    assert len(setting.ends) == starts[poison]
    assert set(setting.ends) == {-signal.SIGSEGV if poison == "segfault" else 7}
