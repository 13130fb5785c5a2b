"""The campaign of tests.faults on a cluster: levels, limits, all states, signed properties, an audit topic, a third worker; and
what is measured of each partition.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pulsar

from kodoctl.protocol import properties as names
from tests.chaos.cluster import WiredCluster
from tests.chaos.spans import Span
from tests.faults.campaign import SLOTS, WORKERS, Campaign
from tests.faults.ledger import Run
from tests.faults.ordered_traffic import TOPICS, OrderedTraffic
from tests.source_roots import PATHS

Fault = Callable[["ClusterCampaign"], None]
TOPOLOGY = """
version: 1
name: faults
tenant: public
namespace: faults
namespace_policies:
  retention: {time: unlimited, size: unlimited}
defaults: {partitions: 3}
topics:
  orders:
    payload: {type: json, schema: order.json}
    levels: double
    backup: true
    fair_by: uid
    subscriptions:
      billing:
        concurrency: 4
        expected_workers: 2
        handler_timeout: 5s
        in_place: []
        lookahead: {messages: 2000}
        audit: true
        retrying: {delays: [1s, 6s], attempts: 4}
        pending: {delays: [1s], attempts: 100}
        blocking: {delays: [2s], attempts: 100}
        backup: {delays: [2s], attempts: 3}
        limits:
          - {kind: rate, by: uid, limit: 30/s, burst: 60}
          - {kind: quota, by: bucket, limit: 1800/m}
        routes:
          - {when: {property: uid, in: [u1]}, to: L2}
