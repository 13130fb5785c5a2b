"""Workers with lanes of their own, as processes on the real broker: a slow retrying lane takes no slot of the ready one's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Producer

from tests.broker.test_consumer_process import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: lanes
tenant: {tenant}
namespace: ns
topics:
  jobs:
    subscriptions:
      work:
        in_place: []
        concurrency: 2
        expected_workers: 2
        states: [retrying, pending]
        retrying: {{delays: [100ms], attempts: 3}}
        {more}
"""
APP = """
import os, time

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(message):
    begun = time.time()
    if message.text().startswith("slow") and message.state == "ready":
        raise ValueError
    if not message.text().startswith("light"):
        time.sleep(1.0)
    wait = begun - message.publish_time / 1000
    line = f"{os.environ['WORKER']} {message.state} {message.text()} {wait:.3f} {begun:.3f} {time.time():.3f}\\n"
    os.write(ledger, line.encode())
"""


class Lanes(Setting):
    """Processes whose ledger has for each handled message its worker, state, text, seconds from publication to start, and
    when it started and ended.
    """

    def declare(self, tenant: str, more: str = "") -> None:
        self.file.write_text(TOPOLOGY.format(tenant=tenant, more=more), encoding="utf-8")
        (self.folder / "app.py").write_text(APP, encoding="utf-8")
        create_topics(self.broker, str(self.file))

    @contextmanager
    def worker(self, name: str, lanes: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
        command = self.command("run", str(self.file), "--topic", "jobs", "--subscription", "work")
        command += ["--handler", "app:handle", "--port", "0", "--lanes", lanes]
        variables = {**os.environ, "LEDGER": str(self.ledger), "WORKER": name, "KODOCTL_ENV": "", **environ}
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=variables, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def get(self, name: str, path: str) -> str:
        """The answer of a worker's port; empty while it has none."""
        found = re.search(r"metrics and health are on (http://\S+)", self.log(name).read_text())
        if found is None:
            return ""
        try:
            with urllib.request.urlopen(f"{found[1]}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            with refused:
                return str(refused.read().decode())

    def health(self, name: str) -> dict[str, Any]:
        return json.loads(self.get(name, "/readyz") or '{"ok": false}')

    def producer(self) -> Producer:
        return Producer.load(self.file, topic="jobs", admin_url=self.broker.admin_url,
                             broker_url=self.broker.broker_url, environ={})  # fmt: skip

    def lines(self) -> list[list[str]]:
        return [line.split() for line in (self.ledger.read_text() if self.ledger.exists() else "").splitlines()]

    def handled(self) -> list[tuple[str, str, str, float]]:
        """Worker, state, text, wait."""
        return [(worker, state, text, float(wait)) for worker, state, text, wait, *_ in self.lines()]

    def runs(self) -> list[tuple[float, float, str]]:
        """Start, end, and worker of each handler that did not fail."""
        return [(float(begun), float(ended), worker) for worker, *_, begun, ended in self.lines()]


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Lanes:
    return Lanes(broker, tenant, tmp_path)


def test_a_slow_retrying_lane_does_not_touch_ready_messages_of_another_worker(setting: Lanes, tenant: str) -> None:
    """40 messages fail and are then slow, 1 s each on the 2 slots of the other worker: 20 s of work. Beside them come 200 light
    ones, which two workers of all lanes would keep waiting as soon as slow ones had their four slots.
    """
    setting.declare(tenant)
    with setting.worker("fast", "ready"), setting.worker("slow", "!ready") as slow:
        eventually(lambda: setting.health("fast")["ok"] and setting.health("slow")["ok"], within=60)
        assert [one["lanes"] for one in setting.health("fast")["workers"]] == [["L1/ready"]]
        assert [one["lanes"] for one in setting.health("slow")["workers"]] == [["L1/retrying", "L1/pending"]]
        assert (
            "1 of 3 lanes (reads L1/ready; other workers have to read L1/retrying, L1/pending)"
            in setting.log("fast").read_text()
        )
        with setting.producer() as producer:
            for number in range(40):
                producer.post(b"slow%d" % number)
            producer.flush()
            eventually(lambda: [one for one in setting.handled() if one[0] == "slow"])
            for number in range(200):
                producer.send(b"light%d" % number)
                time.sleep(0.01)
            eventually(lambda: sum(text.startswith("light") for _, _, text, _ in setting.handled()) == 200)
        handled = setting.handled()
        left = 40 - sum(worker == "slow" for worker, *_ in handled)
        waits = sorted(wait for _, _, text, wait in handled if text.startswith("light"))
        light = f"p50 {waits[100]:.3f}, p99 {waits[197]:.3f}, most {waits[-1]:.3f} s"
        print(f"{left} slow ones left; light ones waited {light}")  # noqa: T201
        assert left > 5, "the other lane was busy all the time"
        assert {(worker, state) for worker, state, text, _ in handled if text.startswith("light")} == {
            ("fast", "ready")
        }
        assert {(worker, state) for worker, state, text, _ in handled if text.startswith("slow")} == {
            ("slow", "retrying")
        }
        assert waits[197] < 2, (
            "twice as long as a slow one has a slot, and a stall of the machine is no second slow one"
        )
        slow.send_signal(signal.SIGTERM)
        assert slow.wait(30) == 0, "it finishes what runs, and leaves the rest"
        done = sum(worker == "slow" for worker, *_ in setting.handled())
        eventually(lambda: backlog(setting.broker, setting.topic + "-work-RETRYING", "work") == 40 - done)
    with setting.worker("again", "retrying"):
        eventually(lambda: sum(state == "retrying" for _, state, _, _ in setting.handled()) == 40, within=60)
    assert len({text for _, _, text, _ in setting.handled()}) == 240


@pytest.mark.full
def test_workers_of_different_lanes_share_a_limit_through_the_store(setting: Lanes, tenant: str) -> None:
    """Three handlers at once are for both together: half of four slots each would leave one unused, or use one too many."""
    setting.declare(tenant, "limits: [{kind: concurrency, limit: 3}]")
    store = {"KODO_CONSUMER_STORE": f"sqlite:///{setting.folder}/store.db"}
    with setting.producer() as producer, setting.worker("both", "all", **store):
        for number in range(12):
            producer.post(b"slow%d" % number)
        producer.flush()
        eventually(lambda: backlog(setting.broker, setting.topic, "work") == 0, within=60)  # failed once, or at work
    before = len(setting.lines())
    with setting.producer() as producer:
        for number in range(12):
            producer.post(b"calm%d" % number)
    with setting.worker("fast", "ready", **store), setting.worker("slow", "retrying,pending", **store):
        eventually(lambda: len(setting.lines()) - before >= 20, within=60)
    runs = setting.runs()[before:]
    at_once = [[worker for begun, ended, worker in runs if begun <= start < ended] for start, _, _ in runs]
    print(f"at most {max(map(len, at_once))} at once")  # noqa: T201
    assert max(map(len, at_once)) == 3, "never above, and used in full"
    assert any(set(workers) == {"fast", "slow"} for workers in at_once)


def test_a_lane_that_no_live_worker_reads_is_seen_by_the_worker_of_another(setting: Lanes, tenant: str) -> None:
    setting.declare(tenant, "limits: [{kind: rate, limit: 40/s}]")
    status = [str(Path(setting.command()[0]).with_name("kodoctl")), "status", str(setting.file), "--format", "json",
              "--admin-url", setting.broker.admin_url]  # fmt: skip

    def unread() -> list[str]:
        found = subprocess.run(status, capture_output=True, text=True, check=True)
        return [lane["state"] for lane in json.loads(found.stdout)["topologies"][0]["lanes"] if lane["unread"]]

    def workers() -> dict[str, float]:
        found = re.findall(r'kodo_consumer_lane_workers\{.*state="(\w+)".*\} (\S+)', setting.get("fast", "/metrics"))
        return {state: float(count) for state, count in found}

    def value(name: str) -> float:
        found = re.search(rf"kodo_consumer_{name}\{{.*\}} (\S+)", setting.get("fast", "/metrics"))
        return float(found[1]) if found else 0.0

    check = setting.command("check", str(setting.file), "--lanes", "!ready")
    told = ["jobs work: complete", "  reads: L1/retrying, L1/pending", "  leaves to other workers: L1/ready"]
    assert subprocess.run(check, capture_output=True, text=True, check=True).stdout.splitlines() == told
    with setting.worker("fast", "ready"):
        eventually(lambda: workers() == {"ready": 1.0, "retrying": 0.0, "pending": 0.0}, within=90)
        assert setting.health("fast")["ok"], "its own lane is connected"
        assert unread() == ["retrying", "pending"]
        with setting.worker("slow", "retrying,pending"):
            eventually(lambda: workers() == {"ready": 1.0, "retrying": 1.0, "pending": 1.0}, within=90)
            assert unread() == []
            eventually(lambda: value("workers") == 2, within=30), "limits are shared by the workers of all lanes"
