"""Topic routes: the known partitions of the topics that a client sends to, and the producer for each message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.sequences.sequencer import Router
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory
    from kodo_consumer.adapters.pulsar.schema_passthrough import Key
    from kodo_consumer.core.values.envelope import Outgoing

_COUNT_AGAIN: Final = 60.0  # seconds before a topic is asked again how many partitions it has


@dataclass(slots=True)
class _Topic:
    """Known partitions of a topic. `asked`: when the broker was last asked for them (time.monotonic())."""

    partitions: Sequence[str]
    router: Router
    asked: float


class TopicRoutes:
    """Routes to the topics of one client: their partitions, and the producer for a message. An instance contains the
    topics that it has learned. Not thread-safe.
    """

    def __init__(self, factory: ProducerFactory) -> None:
        self._factory = factory
        self._topics: dict[str, _Topic] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def learn(self, topic: str, partitions: Sequence[str]) -> None:
        """Stores the partitions of a topic, at least one. A topic that was learned before changes only if it has more
        partitions now; else the call has no effect.
        """
        known = self._topics.get(topic)
        if known is None:
            asked = time.monotonic() if whole_topic(topic) == topic else float("inf")  # a partition is one for ever
            self._topics[topic] = _Topic(partitions, Router(len(partitions)), asked)
        elif len(partitions) > len(known.partitions):
            known.partitions, known.router.partitions = partitions, len(partitions)

    def is_stale(self, topic: str, now: float) -> bool:
        """True if 60 s or more have passed since the topic was learned first, or since this method last returned True
        for it: the caller should then ask the broker for its partitions, and `learn` them. A topic that is a partition
        is never stale. `now`: time.monotonic(). Raises KeyError unless the topic was learned.
        """
        known = self._topics[topic]
        if now - known.asked < _COUNT_AGAIN:
            return False
        known.asked = now
        return True

    def key(self, message: Outgoing, now: float) -> Key:
        """Returns the key of the producer for a message: of the partition that its key chooses, or else its ordering
        key. Messages with neither take turns: the partition changes with `now` (time.monotonic()) and after 100 calls.
        Raises KeyError unless the topic was learned; TypeError or AttributeError if the key chooses and is no text.
        """
        known = self._topics[message.topic]
        partition = known.partitions[known.router.choose(message.key or message.ordering_key, now)]
        return self._factory.key(partition, message.schema, delayed=message.deliver_at is not None)

    def keys(
        self, messages: Sequence[tuple[int, Outgoing]], now: float
    ) -> tuple[dict[Key, list[tuple[int, Outgoing]]], list[tuple[int, Outgoing]]]:
        """Returns (messages by the key of their producer, as `key` chooses it; all other messages), each list in the
        order of `messages`, at `now` (time.monotonic()). The others are messages of topics that were not learned or are
        stale (which stay so until `is_stale` is called), and messages whose key chooses the partition and is no text.
        """
        found: dict[Key, list[tuple[int, Outgoing]]] = {}
        by_place: dict[tuple[str, int, str, bool], list[tuple[int, Outgoing]]] = {}  # the same lists
        others: list[tuple[int, Outgoing]] = []
        topics, make_key = self._topics, self._factory.key
        last: tuple[str, int, str, bool] | None = None
        its_own = others
        for pair in messages:
            topic, _, _, message_key, ordering_key, _, deliver_at, schema = pair[1]
            known = topics.get(topic)
            if known is None or now - known.asked >= _COUNT_AGAIN:
                others.append(pair)
                continue
            try:
                number = known.router.choose(message_key or ordering_key, now) if known.router.partitions > 1 else 0
            except (TypeError, AttributeError):  # what is no text is for the client to refuse
                others.append(pair)
                continue
            at = topic, number, schema, deliver_at is not None
            if at != last:  # mostly many in a row are for one
                last = at
                if at not in by_place:
                    key = make_key(known.partitions[number], schema, delayed=deliver_at is not None)
                    by_place[at] = found.setdefault(key, [])
                its_own = by_place[at]
            its_own.append(pair)
        return found, others
