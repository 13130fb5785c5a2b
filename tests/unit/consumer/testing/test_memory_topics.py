"""Topics in memory: partitions and positions as a broker's."""

from __future__ import annotations

from kodo_consumer.core.envelope import Outgoing
from kodo_consumer.testing.memory_topics import Topic


def _message() -> Outgoing:
    return Outgoing("persistent://p/n/t", b"", {})


def test_messages_of_one_batch_are_in_one_partition_the_first_batch_too() -> None:
    topic = Topic("persistent://p/n/t", ledger=1, partitions=3)
    batches = [{topic.store(_message(), 0, batch=first).partition for _ in range(4)} for first in (0, 4)]
    assert batches == [{0}, {1}]


def test_messages_without_key_and_batch_go_over_the_partitions_in_turns() -> None:
    topic = Topic("persistent://p/n/t", ledger=1, partitions=3)
    assert [topic.store(_message(), 0).partition for _ in range(4)] == [0, 1, 2, 0]
