"""The campaign of tests.faults on a cluster: levels, limits, all states, signed properties, an audit topic, a third worker, and
applies under way.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.cluster import WiredCluster
from tests.faults.campaign import Campaign
from tests.faults.ledger import Verdict
from tests.faults.nursery import ROOT

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
          - {kind: quota, by: bucket, limit: 1200/m}
        routes:
          - {when: {property: uid, in: [u1]}, to: L2}
"""
SUFFIXES = ("", "-L2", "-B1", *(f"-billing-{state}" for state in ("RETRYING", "PENDING", "BLOCKING")))
KEY = base64.b64encode(b"a key of the campaign, 32 bytes.").decode()
LOSS = 5  # exit code of `pipeline audit`


class ClusterCampaign(Campaign):
    """`cluster`: its machine. `audits`: exit codes of the pipeline's audit."""

    def __init__(self, folder: Path, *, rate: int = 50, seed: int = 0, disk: int | None = None) -> None:
        self.cluster = WiredCluster(folder / "cluster", disk=disk)
        super().__init__(
            folder, rate=rate, seed=seed, machine=self.cluster, topology=TOPOLOGY, suffixes=SUFFIXES, failing=5
        )
        self.environ = {"KODO_CONSUMER_SIGNING_KEYS": KEY}
        self.audits: list[int] = []

    def properties(self, number: int) -> dict[str, str]:
        """Few tenants of which one sends half of all, and buckets whose quota is soon used up."""
        return {"uid": f"u{0 if number % 2 else number % 7}", "bucket": f"b{number % 3}"}

    def prepare(self) -> None:
        """Topics by kodoctl itself, as users make them."""
        made = self.kodoctl("apply", str(self.file), "--auto-approve")
        assert made.returncode == 0, made.stdout + made.stderr

    def suffer(self, name: str, fault: Fault, *, repeats: int = 0) -> None:  # type: ignore[override]
        def healed(campaign: Any) -> None:
            fault(campaign)
            campaign.cluster.heal()

        super().suffer(name, healed, repeats=repeats)

    def join(self, seconds: float) -> None:
        """A worker beside the others, for so long."""
        pid = self._children.start()
        time.sleep(seconds)
        self._children.signal(pid, signal.SIGTERM)
        if self._children.wait(pid, 60) is None:
            self._children.signal(pid, signal.SIGKILL)
            raise AssertionError("a worker does not end within 60 s of SIGTERM")

    def settle(self, within: float = 180.0) -> Verdict:
        """Ends when everything is handled; then the pipeline judges the same messages from the data."""
        verdict = super().settle(within)
        landing = str(self.folder / "landing")
        for command in ("ingest", "audit"):
            ended = self.kodoctl("pipeline", command, str(self.file), "--landing", landing, timeout=900)
            self.story.append(
                f"pipeline {command}: exit {ended.returncode}\n{ended.stdout[-1_500:]}{ended.stderr[-500:]}"
            )
            if command == "audit":
                self.audits.append(ended.returncode)
        return verdict

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
        own = {"PYTHONPATH": str(ROOT), "KODOCTL_CONFIG": str(self.folder / "none.toml")}
        return {**os.environ, **self.environ, **own}
