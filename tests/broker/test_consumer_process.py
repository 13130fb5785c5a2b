"""`kodo-consumer` as a process: what is checked at the start, SIGTERM, kill -9. The handlers write a ledger of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Producer

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: process
tenant: {tenant}
namespace: ns
topics:
  jobs:
    fair_by: uid
    subscriptions:
      work: {{in_place: [], concurrency: 4, retrying: {{delays: [1s], attempts: 3}}}}
"""
APP = """
import os, time

ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
pause = float(os.environ["PAUSE"])


def handle(message):
    if pause > 1:
        open(os.environ["LEDGER"] + ".begun", "w").close()
    time.sleep(pause)
    if int(message.data) % 10 == 0 and message.attempt == 1:
        raise ValueError
    os.write(ledger, message.data + b"\\n")


async def handle_async(message):
    handle(message)
"""


class Setting:
    """A topology on the broker, an application beside it, and the ledger its handler writes."""

    def __init__(self, broker: Broker, tenant: str, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
        self.file = folder / "t.yaml"
        self.file.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
        (folder / "app.py").write_text(APP, encoding="utf-8")
        self.ledger = folder / "ledger"
        self.topic = f"persistent://{tenant}/ns/jobs"

    def send(self, count: int) -> None:
        """In entries of 20 messages at most: an entry goes to one worker, and a busy machine would put all into a few."""
        place = self.broker.client_options
        with Producer.load(self.file, topic="jobs", **place) as producer:
            for number in range(count):
                producer.post(b"%d" % number, properties={"uid": f"u{number % 3}"})
                if number % 20 == 19:
                    producer.flush()

    def done(self) -> Counter[int]:
        """What the handlers finished, whole lines only."""
        lines = self.ledger.read_bytes().split(b"\n")[:-1] if self.ledger.exists() else []
        return Counter(int(line) for line in lines)

    def left(self) -> int:
        return sum(backlog(self.broker, self.topic + suffix, "work") for suffix in ("", "-work-RETRYING"))

    def command(self, *arguments: str) -> list[str]:
        return [
            str(Path(sys.executable).with_name("kodo-consumer")), *arguments,
            "--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url,
        ]  # fmt: skip

    @contextmanager
    def run(self, handler: str = "handle", pause: float = 0.001) -> Iterator[subprocess.Popen[str]]:
        """A running worker; killed at the end if it still runs."""
        command = self.command(
            "run", str(self.file), "--topic", "jobs", "--subscription", "work", "--handler", f"app:{handler}"
        )
        environ = {**os.environ, "LEDGER": str(self.ledger), "PAUSE": str(pause), "KODOCTL_ENV": ""}
        process = subprocess.Popen(command, cwd=self.folder, env=environ, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


def test_what_is_missing_is_said_before_anything_is_subscribed(setting: Setting) -> None:
    check = setting.command("check", str(setting.file))
    found = subprocess.run(check, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stdout == "jobs work: 5 missing\n"
    assert "topic not found [K710]" in found.stderr
    assert found.stderr.startswith("native border: o"), "on or off, and why"
    assert "\ncompiled core: o" in found.stderr, "the same"
    assert f"  {setting.topic}-work-DLQ\n  5 are missing: `kodoctl apply FILE` creates them\n" in found.stderr
    assert found.stderr.count("[K710]") == 1, "one apply that was not made lacks all of them"
    with setting.run() as process:
        assert process.wait(30) == 1
    create_topics(setting.broker, str(setting.file))
    assert subprocess.run(check, capture_output=True, text=True, check=False).returncode == 0
    setting.broker.admin("DELETE", f"{setting.topic.replace('://', '/')}/subscription/work", force="true")
    found = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "jobs work: 1 missing\n")
    assert "subscription not found [K711]" in found.stderr


@pytest.mark.parametrize("handler", [pytest.param("handle", marks=pytest.mark.full), "handle_async"])
def test_sigterm_drains_exits_0_and_loses_nothing(setting: Setting, handler: str) -> None:
    create_topics(setting.broker, str(setting.file))
    setting.send(3_000)
    with setting.run(handler, pause=0.002) as process:
        eventually(lambda: len(setting.done()) > 300)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout is not None
        output = process.stdout.read()
    assert "lane " in output
    assert "%" in output
    assert "received" in output
    before = setting.done()
    assert max(before.values()) == 1
    with setting.run(handler, pause=0.0) as process:
        eventually(lambda: not setting.left(), within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert set(setting.done()) == set(range(3_000))
    assert max(setting.done().values()) == 1, "a clean drain repeats nothing"


def test_kill_9_loses_nothing_and_repeats_little(setting: Setting) -> None:
    create_topics(setting.broker, str(setting.file))
    setting.send(5_000)
    for round_ in range(3):
        with setting.run() as process:
            eventually(lambda at=round_: sum(setting.done().values()) > 1_000 * (at + 1))  # type: ignore[misc]
            process.kill()
    with setting.run(pause=0.0) as process:
        eventually(lambda: not setting.left(), within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    done = setting.done()
    assert set(done) == set(range(5_000))
    repeats = sum(done.values()) - 5_000
    assert repeats <= 3 * (1_000 + 4 + 64), "more than an ack group, the running handlers and a bundle for each kill"


def test_a_second_signal_ends_at_once(setting: Setting) -> None:
    create_topics(setting.broker, str(setting.file))
    setting.send(1)
    with setting.run(pause=60) as process:
        eventually(setting.folder.joinpath("ledger.begun").exists)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        eventually(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None, every=0.5)
        assert process.wait(60) == 130
        assert time.monotonic() - began < 25


def test_a_file_with_lint_errors_starts_no_worker_and_changes_none_that_runs(
    setting: Setting, capfd: pytest.CaptureFixture[str]
) -> None:
    create_topics(setting.broker, str(setting.file))
    setting.send(200)
    good = setting.file.read_text(encoding="utf-8")
    bad = good.replace("work: {", "work: {weights: {ready: 300}, ")
    said = ""
    with setting.run() as process:
        eventually(setting.done)
        setting.file.write_text(bad, encoding="utf-8")
        while "is refused, everything stays as it was" not in said:
            said += capfd.readouterr().err
            assert process.poll() is None
            time.sleep(0.05)
        eventually(lambda: not setting.left(), within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "K104 error weights or waits that cannot work" in said
    with setting.run() as process:
        assert process.wait(30) == 1
    assert "[K104]" in capfd.readouterr().err


PROGRAM = (
    APP
    + """

from kodo_consumer import Consumer

consumer = Consumer.load("t.yaml")
consumer.handler(handle)
"""
)


def test_a_program_names_topology_and_subscription_once_and_runs_or_is_rehearsed(
    broker: Broker, tenant: str, tmp_path: Path
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    (tmp_path / "app.py").write_text(PROGRAM, encoding="utf-8")
    command = setting.command("run", "app:consumer", "--dry-run")
    environment = {**os.environ, "LEDGER": str(setting.ledger), "PAUSE": "0"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 60}
    rehearsal = subprocess.run(command, **options, check=False)
    assert rehearsal.returncode == 1
    assert "[K710]" in rehearsal.stderr
    assert "jobs work: " in rehearsal.stdout
    create_topics(broker, str(setting.file))
    rehearsal = subprocess.run(command, **options, check=False)
    assert (rehearsal.returncode, rehearsal.stderr.count("Error")) == (0, 0), rehearsal.stderr
    assert "jobs work: complete" in rehearsal.stdout
    assert sum(line.startswith("lane ") for line in rehearsal.stdout.splitlines()) == 4
    assert rehearsal.stdout.endswith("jobs work: 4 slots\n")
    log = tmp_path / "log"
    with log.open("w", encoding="utf-8") as file:
        command = setting.command("run", "app:consumer", "--reload", "--log-format", "json")
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=file, stdout=file)
    try:
        setting.send(10)
        eventually(lambda: len(setting.done()) == 10, within=60)
        (tmp_path / "app.py").write_text(PROGRAM + "\nraise ValueError\n", encoding="utf-8")
        eventually(lambda: "waits for a change of the program" in log.read_text("utf-8"), within=60)
        (tmp_path / "app.py").write_text(PROGRAM.replace("message.data +", "b'1' + message.data +"), encoding="utf-8")
        setting.send(10)
        eventually(lambda: len(setting.done()) == 20, within=60)
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert sorted(setting.done()) == sorted([*range(10), *range(10, 20)])
    assert setting.left() == 0
    assert "handler cannot be imported [K718]" in log.read_text("utf-8")
    entries = [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.startswith("{")]
    failure = next(entry for entry in entries if entry["message"].startswith("handler failed with ValueError"))
    assert (failure["error"], failure["attempt"], failure["worker"]) == ("ValueError", 1, 1)
    assert failure["tenant"].startswith("u")
