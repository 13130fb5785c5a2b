"""`limit … --release` on the real broker: what waits because of a raised limit is handled within seconds, each message
once, as far as the new limit goes; killed anywhere and run again it ends well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from kodo_consumer import Consumer, Message, Producer
from kodo_consumer.cli.main import main

from tests.broker.test_recall_kills import APP, STEPS
from tests.broker.waiting_messages import Waits
from tests.brokers.workspace import Workspace, this_process_goes_on
from tests.services.polling import eventually
from tests.source_roots import PATHS

pytestmark = pytest.mark.broker
TOPICS = """
orders:
  partitions: 1
  fair_by: uid
  levels: double
  message_properties: {uid: required}
  subscriptions:
    billing:
      states: [retrying, pending, blocking]
      in_place: []
      limits: [{kind: quota, by: uid, limit: 5/h}]
"""
LIMIT = ["--topic", "orders", "--subscription", "billing", "--kind", "quota", "--by", "uid"]


class Shop:
    """Applied topics, and workers of `billing` that note what they handle."""

    def __init__(self, waits: Waits) -> None:
        self.waits, self.workspace = waits, waits.workspace
        self.file = str(self.workspace.folder / "topologies/trade.yaml")
        self.place = self.workspace.broker.client_options
        self.handled: Counter[tuple[str, int]] = Counter()

    def worker(self) -> Consumer:
        consumer = Consumer.load(self.file, topic="orders", subscription="billing", **self.place)

        @consumer.handler
        def handle(message: Message) -> None:
            seen = (message.tenant, message.json()["n"])
            self.handled[seen] += 1

        return consumer

    def send(self, count: int) -> None:
        with Producer.load(self.file, topic="orders", **self.place) as producer:
            for number in range(count):
                for uid in ("u1", "u2"):
                    producer.post(json.dumps({"n": number}).encode(), properties={"uid": uid})

    def of(self, uid: str) -> int:
        return sum(count for (tenant, _), count in self.handled.items() if tenant == uid)

    def blocked(self) -> int:
        found = self.waits.listed("--lane", "L1/blocking")
        return int(found["matched"])


@pytest.fixture
def shop(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(workspace.folder)
    return Shop(Waits(workspace, TOPICS))


def limit(shop: Shop, monkeypatch: pytest.MonkeyPatch, *more: str, code: int = 0) -> None:
    words = ["kodo-consumer", "limit", shop.file, *LIMIT, *more, *shop.workspace.connection()]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end, this_process_goes_on():
        main()
    assert (end.value.code or 0) == code


@pytest.mark.full
def test_a_raised_quota_frees_what_waits_of_that_tenant_as_far_as_it_goes_and_nothing_else(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = shop.worker()
    worker.start()
    try:
        shop.send(40)
        eventually(lambda: shop.blocked() == 70, within=60)
        assert (shop.of("u1"), shop.of("u2")) == (5, 5)
        limit(shop, monkeypatch, "--value", "u1", "--to", "25/h", "--why", "they paid", "--release")
        began = time.monotonic()
        eventually(lambda: shop.of("u1") > 5, within=90)
        took = time.monotonic() - began
        shown = capfd.readouterr().out
        assert "L1/blocking: 35 messages released, 35 stay" in shown
        assert "35 do not meet the condition" in shown
        assert max(map(len, shown.splitlines())) <= 80
        assert took < 60, f"within seconds, not after {took:.0f}; their due time is in an hour"
        eventually(lambda: shop.blocked() + len(shop.handled) == 80, within=90)
        assert 5 < shop.of("u1") <= 25, "the new limit holds"
        assert shop.of("u2") == 5, "and so does the other tenant's"
        limit(shop, monkeypatch, "--value", "u1", "--to", "100/h", "--release")
        eventually(lambda: shop.of("u1") == 40, within=90)
        assert set(shop.handled.values()) == {1}, "none twice"
        assert shop.of("u2") == 5
        assert [one.what for one in shop.waits.orders()] == ["limit"], "the lane is not paused any more"
    finally:
        worker.stop()


def test_two_workers_share_what_is_released(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = [shop.worker(), shop.worker()]
    for worker in workers:
        worker.start()
    try:
        shop.send(30)
        eventually(lambda: shop.blocked() + shop.of("u1") + shop.of("u2") == 60, within=60)
        limit(shop, monkeypatch, "--to", "1000/h", "--release")
        eventually(lambda: len(shop.handled) == 60, within=40)
        eventually(lambda: shop.blocked() == 0)  # acknowledgements are on their way
        assert set(shop.handled.values()) == {1}
    finally:
        for worker in workers:
            worker.stop()


def test_limits_that_make_nothing_wait_elsewhere_say_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.workspace.topology(TOPICS.replace("kind: quota, by: uid, limit: 5/h", "kind: concurrency, by: uid, limit: 5"))
    words = ["limit", shop.file, "--topic", "orders", "--subscription", "billing", "--kind", "concurrency", "--by"]
    monkeypatch.setattr(
        sys, "argv", ["kodo-consumer", *words, "uid", "--to", "9", "--release", *shop.workspace.connection()]
    )
    with pytest.raises(SystemExit) as end, this_process_goes_on():
        main()
    assert not end.value.code
    assert "Nothing waits elsewhere because of this limit" in " ".join(capfd.readouterr().out.split())


def release(shop: Shop) -> list[str]:
    """The words of the command."""
    words = ["waiting", "release", shop.file, "--topic", "orders", "--subscription", "billing", "--lane", "L1/blocking"]
    return [*words, "--where", "payload.n % 3 > 0"]


def attempt(shop: Shop, step: str) -> int:
    """The command as a process that dies at a step."""
    app = shop.workspace.folder / "app.py"
    app.write_text(APP, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(app), *release(shop), *shop.workspace.connection()],
        cwd=shop.workspace.folder,
        env={**os.environ, "KILL_AT": step, "PYTHONPATH": PATHS},
        timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


@pytest.mark.full
def test_killed_at_any_step_the_same_command_again_loses_nothing_and_sends_nothing_twice(shop: Shop) -> None:
    waits, expected = shop.waits, Counter[int]()
    for turn, step in enumerate(STEPS):
        numbers = range(turn * 1_000, turn * 1_000 + 90)
        waits.put("L1/blocking", numbers)
        expected.update(numbers)
        assert attempt(shop, step) == -signal.SIGKILL, step
        (order,) = waits.orders()
        assert order.lane == "L1/blocking", "the lane stays paused until the next attempt"
        shop.workspace.run(*release(shop))
        assert waits.left("L1/blocking") == expected, f"{step}: nothing lost, nothing twice"
        assert waits.orders() == ()
        assert not list((shop.workspace.folder / "state/kodoctl/releases").iterdir())
    copies = [one for one in waits.stored("L1/blocking") if "kodo-release" in one.properties]
    released = Counter(one.properties["kodo-release"] for one in copies)
    assert [one.event_time for one in copies] == sorted(one.event_time for one in copies), "in their order"
    assert (len(released), set(released.values())) == (len(STEPS) * 60, {1})
