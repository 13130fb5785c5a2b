"""Sends through a broker's death: `consumer.Producer` beside the client library's own producer, on three brokers, in one run.

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

from consumer import Producer
from consumer.broker import Stored
from consumer.numbers.numbering import key_hash
from consumer.pulsar_broker.connection import PulsarBroker
from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection import Connection

PARTITIONS = 9
EVERY = 0.01  # seconds
NAMESPACE = "public/sends"
ARMS = ("consumer.Producer", "pulsar-client")
Answer = Callable[[str], None]  # why there is no receipt; empty: stored


class Cluster:
    """Three brokers and three bookies under `kodoctl dev`, with a home of their own."""

    def __init__(self, home: Path) -> None:
        self._variables = {**os.environ, "KODOCTL_DEV_HOME": str(home), "KODOCTL_CONFIG": str(home / "none.toml")}
        self.command("up", "--brokers", "3", "--bookies", "3")
        (found,) = json.loads(self.command("status", "--format", "json"))["instances"]
        self.admin_urls = found["admin_url"].split(",")
        self.broker_url = found["broker_url"]

    def command(self, *arguments: str) -> str:
        """Runs `kodoctl dev` and answers what it prints."""
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
    """Sends of one producer: seconds until the receipts, in healthy partitions and in the others; sends without a receipt."""

    healthy: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    lost_healthy: int = 0
    lost_others: int = 0
    open: int = 0

    def json(self) -> dict[str, Any]:
        """Figures of the report."""
        return {
            "healthy": {**_times(self.healthy), "without_receipt": self.lost_healthy},
            "others": {**_times(self.others), "without_receipt": self.lost_others},
            "never_answered": self.open,
        }


class Sender:
    """A thread that sends by one arm from `go` until `end`; `send(key, payload, answer)` is the arm's."""

    def __init__(
        self, arm: Arm, topic: str, owners: Sequence[str], send: Callable[[str, bytes, Answer], object]
    ) -> None:
        self._arm, self._topic, self._owners, self._send = arm, topic, owners, send
        self._lock = threading.Lock()

    def run(self, victim: str, seconds: float) -> None:
        """Sends for so long."""
        end = time.monotonic() + seconds
        for number in itertools.count():
            if time.monotonic() >= end:
                return
            key = f"k{number}"
            answer = self._answer(victim, key)
            with self._lock:
                self._arm.open += 1
            try:
                self._send(key, b"%d" % number, answer)
            except (pulsar.PulsarException, ClusterError) as problem:
                answer(str(problem))
            time.sleep(EVERY)

    def _answer(self, victim: str, key: str) -> Answer:
        healthy, start = self._owners[key_hash(key) % PARTITIONS] != victim, time.monotonic()
        receipts = self._arm.healthy if healthy else self._arm.others

        def answer(problem: str) -> None:
            seconds = time.monotonic() - start
            with self._lock:
                self._arm.open -= 1
                if not problem:
                    receipts.append(seconds)
                elif healthy:
                    self._arm.lost_healthy += 1
                else:
                    self._arm.lost_others += 1

        return answer


@contextmanager
def senders(cluster: Cluster, death: int, arms: dict[str, Arm]) -> Iterator[list[tuple[Sender, list[str]]]]:
    """Both arms, connected, each with a topic of its own for this death, and the owners of its partitions."""
    topics = [f"persistent://{NAMESPACE}/{arm.replace('.', '-').lower()}-{death}" for arm in ARMS]
    for topic in topics:
        cluster.admin("PUT", f"{topic.replace('://', '/')}/partitions", PARTITIONS)
    owners = [[cluster.owner(f"{topic}-partition-{number}") for number in range(PARTITIONS)] for topic in topics]
    ours = Producer(topics[0], PulsarBroker(Connection(cluster.admin_urls[0], cluster.broker_url)))
    client = pulsar.Client(cluster.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    theirs = client.create_producer(topics[1], hashing_scheme=pulsar.HashingScheme.Murmur3_32Hash)

    def post(key: str, payload: bytes, answer: Answer) -> None:
        ours.post(payload, lambda receipt: answer("" if isinstance(receipt, Stored) else str(receipt)), key=key)

    def send_async(key: str, payload: bytes, answer: Answer) -> None:
        theirs.send_async(
            payload, lambda result, _: answer("" if result == pulsar.Result.Ok else str(result)), partition_key=key
        )

    yield [
        (Sender(arms[arm], topic, owned, send), owned)
        for arm, topic, owned, send in zip(ARMS, topics, owners, (post, send_async), strict=True)
    ]
    with suppress(ClusterError):
        ours.close()
    with suppress(pulsar.PulsarException):
        theirs.flush()
    client.close()


def die(cluster: Cluster, death: int, seconds: float, arms: dict[str, Arm]) -> None:
    """One death under traffic."""
    cluster.spread()
    with senders(cluster, death, arms) as both:
        common = set(both[0][1]) & set(both[1][1])
        victim = sorted(common)[death % len(common)]
        print(f"kill -9 of {victim}", flush=True)
        cluster.command("kill", victim)
        threads = [threading.Thread(target=sender.run, args=(victim, seconds)) for sender, _ in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    cluster.command("start", victim)


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
