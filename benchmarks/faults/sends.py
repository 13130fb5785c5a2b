"""Sends through a broker's death: `kodo_consumer.Producer` beside the client library's own producer, on three brokers, in one run.

    python benchmarks/faults/sends.py [--deaths 3] [--seconds 75] [--out FILE]

Starts a cluster of its own (`kodoctl dev up --brokers 3 --bookies 3`) and takes it down. Both producers send a message with a key
every 10 ms, each to a topic of nine partitions, from the `kill -9` of a broker on; the broker is started again after each death.
Of each: sends, those without a receipt, and the seconds until the receipt in partitions whose broker lives (`healthy`) and in the
others. The client library's producer has its own defaults.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import requests
from kodo_consumer import Producer
from kodo_consumer.adapters.pulsar.pulsar_broker import PulsarBroker
from kodo_consumer.adapters.pulsar.receipts import ReceiptPosition
from kodo_consumer.core.values.broker import Confirmed, Receipt

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.connection import Connection

PARTITIONS = 9
EVERY = 0.01  # seconds
NAMESPACE = "public/sends"
ARMS = ("kodo_consumer.Producer", "pulsar-client")
Answer = Callable[[int | None], None]  # the partition that stored it; None: there is no receipt


class Cluster:
    """Three brokers and three bookies under `kodoctl dev`, with a home of their own."""

    def __init__(self, home: Path) -> None:
        self._variables = {**os.environ, "KODOCTL_DEV_HOME": str(home), "KODOCTL_CONFIG": str(home / "none.toml")}
        self.command("up", "--brokers", "3", "--bookies", "3")
        (found,) = json.loads(self.command("status", "--format", "json"))["instances"]
        self.admin_urls = found["admin_url"].split(",")
        self.broker_url = found["broker_url"]

    def command(self, *arguments: str) -> str:
        """Runs `kodoctl dev` and returns its output."""
        line = [sys.executable, "-m", "kodoctl", "dev", *arguments, "--name", "sends"]
        return subprocess.run(line, env=self._variables, check=True, capture_output=True, text=True).stdout

    def admin(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """A call of the admin API that must succeed; its JSON, None without one."""
        url = f"{self.admin_urls[0]}/admin/v2/{path}"
        answer = requests.request(method, url, json=body, params=params, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def spread(self) -> None:
        """Gives each broker its share of the bundles."""
        edges = self.admin("GET", f"namespaces/{NAMESPACE}/bundles")["boundaries"]
        brokers = itertools.cycle(urlsplit(url).netloc for url in self.admin_urls)
        for (low, high), broker in zip(itertools.pairwise(edges), brokers, strict=False):
            self.admin("PUT", f"namespaces/{NAMESPACE}/{low}_{high}/unload", destinationBroker=broker)

    def owner(self, partition: str) -> str:
        """Name of the node that has a partition."""
        path = partition.replace("://", "/")
        answer = requests.get(f"{self.admin_urls[0]}/lookup/v2/topic/{path}", timeout=60)
        return f"broker-{self.admin_urls.index(answer.json()['httpUrl']) + 1}"


@dataclass
class Arm:
    """Sends of one producer: seconds until the receipts, in healthy partitions and in the others; how many have none."""

    healthy: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    without: int = 0
    unanswered: int = 0

    def json(self) -> dict[str, Any]:
        """Figures of the report."""
        return {
            "healthy": _times(self.healthy),
            "others": _times(self.others),
            "without_receipt": self.without,
            "unanswered": self.unanswered,
        }


class Sender:
    """Sends by one arm; `send(key, payload, answer)` is the arm's. `owners`: of the partitions, by number."""

    def __init__(self, arm: Arm, owners: Sequence[str], send: Callable[[str, bytes, Answer], object]) -> None:
        self.owners = owners
        self._arm, self._send, self._lock = arm, send, threading.Lock()

    def run(self, victim: str, seconds: float) -> None:
        """Sends for so long."""
        end = time.monotonic() + seconds
        for number in itertools.count():
            if time.monotonic() >= end:
                return
            answer = self._answer(victim)
            with self._lock:
                self._arm.unanswered += 1
            try:
                self._send(f"k{number}", b"%d" % number, answer)
            except (pulsar.PulsarException, ClusterError):
                answer(None)
            time.sleep(EVERY)

    def _answer(self, victim: str) -> Answer:
        start = time.monotonic()

        def answer(partition: int | None) -> None:
            seconds = time.monotonic() - start
            with self._lock:
                self._arm.unanswered -= 1
                if partition is None:
                    self._arm.without += 1
                elif self.owners[partition] == victim:
                    self._arm.others.append(seconds)
                else:
                    self._arm.healthy.append(seconds)

        return answer