"""
ORDERED = f"version: 1\nname: ordered\ntenant: public\nnamespace: ordered\ntopics:{TOPICS}"
SUFFIXES = ("", "-L2", "-B1", *(f"-billing-{state}" for state in ("RETRYING", "PENDING", "BLOCKING")))
KEY = base64.b64encode(b"a key of the campaign, 32 bytes.").decode()
BUSY = tuple(f"orders-partition-{n}" for n in range(3))  # these get a message at least ten times a second
READY = (*BUSY, *(f"orders-L2-partition-{n}" for n in range(3)))
LOSS = 5  # exit code of `pipeline audit`
_STUCK = 120.0  # seconds after which a partition is taken for stuck


class ClusterCampaign(Campaign):
    """`cluster`: its machine. `spans`: what was measured of each fault. `landing`, `recalls`: folders of the pipeline's tables
    and of the book of recalls.
    """

    def __init__(self, folder: Path, *, rate: int = 50, seed: int = 0, disk: int | None = None) -> None:
        self.cluster = WiredCluster(folder / "cluster", disk=disk)
        super().__init__(
            folder, rate=rate, seed=seed, machine=self.cluster, topology=TOPOLOGY, suffixes=SUFFIXES, failing=5
        )
        self.environ = {"KODO_CONSUMER_SIGNING_KEYS": KEY}
        self.spans: list[Span] = []
        self._ordered = folder / "ordered.yaml"
        self._ordered.write_text(ORDERED, encoding="utf-8")
        self.landing, self.recalls = folder / "landing", folder / "recalls-ledger"

    @property
    def slots(self) -> int:
        """Handlers that run at once, of both workers and the third."""
        return SLOTS * (WORKERS + 1)

    def properties(self, number: int) -> dict[str, str]:
        """Few tenants of which one sends half of all and has a rate limit below what a backlog needs; and a bucket whose quota a
        backlog uses up, which a third of all messages share. All others run freely: a stand-still of theirs is the fault's.
        """
        bucket = number % 1_000 + 1 if number % 3 else 0
        return {"uid": f"u{0 if number % 2 else number % 7}", "bucket": f"b{bucket}"}

    def prepare(self) -> None:
        """Topics by kodoctl itself, as users make them, and a first ingest: an audit proves only what came after one."""
        for command in (
            ("apply", str(self.file), "--auto-approve"),
            ("apply", str(self._ordered), "--auto-approve"),
            ("pipeline", "ingest", str(self.file), "--landing", str(self.landing)),
        ):
            made = self.kodoctl(*command)
            assert made.returncode == 0, made.stdout + made.stderr

    def ordered_traffic(self) -> OrderedTraffic:
        """Traffic beside the others, whose order is checked in the end."""
        broker = self.cluster.broker
        place = {"admin_url": broker.admin_url, "broker_url": broker.broker_url, "environ": self.environ}
        return OrderedTraffic(self._ordered, self.folder, "public/ordered", place)

    def inflict(self, name: str, fault: Fault, *, breaks: int) -> None:
        """One fault; then every node runs again, and every ready partition is handled again. `breaks`: how often it breaks
        connections.
        """
        self.tally.faults[name] += 1
        owners = self.cluster.owners(BUSY)
        self.cluster.hit.clear()
        start = time.monotonic()
        fault(self)
        self.cluster.heal()
        healed = time.monotonic()
        recoveries: dict[str, float] = {}
        offset = 0
        try:
            while len(recoveries) < len(READY):
                if self.cluster.supervise():
                    healed = time.monotonic()
                    recoveries.clear()
                runs, offset = self.ledger.follow(offset)
                for run in runs:
                    if run.at >= healed and run.place in READY:
                        recoveries.setdefault(run.place, run.at - healed)
                missing = sorted(set(READY) - recoveries.keys())
                assert time.monotonic() < healed + _STUCK, f"not handled again: {', '.join(missing)}"
                time.sleep(0.2)
        finally:
            spared = _spared(owners, self.cluster.hit)
            self.spans.append(Span(name, start, healed, time.monotonic(), breaks, spared, recoveries))
        slowest = max(recoveries, key=lambda place: recoveries[place])
        text = f"recovery {recoveries[slowest]:5.1f} s ({slowest})"
        self.story.append(f"{time.monotonic() - start:6.1f} s  {text}  {name}")

    def join(self, seconds: float) -> None:
        """A worker beside the others, for so long."""
        pid = self._children.start()
        time.sleep(seconds)
        self._children.signal(pid, signal.SIGTERM)
        if self._children.wait(pid, 60) is None:
            self._children.signal(pid, signal.SIGKILL)
            raise AssertionError("a worker does not end within 60 s of SIGTERM")

    def unhandled_letters(self) -> list[int]:
        """Numbers of dead letters without an effect: after a recall of all there must be none."""
        return sorted(self.dead_letters().keys() - self.ledger.done())

    def copies(self) -> dict[str, int]:
        """How often a move is stored at most, by topic: moves of one message by its count of hops."""
        client = pulsar.Client(self.cluster.broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        most = {}
        try:
            for suffix in (*SUFFIXES, "-billing-DLQ"):
                found: Counter[tuple[str | None, ...]] = Counter()
                for partition in client.get_topic_partitions(self.topic + suffix):
                    reader = client.create_reader(partition, pulsar.MessageId.earliest)
                    while reader.has_message_available():
                        sent = reader.read_next(30_000).properties()
                        if names.HOP in sent:
                            found[sent.get(names.ID), sent[names.HOP], sent.get(names.RECALL)] += 1
                    reader.close()
                most[f"orders{suffix}"] = max(found.values(), default=0)
        finally:
            client.close()
        return most

    def runs(self) -> list[Run]:
        """Every run of the handler."""
        return self.ledger.follow(0)[0]

    def kodoctl(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Runs a command in a process of its own."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder, env=self.variables(), capture_output=True, text=True, check=False, timeout=timeout,
        )  # fmt: skip

    def command(self, *arguments: str) -> list[str]:
        """A command line that enters the cluster through any of its brokers."""
        broker = self.cluster.broker
        where = ["--admin-url", broker.admin_url, "--broker-url", broker.broker_url]
        return [sys.executable, "-m", "kodoctl", *arguments, *where]

    def variables(self) -> dict[str, str]:
        """Environment of commands: keys, and no configuration of the user's."""
        own = {"PYTHONPATH": PATHS, "KODOCTL_CONFIG": str(self.folder / "none.toml")}
        return {**os.environ, **self.environ, **own}


def _spared(owners: dict[str, str], hit: set[str]) -> frozenset[str]:
    """Partitions of brokers that a fault did not concern: none unless it was a fault of brokers alone."""
    if not hit or not all(name.startswith("broker") for name in hit):
        return frozenset()
    return frozenset(place for place, owner in owners.items() if owner not in hit)
