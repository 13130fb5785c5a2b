"""Reader of the active consumer of each partition from the admin API, which also works while one broker is silent.

One request returns all partitions, because the broker that answers asks the other brokers. A silent broker (its host
lost power, its process is stopped) delays this answer until its session ends, and so the facts about the partitions of
healthy brokers. So if the answer does not come soon, each partition is requested separately, and those that do not
answer are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import Admin, must, partition_path, topic_path
from kodoctl.pulsar.admin.topic_stats import ask_stats
from kodoctl.topology.names import TopicName, partition_number, partition_numbers

ASKING: Final = (
    1.0,
    1.8,
)  # seconds to connect and to answer: later than kodo_consumer.core.state.failover_partitions.VALID it is of no use
_SOON: Final = 0.5  # seconds for the answer for all, before each is asked for as well
_LATEST: Final = (
    1.2  # seconds for those that do answer; the rest is left out, with time to ask again while the answer is valid
)
_GRACE: Final = 0.1  # seconds for those that did not answer last
_ALONE_FOR: Final = 30.0  # seconds until the one request for all is tried again: the time of a broker's session
_Answer = tuple[int | None, dict[str, Any] | None]  # of a partition, or (None) of all; None: no answer
_WITHOUT_PUBLISHERS: Final = {"excludePublishers": "true"}


class ActiveConsumerReader:
    """Reader of active consumers. Several threads may use it, each with its own topics. `admin`: a port that never
    repeats a request.
    """

    def __init__(self, admin: Admin, now: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._now = admin, now
        self._alone_until: dict[str, float] = {}
        self._silent: dict[str, set[int]] = {}  # partitions that did not answer last: nobody waits for them

    def read(self, topic: str, subscription: str) -> dict[str, str] | None:
        """Returns the name of the active consumer by partition number (as text), "" for a partition that has none.
        Partitions that do not answer within 1.2 s, or 0.1 s after the others if they did not answer last time either,
        are left out. None: no partition that answered has the subscription, or none answered. Raises ClusterError, also
        if the topic does not exist. Waits 1.2 s at most, besides one request for the number of partitions.
        """
        answers = SimpleQueue[_Answer]()
        latest = time.monotonic() + _LATEST
        if self._now() >= self._alone_until.get(topic, 0.0):
            self._ask(TopicName.parse(topic), None, answers)
            with suppress(Empty):
                _, whole = answers.get(timeout=_SOON)
                if whole is not None:
                    return active_consumers(whole, subscription)
            self._alone_until[topic] = self._now() + _ALONE_FOR
        return self._one_by_one(topic, subscription, answers, latest)

    def _one_by_one(
        self, topic: str, subscription: str, answers: SimpleQueue[_Answer], latest: float
    ) -> dict[str, str] | None:
        name = TopicName.parse(topic)
        reply = self._admin.call("GET", f"{topic_path(name)}/partitions")
        numbers = set(partition_numbers(int(must(reply, f"reading {topic}")["partitions"])))
        silent = self._silent.get(topic, set())
        for number in sorted(numbers, key=lambda number: (number in silent, number)):
            self._ask(name, number, answers)
        found: dict[int, dict[str, Any] | None] = {}
        with suppress(Empty):
            while len(found) < len(numbers):
                if found.keys() >= numbers - silent:
                    latest = min(latest, time.monotonic() + _GRACE)
                asked, stats = answers.get(timeout=max(0.0, latest - time.monotonic()))
                if asked is not None:
                    found[asked] = stats
                elif stats is not None:  # a broker that is slow, and not silent
                    del self._alone_until[topic]
                    return active_consumers(stats, subscription)
        parts = {name.partition(number): stats for number, stats in found.items() if stats is not None}
        self._silent[topic] = {number for number in numbers if found.get(number) is None}
        return active_consumers({"partitions": parts}, subscription)

    def _ask(self, topic: TopicName, number: int | None, answers: SimpleQueue[_Answer]) -> None:
        """Sends one request on a new thread, which puts the result into `answers`: the request may take as long as the
        limits of the admin API allow. `number`: the partition, None for all of the topic.
        """

        def ask() -> None:
            stats = None
            with suppress(ClusterError):
                if number is None:
                    reply = ask_stats(self._admin, topic, _WITHOUT_PUBLISHERS)
                else:
                    reply = self._admin.call("GET", f"{partition_path(topic, number)}/stats")
                stats = reply.data if reply.ok and isinstance(reply.data, dict) else None
            answers.put((number, stats))

        begin(ask, "kodo-active", log_end)


def active_consumers(answer: dict[str, Any], subscription: str) -> dict[str, str] | None:
    """Names of the active consumers of a failover subscription by partition number (as text), from the broker's
    statistics; "" for a partition without one. None if no partition has the subscription. The broker omits partitions
    that it cannot judge.
    """
    parts = {str(partition_number(name)): part for name, part in (answer.get("partitions") or {}).items()}
    subs = {number: part.get("subscriptions", {}).get(subscription) for number, part in parts.items()}
    if not any(sub is not None for sub in subs.values()):
        return None
    return {number: (sub or {}).get("activeConsumerName") or "" for number, sub in subs.items()}
