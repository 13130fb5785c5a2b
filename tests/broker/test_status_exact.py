"""`status --exact` against what a consumer really gets: acknowledged messages are not counted, wherever they stand."""

from __future__ import annotations

import json
import time

import pulsar
import pytest

from tests.broker.waiting_messages import TOPIC_OF, TOPICS, Waits
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
MESSAGES = 400
LANE = "L2/pending"


def fill(waits: Waits, *, batched: bool) -> None:
    options = {"batching_max_messages": 10, "batching_max_publish_delay_ms": 5_000} if batched else {}
    with waits.workspace.client() as client:
        topic = waits.workspace.full(TOPIC_OF[LANE])
        producer = client.create_producer(topic, batching_enabled=batched, block_if_queue_full=True, **options)
        for number in range(MESSAGES):
            producer.send_async(json.dumps({"n": number}).encode(), lambda *_: None)
        producer.flush()
        producer.close()


def acknowledge(waits: Waits, chosen: set[int]) -> None:
    with waits.workspace.client() as client:
        topic = waits.workspace.full(TOPIC_OF[LANE])
        consumer = client.subscribe(topic, "billing", pulsar.ConsumerType.Exclusive, batch_index_ack_enabled=True)
        for _ in range(MESSAGES):
            message = consumer.receive(5_000)
            if json.loads(message.data())["n"] in chosen:
                consumer.acknowledge(message)
        time.sleep(1)
        consumer.close()


def counted(waits: Waits) -> int | None:
    document = waits.workspace.run("status", "topologies", "--exact", "--format", "json").json()
    (found,) = [
        lane["messages"]
        for topology in document["topologies"]
        for lane in topology["lanes"]
        if (lane["level"], lane["state"], lane["subscription"]) == ("L2", "pending", "billing")
    ]
    assert found is None or isinstance(found, int)
    return found


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    "chosen",
    [set(), set(range(110)), {*range(100), *range(200, 250)}, set(range(MESSAGES - 10))],
    ids=["none", "the first", "with a gap", "all but the last"],
)
def test_what_is_acknowledged_is_not_counted(workspace: Workspace, chosen: set[int], batched: bool) -> None:
    waits = Waits(workspace, TOPICS.replace("orders:\n", "orders:\n  partitions: 1\n", 1))
    fill(waits, batched=batched)
    acknowledge(waits, chosen)
    left = MESSAGES - len(chosen)
    eventually(lambda: counted(waits) == left, within=20, every=0.5)
    assert sum(waits.left(LANE).values()) == left


def test_a_batch_that_is_acknowledged_in_part_counts_whole(workspace: Workspace) -> None:
    """The admin API does not know better, and the page says so."""
    waits = Waits(workspace, TOPICS.replace("orders:\n", "orders:\n  partitions: 1\n", 1))
    fill(waits, batched=True)
    acknowledge(waits, set(range(105)))
    eventually(lambda: counted(waits) == 300, within=20, every=0.5)
    assert sum(waits.left(LANE).values()) == 295


def test_consumers_beyond_the_partitions_of_an_ordered_topic_are_named(workspace: Workspace) -> None:
    waits = Waits(workspace, TOPICS.replace("orders:\n", "orders:\n  partitions: 1\n", 1))
    kinds = {"orders": pulsar.ConsumerType.Failover, TOPIC_OF[LANE]: pulsar.ConsumerType.Shared}
    with waits.workspace.client() as client:
        kept = [
            client.subscribe(waits.workspace.full(topic), "billing", kind)
            for topic, kind in kinds.items()
            for _ in "ab"
        ]
        text = workspace.run("status", "topologies").out
        assert "L1 ready: 1 of 2 consumers has no partition" in text
        assert text.count("no partition") == 1, "a shared subscription gives every consumer messages"
        for consumer in kept:
            consumer.close()
