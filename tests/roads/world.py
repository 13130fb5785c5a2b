"""The world of the test of all roads: a topology on the broker, workers as processes, and the broker's own word on its topics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pulsar
from kodo_consumer import Producer

from tests.brokers.topics import backlog, messages
from tests.brokers.workspace import Workspace
from tests.roads.plans import (
    BACKUP_ATTEMPTS,
    HANDLER_TIMEOUT,
    ORDERS,
    PENDING_ATTEMPTS,
    PROBES,
    QUOTA,
    RATE,
    RETRYING_ATTEMPTS,
    TOGETHER,
    Lane,
    Order,
)

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = 2
SLOTS: Final = 8  # of each
WEIGHTS: Final = {"ready": 40, "retrying": 30, "pending": 20, "blocking": 10}
LEVEL_WEIGHTS: Final = {"L1": 50, "L2": 30, "B1": 20}
TOPICS: Final = f"""
orders:
  levels: double
  backup: true
  fair_by: uid
  subscriptions:
    billing:
      produces: [shipments]
      concurrency: {SLOTS}
      expected_workers: {WORKERS}
      handler_timeout: {HANDLER_TIMEOUT:g}s
      isolate: "off"
      in_place: [100ms]
      retrying: {{delays: [300ms], attempts: {RETRYING_ATTEMPTS}, by_code: {{busy: [500ms]}}}}
      pending: {{delays: [300ms], attempts: {PENDING_ATTEMPTS}}}
      blocking: {{delays: [300ms], attempts: 3}}
      backup: {{delays: [300ms], attempts: {BACKUP_ATTEMPTS}}}
      limits:
        - {{kind: rate, by: rated, limit: 1000000/s, overrides: {{slow: {RATE}/s}}}}
        - {{kind: concurrency, by: account, limit: 1000, overrides: {{narrow: {TOGETHER}}}}}
      routes:
        - {{when: {{property: size, greater_than: 100000}}, to: L2}}
        - {{when: {{property: plan, equals: free}}, to: B1}}
reports: {{subscriptions: {{monthly: {{states: [blocking], limits: [{{kind: quota, by: uid, limit: {QUOTA}/m}}]}}}}}}
shipments: {{subscriptions: {{delivery: {{states: []}}}}}}
payments: {{fair_by: uid, subscriptions: {{ledger: {{states: [], isolate: "off", concurrency: {PROBES}}}}}}}
quotes: {{subscriptions: {{pricing: {{states: [], concurrency: adaptive}}}}}}
scales:
  levels: double
  backup: true
  fair_by: uid # so that a worker reads on as far as it may
  subscriptions:
    weighing:
      concurrency: 4
      handler_timeout: 2m
      isolate: "off"
      weights: {{{", ".join(f"{state}: {weight}" for state, weight in WEIGHTS.items())}}}
      level_weights: {{{", ".join(f"{level}: {weight}" for level, weight in LEVEL_WEIGHTS.items())}}}
"""


def shares() -> dict[Lane, float]:
    """Declared parts of all starts of the scales, by lane: of the level, and within it of the state. A backup has one lane."""
    return {
        lane: LEVEL_WEIGHTS[lane.level] / sum(LEVEL_WEIGHTS.values())
        * (1.0 if lane.level == "B1" else WEIGHTS[lane.state] / sum(WEIGHTS.values()))
        for lane in ORDERS
    }  # fmt: skip


class World:
    """Topics, workers, ledgers; all of them are gone when the workspace is."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.home = workspace.folder
        self.file = workspace.topology(TOPICS)
        workspace.apply()
        self.killed: dict[int, float] = {}  # pid -> when it was gone

    # ---- what is sent

    def producer(self, topic: str) -> Producer:
        """The product's own, for the ready lane of L1."""
        return Producer.load(self.file, topic=topic, **self.workspace.broker.client_options)

    def send(self, orders: Iterable[Order]) -> None:
        """Returns with a receipt for each of them."""
        with self.producer("orders") as producer:
            for order in orders:
                producer.post(order.payload, properties=order.properties)
            producer.flush()

    def fill(self, counts: dict[Lane, int]) -> None:
        """Messages without any property, put into the lanes of the scales by a plain client."""
        with self.workspace.client() as client:
            for lane, count in counts.items():
                producer = client.create_producer(
                    self.topic("scales", "weighing", lane), block_if_queue_full=True, batching_max_messages=500
                )
                for _ in range(count):
                    producer.send_async(b"x", _must_be_stored)
                producer.flush()
                producer.close()

    # ---- workers

    def worker(self, *served: str, **environ: str) -> subprocess.Popen[bytes]:
        """`kodo-consumer run` of each `TOPIC SUBSCRIPTION HANDLER`."""
        command = [str(Path(sys.executable).with_name("kodo-consumer")), "run", str(self.file)]
        for one in served:
            topic, subscription, handler = one.split()
            command += [
                "--topic",
                topic,
                "--subscription",
                subscription,
                "--handler",
                f"tests.roads.handlers:{handler}",
            ]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *self.workspace.connection()], cwd=self.home, stdout=log, stderr=log,
                env={**os.environ, "ROADS_HOME": str(self.home), "PYTHONPATH": path, "KODOCTL_ENV": "", **environ},
            )  # fmt: skip
        self.workspace.processes.append(process)  # type: ignore[arg-type]
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9, and until it is gone."""
        process.kill()
        process.wait(30)
        self.killed[process.pid] = time.monotonic()

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM, and exit code 0."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, self.log

    @property
    def log(self) -> str:
        """What the workers said."""
        return (self.home / "log").read_text()

    # ---- the broker's word

    def topic(self, ground: str, subscription: str, lane: Lane) -> str:
        """Full name of a lane's topic."""
        level = "" if lane.level == "L1" else f"-{lane.level}"
        state = "" if lane.state == "ready" else f"-{subscription}-{lane.state.upper()}"
        return self.workspace.full(f"{ground}{level}{state}")

    def left(self, ground: str, subscription: str, lanes: Iterable[Lane]) -> int:
        """Entries that are not acknowledged, in all these lanes."""
        broker = self.workspace.broker
        return sum(backlog(broker, self.topic(ground, subscription, lane), subscription) for lane in lanes)

    def count(self, ground: str, subscription: str, lane: Lane, figure: str) -> int:
        """A figure of the topic's statistics: of the subscription if it has it, else of the topic."""
        local = self.topic(ground, subscription, lane).rpartition("/")[2]
        stats = self.workspace.admin("GET", f"{self.workspace.path(local)}/partitioned-stats", perPartition="false")
        return int(stats["subscriptions"].get(subscription, {}).get(figure, stats.get(figure, 0)))

    def dead(self) -> Counter[int]:
        """Numbers of the dead letters of billing, by a plain reader. Fails where a payload is not what was sent."""
        found: Counter[int] = Counter()
        for letter in messages(self.workspace.broker, self.workspace.full("orders-billing-DLQ")):
            order = Order(int(letter.properties()["n"]), letter.properties()["road"])
            assert letter.data() == order.payload
            found[order.number] += 1
        return found


def _must_be_stored(result: pulsar.Result, _position: object) -> None:
    assert result == pulsar.Result.Ok
