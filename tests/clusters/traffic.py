"""A partitioned topic under load: a producer for each partition, and workers; what was stored and what they handled of it.

By the order of events, not by time: healthy partitions have to be handled while those of a dead broker have no other yet.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pulsar
from kodo_consumer import Consumer, Message

from tests.brokers.cluster import Cluster
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

PARTITIONS = 9


def spread(cluster: Cluster, topic: str) -> list[str]:
    """Owner of each partition, once several brokers have some: unloads until they do, for nodes that have just started get none by
    themselves.
    """

    def owners() -> list[str] | None:
        found = [cluster.broker_of(f"{topic}-partition-{one}") for one in range(PARTITIONS)]
        if len(set(found)) > 1:
            return found
        cluster.admin("PUT", f"namespaces/{topic.split('://')[1].rpartition('/')[0]}/unload")
        return None

    return eventually(owners, within=120, every=1.0) or []


class Traffic:
    """A topic of nine partitions, one producer for each, and what two workers handled of it."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, kind: str) -> None:
        self.cluster = cluster
        tenant, space = namespace.split("/")
        self.topic = f"persistent://{namespace}/J"
        self.file = folder / "t.yaml"
        text = f"version: 1\nname: r\ntenant: {tenant}\nnamespace: {space}\ndefaults: {{partitions: {PARTITIONS}}}\n"
        subscription = f"subscriptions: {{s: {{type: {kind}, expected_workers: 2, states: [], dead_letter: false}}}}"
        self.file.write_text(f"{text}topics:\n  J: {{{subscription}}}\n", encoding="utf-8")
        create_topics(cluster.through(1), str(self.file))
        admins = ",".join([cluster.admin_urls[0], *(url.partition("://")[2] for url in cluster.admin_urls[1:])])
        self.place: dict[str, Any] = {"admin_url": admins, "broker_url": cluster.broker_url, "environ": {}}
        self.lock = threading.Lock()
        self.handled: defaultdict[int, list[int]] = defaultdict(
            list
        )  # numbers by partition, in the order of their starts
        self.stored: defaultdict[int, set[int]] = defaultdict(set)
        self._sent: Counter[int] = Counter()
        self._producers: dict[int, Any] = {}

    def handle(self, message: Message) -> None:
        partition, number = map(int, message.text().split())
        with self.lock:
            self.handled[partition].append(number)

    @contextmanager
    def sending(self) -> Iterator[None]:
        client = pulsar.Client(self.cluster.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            for partition in range(PARTITIONS):
                self._producers[partition] = client.create_producer(
                    f"{self.topic}-partition-{partition}", send_timeout_millis=0, initial_sequence_id=1
                )
            yield
        finally:
            client.close()

    @contextmanager
    def worker(self) -> Iterator[Consumer]:
        consumer = Consumer.load(self.file, topic="J", subscription="s", **self.place)
        consumer.handler(self.handle)
        consumer.start()
        try:
            yield consumer
        finally:
            consumer.stop()

    def send(self, *partitions: int) -> None:
        """One message to each."""
        for partition in partitions:
            number = self._sent[partition]
            self._sent[partition] += 1
            self._producers[partition].send_async(f"{partition} {number}".encode(), self._receipt(partition, number))

    def _receipt(self, partition: int, number: int) -> Callable[[Any, Any], None]:
        def told(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                self.stored[partition].add(number)

        return told

    def done(self, *partitions: int) -> bool:
        """Whether all that was sent to them was stored and handled."""
        with self.lock:
            return all(
                len(self.stored[one]) == self._sent[one] and self.stored[one] <= set(self.handled[one])
                for one in partitions
            )

    def twice(self) -> dict[int, set[int]]:
        """By partition, what was handled more than once."""
        with self.lock:
            found = {
                one: {n for n, times in Counter(numbers).items() if times > 1} for one, numbers in self.handled.items()
            }
        return {one: numbers for one, numbers in found.items() if numbers}


def lost(consumer: Consumer) -> list[str]:
    """What `/readyz` says is not connected."""
    assert consumer._running is not None
    return consumer._running.worker.disconnected_topics


def handle_while_one_is_dead(cluster: Cluster, namespace: str, folder: Path, kind: str, rounds: int = 20) -> None:
    """Two workers of a subscription of this kind, a broker dies: partitions of the others go on before its own have another, which
    go on afterwards; nothing is lost, only what the dead broker had is handled twice, and where order is kept it is kept.
    """
    traffic = Traffic(cluster, namespace, folder, kind)
    everything = range(PARTITIONS)
    owners = spread(cluster, traffic.topic)
    with ExitStack() as stack:
        stack.enter_context(traffic.sending())
        workers = [stack.enter_context(traffic.worker()) for _ in range(2)]
        for _ in range(rounds):
            traffic.send(*everything)
        eventually(lambda: traffic.done(*everything), within=60)
        counts = Counter(owners)
        victim = min(counts, key=lambda node: (node == "broker-1", abs(counts[node] - 3)))
        of_victim = [one for one in everything if owners[one] == victim]
        others = [one for one in everything if owners[one] != victim]
        at_the_kill = dict(traffic._sent)

        cluster.kill(victim)
        gone = {f"{traffic.topic}-partition-{one}" for one in of_victim}
        eventually(lambda: all(gone <= set(lost(worker)) for worker in workers), every=0.005)
        traffic.send(*of_victim)
        for _ in range(rounds):
            traffic.send(*others)
            eventually(lambda: traffic.done(*others))
        assert all(gone & set(lost(worker)) for worker in workers), "it took until another broker had them"
        assert not traffic.done(*of_victim)

        eventually(lambda: traffic.done(*everything), within=120)
        eventually(lambda: not any(lost(worker) for worker in workers), within=60)
    twice = traffic.twice()
    assert set(twice) <= set(of_victim), "only what the dead broker had may be handled twice"
    assert all(number < at_the_kill[one] for one, numbers in twice.items() for number in numbers)
    if kind == "failover":
        for one, numbers in traffic.handled.items():
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), f"partition {one} was handled out of order"