@contextmanager
def senders(cluster: Cluster, death: int, arms: dict[str, Arm]) -> Iterator[list[Sender]]:
    """Both arms, connected, each with a topic of its own for this death."""
    topics = [f"persistent://{NAMESPACE}/{arm.replace('.', '-').lower()}-{death}" for arm in ARMS]
    for topic in topics:
        cluster.admin("PUT", f"{topic.replace('://', '/')}/partitions", PARTITIONS)
    owners = [[cluster.owner(f"{topic}-partition-{number}") for number in range(PARTITIONS)] for topic in topics]
    ours = Producer(topics[0], PulsarBroker(Connection(cluster.admin_urls[0], cluster.broker_url)))
    client = pulsar.Client(cluster.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    theirs = client.create_producer(topics[1])

    def post(key: str, payload: bytes, answer: Answer) -> None:
        ours.post(payload, lambda receipt: answer(_number(receipt)), key=key)

    def send_async(key: str, payload: bytes, answer: Answer) -> None:
        def on_result(result: Any, place: Any) -> None:
            answer(place.partition() if result == pulsar.Result.Ok else None)

        theirs.send_async(payload, on_result, partition_key=key)

    yield [Sender(arms[arm], owned, send) for arm, owned, send in zip(ARMS, owners, (post, send_async), strict=True)]
    with suppress(ClusterError):
        ours.close()
    with suppress(pulsar.PulsarException):
        theirs.flush()
    client.close()


def die(cluster: Cluster, death: int, seconds: float, arms: dict[str, Arm]) -> None:
    """One death under traffic."""
    cluster.spread()
    with senders(cluster, death, arms) as both:
        common = set(both[0].owners) & set(both[1].owners)
        victim = sorted(common)[death % len(common)]
        print(f"kill -9 of {victim}", flush=True)
        cluster.command("kill", victim)
        threads = [threading.Thread(target=sender.run, args=(victim, seconds)) for sender in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    cluster.command("start", victim)


def _number(receipt: Receipt) -> int | None:
    if not isinstance(receipt, Confirmed) or not isinstance(receipt.position, ReceiptPosition):
        return None
    return int(receipt.position.topic.rpartition("-")[2])


def _times(seconds: list[float]) -> dict[str, Any]:
    found = sorted(seconds)
    if not found:
        return {"receipts": 0}
    return {
        "receipts": len(found),
        "p50": round(found[len(found) // 2], 3),
        "p99": round(found[len(found) * 99 // 100], 3),
        "longest": round(found[-1], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deaths", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "sends.jsonl")
    asked = parser.parse_args()
    arms = {arm: Arm() for arm in ARMS}
    with tempfile.TemporaryDirectory(prefix="kodoctl-sends-") as home:
        cluster = Cluster(Path(home))
        try:
            cluster.admin("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 16}})
            for death in range(asked.deaths):
                die(cluster, death, asked.seconds, arms)
        finally:
            cluster.command("down")
    found = {"deaths": asked.deaths, "seconds": asked.seconds, **{arm: one.json() for arm, one in arms.items()}}
    with asked.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
