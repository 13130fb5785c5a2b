"""From a worker on a real broker whose retries hang to a bulkhead that plan, apply and the next worker take."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, Producer, Retry

from tests.brokers.workspace import Workspace, run_main
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(1200)]
SLOTS, SLOW, STEADY = 4, 12, 120
TOPICS = f"""
orders:
  fair_by: uid
  message_properties: {{uid: required}}
  subscriptions:
    billing:
      audit: true
      concurrency: {SLOTS}
      in_place: []
      weights: {{ready: 10, retrying: 90}}  # somebody wanted retries to be quick
      retrying: {{delays: [1s], attempts: 99}}
      handler_timeout: 2m
"""


class Bank:
    """A handler's dependency: retries of slow tenants hang until it is over, everybody else takes a third of a second."""

    def __init__(self) -> None:
        self.hanging = self.most = self.done = 0
        self.over = threading.Event()
        self._lock = threading.Lock()

    def handle(self, message: Message) -> None:
        """The handler."""
        if message.tenant == "steady":
            time.sleep(0.3)
            with self._lock:
                self.done += 1
        elif message.state == "ready":
            raise Retry(code="bank")
        else:
            with self._lock:
                self.hanging += 1
                self.most = max(self.most, self.hanging)
            self.over.wait()
            with self._lock:
                self.hanging -= 1

    def outage(self, workspace: Workspace, file: Path, *, hang: int) -> None:
        """Slow tenants come first and `hang`, then a steady one sends for a while; the most retries at once are counted."""
        place = workspace.broker.client_options
        consumer = Consumer.load(file, topic="orders", subscription="billing", **place)
        consumer.handler(self.handle)
        with Producer.load(file, topic="orders", **place) as producer:
            consumer.start()
            try:
                for number in range(SLOW):
                    producer.post(b"x", properties={"uid": f"slow{number}"})
                producer.flush()
                eventually(lambda: self.hanging >= hang, within=60)
                for _ in range(STEADY):
                    producer.post(b"x", properties={"uid": "steady"})
                    time.sleep(0.25)
                producer.flush()
                self.over.set()
                eventually(lambda: self.done == STEADY and not self.hanging, within=120)
            finally:
                self.over.set()
                consumer.stop()


def test_retries_that_hang_get_a_bulkhead_from_what_workers_recorded(workspace: Workspace) -> None:
    file = workspace.topology(TOPICS)
    workspace.apply("topologies")
    subprocess.run(["git", "init", "-q"], cwd=workspace.folder, check=True)
    before = Bank()
    before.outage(workspace, file, hang=2)
    assert before.most == SLOTS - 1  # one is kept for quick ones
    at = ("topologies/trade.yaml", "--landing", "landed")
    workspace.run("pipeline", "ingest", *at)
    run_main("pipeline", "rollup", *at, "--window", "4s")
    found = run_main("pipeline", "recommend", *at, "--goal", "1s", "--format", "json").json()
    (bulkhead,) = found["settings"]
    assert (bulkhead["path"], bulkhead["from"], bulkhead["who"]) == (
        "concurrency.states.retrying.max",
        None,
        "retrying",
    )
    assert 1 <= bulkhead["to"] < SLOTS
    assert bulkhead["busy_slots"] > bulkhead["to"]
    assert bulkhead["others_late"] > 0.05

    subprocess.run(["git", "apply"], cwd=workspace.folder, input=found["patch"].encode(), check=True)
    again = run_main("pipeline", "recommend", *at, "--goal", "1s", "--format", "json").json()
    assert (again["settings"], again["patch"]) == ([], "")
    workspace.apply("topologies")
    workspace.assert_settled("topologies")
    after = Bank()
    after.outage(workspace, file, hang=bulkhead["to"])
    assert after.most == bulkhead["to"]
