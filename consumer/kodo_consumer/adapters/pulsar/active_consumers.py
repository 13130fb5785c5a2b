"""Reader of the active consumer of each partition from the admin API, which also works while one broker is silent.

One request returns all partitions, because the broker that answers asks the other brokers. A silent broker (its host
lost power, its process is stopped) delays this answer until its session ends, and so the facts about the partitions of
healthy brokers. So if the answer does not come soon, each partition is requested separately, and those that do not
answer are left out. A partition has one request under way at most, so that those to a silent broker do not pile up.
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

ASKING: Final = 1.0  # seconds for an answer: after failover_partitions.VALID it is of no use
_SOON: Final = 0.5  # seconds for the answer for all, before each is asked for as well
_LATEST: Final = (
    1.2  # seconds for those that do answer; the rest is left out, with time to ask again while the answer is valid
)
_GRACE: Final = 0.1  # seconds for those that did not answer last, after the others
_ALONE_FOR: Final = 30.0  # seconds until the one request for all is tried again: the time of a broker's session
_Answer = tuple[int | None, dict[str, Any] | None]  # of a partition, or (None) of all; None: no answer
_WITHOUT_PUBLISHERS: Final = {"excludePublishers": "true"}


class ActiveConsumerReader:
    """Reader of active consumers. Several threads may use it, each with its own topics. `admin`: a port that never
    repeats a request, and that admits the requests for all partitions at once.
    """

    def __init__(self, admin: Admin, now: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._now = admin, now
        self._alone_until: dict[str, float] = {}
        self._silent: dict[TopicName, set[int]] = {}  # partitions that did not answer last: nobody waits for them
        self._under_way: set[tuple[TopicName, int | None]] = set()  # topic and partition of each request

    def read(self, topic: str, subscription: str) -> dict[str, str] | None:
        """Returns the name of the active consumer by partition number (as text, "-1" for a topic without partitions),
        "" for a partition that has no active consumer or lacks the subscription. Partitions without an answer within
        1.2 s are left out, and sooner those that had none at the last call either: 0.1 s after all others, if there are
        others, and at once while the request of an earlier call is under way. One whose answer came after the end of
        its call counts as answered. None: no partition that answered has the subscription, or none answered. Raises
        ClusterError if the topic as a whole is not answered soon and the number of its partitions cannot be read, also
        because there is no such topic. Waits 1.2 s at most, besides one request for that number.
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
        silent = self._silent.get(name, set())
        asked = {number for number in numbers if (name, number) not in self._under_way}
        awaited = asked - silent or asked
        for number in sorted(asked, key=lambda number: (number in silent, number)):
            self._ask(name, number, answers)
        found: dict[int, dict[str, Any] | None] = {}
        with suppress(Empty):
            while len(found) < len(asked):
                if found.keys() >= awaited:
                    latest = min(latest, time.monotonic() + _GRACE)
                answered, stats = answers.get(timeout=max(0.0, latest - time.monotonic()))
                if answered is not None:
                    found[answered] = stats
                elif stats is not None:  # a broker that is slow, and not silent
                    del self._alone_until[topic]
                    return active_consumers(stats, subscription)
        parts = {name.partition(number): stats for number, stats in found.items() if stats is not None}
        self._silent[name] = {number for number in numbers if found.get(number) is None}
        return active_consumers({"partitions": parts}, subscription)

    def _ask(self, topic: TopicName, number: int | None, answers: SimpleQueue[_Answer]) -> None:
        """Sends one request on a new thread, which puts the result into `answers`: the request may take as long as the
        limits of the admin API allow. `number`: the partition, None for all of the topic.
        """

        def ask() -> None:
            stats = None
            try:
                if number is None:
                    reply = ask_stats(self._admin, topic, _WITHOUT_PUBLISHERS)
                else:
                    reply = self._admin.call("GET", f"{partition_path(topic, number)}/stats")
                stats = reply.data if reply.ok and isinstance(reply.data, dict) else None
            except ClusterError:
                pass
            finally:
                self._under_way.discard((topic, number))
                if stats is not None and number is not None:  # late, but not silent: the next read waits for it
                    self._silent.get(topic, set()).discard(number)
                answers.put((number, stats))

        self._under_way.add((topic, number))
        try:
            begin(ask, "kodo-active", log_end)
        except RuntimeError:  # the system allows no more threads
            self._under_way.discard((topic, number))
            raise


def active_consumers(answer: dict[str, Any], subscription: str) -> dict[str, str] | None:
    """Names of the active consumers of a failover subscription by partition number (as text), from the broker's
    statistics; "" for a partition without an active consumer, or without the subscription. None if no partition in the
    answer has the subscription. Partitions that the broker's answer omits are missing.
    """
    parts = {str(partition_number(name)): part for name, part in (answer.get("partitions") or {}).items()}
    subs = {number: part.get("subscriptions", {}).get(subscription) for number, part in parts.items()}
    if not any(sub is not None for sub in subs.values()):
        return None
    return {number: (sub or {}).get("activeConsumerName") or "" for number, sub in subs.items()}
