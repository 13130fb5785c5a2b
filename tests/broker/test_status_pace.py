"""What `kodoctl status` says of a backlog that grows, against a real consumer that is too slow for its sender."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
BATCH, ENTRIES = 50, 8


def _lane(workspace: Workspace) -> dict[str, Any]:
    [topology] = workspace.run("status", "--format", "json").json()["topologies"]
    [found] = [one for one in topology["lanes"] if (one["level"], one["state"]) == ("L1", "ready")]
    return dict(found)


def _send(producer: Any) -> None:
    for number in range(BATCH * ENTRIES):
        producer.send_async(str(number).encode(), lambda *_: None)
    producer.flush()


@pytest.fixture
def traffic(workspace: Workspace) -> Any:
    """A topic of two partitions, a producer of batches, and a subscriber that acknowledges a part of them."""
    workspace.topology("orders: {partitions: 2, subscriptions: {billing: {states: [], concurrency: 3}}}")
    workspace.apply()
    options: dict[str, Any] = {
        "batching_enabled": True,
        "batching_max_messages": BATCH,
        "batching_max_publish_delay_ms": 5_000,
    }
    with workspace.client() as client:
        producer = client.create_producer(workspace.full("orders"), block_if_queue_full=True, **options)
        consumer = client.subscribe(workspace.full("orders"), "billing", pulsar.ConsumerType.Shared)
        yield producer, consumer
        consumer.close()
        producer.close()


def test_batches_are_estimated_in_messages_and_averages_count_since_the_consumers_connected(
    workspace: Workspace, traffic: Any
) -> None:
    producer, consumer = traffic
    _send(producer)
    got = [consumer.receive(10_000) for _ in range(BATCH * ENTRIES)]
    found = eventually(lambda: (one := _lane(workspace))["messages_about"] and one)
    assert BATCH * ENTRIES <= found["messages_about"] <= 1.2 * BATCH * ENTRIES
    assert found["entries"] < found["messages_about"]
    assert (found["slots"], found["partitions"], found["one_each"]) == (3, 2, False)
    assert found["before"]["rate_acked"] == 0.0
    assert found["before"]["rate_in"] > 0
    assert 0 <= found["unacknowledged"] <= BATCH * ENTRIES
    for one in got:
        consumer.acknowledge(one)
    eventually(lambda: _lane(workspace)["messages_about"] == 0)
    assert _lane(workspace)["before"]["rate_acked"] > 0


@pytest.mark.full
def test_a_slow_worker_is_told_with_what_comes_what_it_handles_and_what_would_help(
    workspace: Workspace, traffic: Any
) -> None:
    producer, consumer = traffic

    def look() -> str:
        _send(producer)
        consumer.acknowledge(consumer.receive(10_000))
        text = " ".join(workspace.run("status").out.split())
        return text if "more come than are handled" in text else ""

    text = eventually(look, within=150, every=1.0)  # the broker counts its rates once a minute
    assert "/s come, " in text
    assert "too late to compare; `kodoctl status --watch` compares after 2 min" in text
    assert "messages for 3 slots: more workers or `concurrency` help, unless a limit, a live order" in text


@pytest.mark.full
def test_a_worker_that_has_its_partition_alone_and_keeps_up_is_not_told_to_fall_behind(workspace: Workspace) -> None:
    """Of failover the broker counts batches that are acknowledged, if anything, and nothing that a worker holds."""
    workspace.topology("orders: {subscriptions: {billing: {type: failover, states: []}}}")
    workspace.apply()
    with workspace.client() as client:
        producer = client.create_producer(
            workspace.full("orders"), batching_enabled=True, batching_max_messages=BATCH, block_if_queue_full=True
        )
        consumer = client.subscribe(workspace.full("orders"), "billing", pulsar.ConsumerType.Failover)
        _send(producer)  # they stay: a backlog is there

        def look() -> bool:
            _send(producer)
            for _ in range(BATCH * ENTRIES):
                consumer.acknowledge(consumer.receive(10_000))
            found = _lane(workspace)
            return bool(found["steady"] and found["rate_in"] and found["rate_out"])

        eventually(look, within=150, every=1.0)
        found = _lane(workspace)
        assert (found["entries"] > 0, found["unacknowledged"]) == (True, None)
        assert (found["rate_acked"], found["before"]["rate_acked"], found["one_each"]) == (None, None, True)
        assert found["rate_in"] <= 1.2 * found["rate_out"]
        assert "hold" not in workspace.run("status").out
        consumer.close()
        producer.close()


@pytest.mark.parametrize(("kind", "one_each"), [("failover", True), ("key_shared", False)])
def test_only_some_types_give_a_partition_to_one_worker(workspace: Workspace, kind: str, *, one_each: bool) -> None:
    workspace.topology(f"orders: {{partitions: 2, subscriptions: {{billing: {{type: {kind}, states: []}}}}}}")
    workspace.apply()
    of = {"failover": pulsar.ConsumerType.Failover, "key_shared": pulsar.ConsumerType.KeyShared}[kind]
    with workspace.client() as client:
        readers = [client.subscribe(workspace.full("orders"), "billing", of, consumer_name=name) for name in "abc"]
        found = eventually(lambda: (one := _lane(workspace))["consumers"] == 3 and one)
        assert (found["one_each"], found["partitions"], found["idle"]) == (one_each, 2, 1 if one_each else 0)
        for one in readers:
            one.close()
