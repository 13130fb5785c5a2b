"""Asking the admin API who the active consumer of each partition is, also while a broker is silent.

One request tells of all partitions: the broker asked asks the others. One that is silent (its host lost power, its process is stopped)
keeps that answer back until its session ends, and with it what is known of the partitions that are well. So where it does not come
soon each partition is asked for by itself, and those that do not answer are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from consumer.threads import begin, log_end
from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin import Admin, must, topic_path
from kodoctl.topology.names import TopicName

TOGETHER: Final = (0.5, 0.7)  # seconds to connect and to answer
ALONE: Final = (0.4, 0.4)  # together less than consumer.scheduling.active.VALID, with time to ask again
_ALONE_FOR: Final = 30.0  # seconds until the one request for all is tried again: the time of a broker's session
_WITHOUT_SUMS: Final = {"perPartition": "true", "excludePublishers": "true"}


class ActiveConsumerReader:
    """Thread-safe for different topics. `together` and `alone`: the admin API with those limits, without any repetition."""

    def __init__(self, together: Admin, alone: Admin, now: Callable[[], float] = time.monotonic) -> None:
        self._together, self._alone, self._now = together, alone, now
        self._alone_until: dict[str, float] = {}
        self._silent: dict[str, set[int]] = {}  # partitions that did not answer last: asked after the others

    def read(self, topic: str, subscription: str) -> dict[str, str] | None:
        """See consumer.broker.Cluster.active."""
        if self._now() >= self._alone_until.get(topic, 0.0):
            path = f"{topic_path(TopicName.parse(topic))}/partitioned-stats"
            try:
                reply = self._together.call("GET", path, query=_WITHOUT_SUMS)
                return None if reply.missing else active_consumers(must(reply, f"reading {topic}"), subscription)
            except ClusterError:
                self._alone_until[topic] = self._now() + _ALONE_FOR
        return self._one_by_one(topic, subscription)

    def _one_by_one(self, topic: str, subscription: str) -> dict[str, str] | None:
        path = topic_path(TopicName.parse(topic))
        count = int(must(self._alone.call("GET", f"{path}/partitions"), f"reading {topic}")["partitions"])
        silent = self._silent.get(topic, set())
        answers: SimpleQueue[tuple[int, dict[str, Any] | None]] = SimpleQueue()
        for number in sorted(range(count), key=lambda number: (number in silent, number)):
            begin(partial(self._ask, f"{path}-partition-{number}", number, answers), "kodo-active", log_end)
        told: dict[int, dict[str, Any] | None] = {}
        latest = time.monotonic() + sum(ALONE)
        with suppress(Empty):
            while len(told) < count:
                number, stats = answers.get(timeout=max(0.0, latest - time.monotonic()))
                told[number] = stats
        parts = {f"{topic}-partition-{number}": stats for number, stats in told.items() if stats is not None}
        self._silent[topic] = {number for number in range(count) if told.get(number) is None}
        return active_consumers({"partitions": parts}, subscription)

    def _ask(self, path: str, number: int, answers: SimpleQueue[tuple[int, dict[str, Any] | None]]) -> None:
        answers.put((number, self._stats(path)))

    def _stats(self, path: str) -> dict[str, Any] | None:
        try:
            reply = self._alone.call("GET", f"{path}/stats")
        except ClusterError:
            return None
        return reply.data if reply.ok and isinstance(reply.data, dict) else None


def active_consumers(answer: dict[str, Any], subscription: str) -> dict[str, str] | None:
    """Of the broker's answer, by partition, the consumer that a failover subscription's messages go to, "": nobody. None: no such
    subscription. The broker leaves partitions out of which it cannot tell.
    """
    parts = {name.rpartition("-")[2]: part for name, part in (answer.get("partitions") or {}).items()}
    subs = {number: part.get("subscriptions", {}).get(subscription) for number, part in parts.items()}
    if not any(sub is not None for sub in subs.values()):
        return None
    return {number: (sub or {}).get("activeConsumerName") or "" for number, sub in subs.items()}
